"""The command line: one file per command; parsing here, rendering in ``agent.faces``."""
