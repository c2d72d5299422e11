"""The metric catalogue, the Prometheus collector and the HTTP endpoints."""
