"""Looks over an installation: what works, what does not, and the command that mends it."""
