"""The link between the agent and its engines."""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

LINK_UP = Metric("kvtide_link_up", "gauge", "boolean", ENGINE, "1 while the engine process is connected to the agent.")
LINK_CONNECTIONS = Metric(
    "kvtide_link_connections", "gauge", "connections", (), "Engine processes that are connected and proven."
)
LINK_FRAMES = Metric("kvtide_link_frames_total", "counter", "frames", (), "Frames received, rejected ones included.")
LINK_REJECTED = Metric(
    "kvtide_link_frames_rejected_total", "counter", "frames", ("reason",), "Frames that were dropped, by reason."
)
LINK_REFUSED = Metric(
    "kvtide_link_peers_refused_total",
    "counter",
    "connections",
    ("reason",),
    "Connections that were refused, by reason.",
)
LINK_NAMES_FOLDED = Metric(
    "kvtide_link_names_folded_total",
    "counter",
    "names",
    ("kind",),
    "New names that were too many in a short time, by what they name: they are told as other, or not at all.",
    detail=True,
)
