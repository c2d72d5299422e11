"""Processes, cgroups and the host."""
