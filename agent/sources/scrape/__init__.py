"""Engines without hooks, through their own /metrics."""
