"""Members: the workers and API servers around an engine core."""

from __future__ import annotations

from exporters.catalogue.base import Metric

_MEMBER = ("engine", "role", "rank")

MEMBER_UP = Metric(
    "kvtide_member_up",
    "gauge",
    "boolean",
    _MEMBER,
    "1 while this worker or API server (role frontend) of the engine reports; 0 when it is silent or its link is lost. "
    "API servers stand in front of all data-parallel ranks and are counted with the first.",
)
MEMBER_KV_BYTES = Metric(
    "kvtide_member_kv_bytes",
    "gauge",
    "bytes",
    _MEMBER,
    "KV cache that this worker has allocated, each storage counted once. Where ranks keep copies (MLA), so do these.",
)
MEMBER_PARAMETER_BYTES = Metric(
    "kvtide_member_parameter_bytes",
    "gauge",
    "bytes",
    _MEMBER,
    "Weights and buffers of this worker's model when its KV cache had been allocated.",
    detail=True,
)
MEMBER_RESIDENT_BYTES = Metric(
    "kvtide_member_resident_bytes",
    "gauge",
    "bytes",
    _MEMBER,
    "Memory of this process in RAM, pages that it shares with others included, by its own word; role core: the engine "
    "core's. A worker in its engine core's process is that process.",
    detail=True,
)
MEMBER_CGROUP_BYTES = Metric(
    "kvtide_member_cgroup_bytes",
    "gauge",
    "bytes",
    _MEMBER,
    "Memory that the cgroup (version 2) of this process uses, all processes in it, by the process's own word: an agent "
    "that sees neither its pid nor its cgroup has this. What an agent sees itself: kvtide_cgroup_memory_current_bytes.",
    detail=True,
)
MEMBER_CGROUP_LIMIT_BYTES = Metric(
    "kvtide_member_cgroup_limit_bytes",
    "gauge",
    "bytes",
    _MEMBER,
    "The least memory limit over the cgroup of this process and those around it that it sees; absent without one.",
    detail=True,
)
MEMBER_REQUESTS = Metric(
    "kvtide_member_requests",
    "gauge",
    "requests",
    _MEMBER,
    "Requests that this API server has taken and not answered to the end.",
    detail=True,
)
MEMBERS_EXPECTED = Metric(
    "kvtide_members_expected",
    "gauge",
    "processes",
    ("engine", "role"),
    "How many members of a role the engine has on this node, by its own configuration; absent where something else "
    "places them (Ray). Fewer with kvtide_member_up 1: one is lost, or its hooks are.",
)
MEMBERS_UNJOINED = Metric(
    "kvtide_members_unjoined",
    "gauge",
    "processes",
    (),
    "Workers and API servers whose engine core is not connected to this agent: it still loads, is gone, or on another "
    "node.",
)
