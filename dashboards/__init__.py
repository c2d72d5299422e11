"""Grafana dashboards, built from the metric catalogue."""
