"""The agent's own HTTP port: /metrics/detail only."""

from __future__ import annotations

from exporters.catalogue.base import Metric

HTTP_CONNECTIONS = Metric(
    "kvtide_http_connections", "gauge", "connections", (), "Connections to the agent's HTTP port.", detail=True
)
HTTP_REFUSED = Metric(
    "kvtide_http_refused_total",
    "counter",
    "requests",
    ("reason",),
    "Connections and requests to the agent's HTTP port that were turned away, by reason.",
    detail=True,
)
HTTP_CONFIG_UP = Metric(
    "kvtide_http_config_up",
    "gauge",
    "boolean",
    (),
    "1 while the web configuration file that is there is the one in force.",
    detail=True,
)
