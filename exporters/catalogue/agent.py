"""The agent itself."""

from __future__ import annotations

from exporters.catalogue.base import Metric

BUILD_INFO = Metric("kvtide_build_info", "gauge", "info", ("version",), "The agent's version; always 1.")
AGENT_START = Metric("kvtide_agent_start_time_seconds", "gauge", "seconds", (), "When the agent started, in Unix time.")
AGENT_READY = Metric(
    "kvtide_agent_ready", "gauge", "boolean", (), "1 while engines that connect to the link's path reach this agent."
)
