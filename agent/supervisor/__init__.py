"""Supervisors: who restarts an engine when the agent asks for it, drained first and watched until it serves again."""
