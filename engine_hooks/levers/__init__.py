"""Levers: what the agent may ask of an engine process, and the desk that obeys, refuses, expires and undoes."""
