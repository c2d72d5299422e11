"""Prometheus as a source of history: range queries turned into states."""
