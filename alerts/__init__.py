"""Prometheus rules and Alertmanager configuration, built from the policy and the metric catalogue."""
