"""The metric catalogue: every metric that kvtide exports, once. Collectors, docs, dashboards and rules read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family. ``unit`` is a base unit or what is counted; ``since`` the version that brought it."""

    name: str
    type: Literal["gauge", "counter"]
    unit: str
    labels: tuple[str, ...]
    help: str
    since: str = "0.1.0"


_ENGINE = ("engine",)

BUILD_INFO = Metric("kvtide_build_info", "gauge", "info", ("version",), "The agent's version; always 1.")
AGENT_START = Metric("kvtide_agent_start_time_seconds", "gauge", "seconds", (), "When the agent started, in Unix time.")
AGENT_READY = Metric(
    "kvtide_agent_ready", "gauge", "boolean", (), "1 while engines that connect to the link's path reach this agent."
)

ENGINE_INFO = Metric(
    "kvtide_engine_info",
    "gauge",
    "info",
    ("engine", "engine_id", "vllm_version", "hooks_version"),
    "One engine process that is connected, or was until a moment ago; always 1. A restart draws a new engine_id.",
)
ENGINE_START = Metric(
    "kvtide_engine_start_time_seconds", "gauge", "seconds", _ENGINE, "When the engine core came up, in Unix time."
)
ENGINE_UP = Metric(
    "kvtide_engine_up",
    "gauge",
    "boolean",
    _ENGINE,
    "1 while the engine's own thread reports; 0 when it is silent or its link is lost, and then it has no values.",
)
ENGINE_STEPS = Metric("kvtide_engine_steps_total", "counter", "steps", _ENGINE, "Engine steps since it came up.")
REQUESTS_RUNNING = Metric("kvtide_requests_running", "gauge", "requests", _ENGINE, "Requests that run.")
REQUESTS_WAITING = Metric(
    "kvtide_requests_waiting", "gauge", "requests", _ENGINE, "Requests that wait, for whatever reason."
)

KV_CAPACITY = Metric(
    "kvtide_kv_blocks_capacity", "gauge", "blocks", _ENGINE, "Usable KV blocks of the pool, as it is now."
)
KV_HELD = Metric("kvtide_kv_blocks_held", "gauge", "blocks", _ENGINE, "KV blocks with a reference count above 0.")
KV_HELD_MAX = Metric(
    "kvtide_kv_blocks_held_max", "gauge", "blocks", _ENGINE, "Most KV blocks held after any step since the last report."
)
KV_CACHED_IDLE = Metric(
    "kvtide_kv_blocks_cached_idle",
    "gauge",
    "blocks",
    _ENGINE,
    "Free KV blocks that still carry a prefix hash: reclaimable at once, useful if kept.",
)
KV_EMPTY = Metric("kvtide_kv_blocks_empty", "gauge", "blocks", _ENGINE, "Free KV blocks with no hash.")
KV_ORPHANED = Metric(
    "kvtide_kv_blocks_orphaned",
    "gauge",
    "blocks",
    _ENGINE,
    "Held KV blocks that no live request, deferred free or known pin explains: leaked. Absent where it can't be known.",
)
KV_OVER_FREED = Metric(
    "kvtide_kv_blocks_over_freed",
    "gauge",
    "blocks",
    _ENGINE,
    "KV blocks with fewer references than their holders expect: a use-after-free hazard.",
)
KV_BLOCK_BYTES = Metric(
    "kvtide_kv_block_bytes", "gauge", "bytes", _ENGINE, "Size of one KV block on one rank, all layers."
)
KV_CAPACITY_BYTES = Metric("kvtide_kv_capacity_bytes", "gauge", "bytes", _ENGINE, "Usable KV pool on one rank.")
KV_HELD_BYTES = Metric("kvtide_kv_held_bytes", "gauge", "bytes", _ENGINE, "Held KV blocks, in bytes on one rank.")
KV_CACHED_IDLE_BYTES = Metric(
    "kvtide_kv_cached_idle_bytes", "gauge", "bytes", _ENGINE, "Cached idle KV blocks, in bytes on one rank."
)
KV_EMPTY_BYTES = Metric("kvtide_kv_empty_bytes", "gauge", "bytes", _ENGINE, "Empty KV blocks, in bytes on one rank.")
KV_ORPHANED_BYTES = Metric(
    "kvtide_kv_orphaned_bytes", "gauge", "bytes", _ENGINE, "Orphaned KV blocks, in bytes on one rank."
)
AUDIT_SUPPORTED = Metric(
    "kvtide_audit_supported",
    "gauge",
    "boolean",
    _ENGINE,
    "1 where this engine's blocks can be accounted for exactly; the reason why not is in the agent's state.",
)
AUDIT_EXACT = Metric(
    "kvtide_audit_exact",
    "gauge",
    "boolean",
    _ENGINE,
    "0 while a difference of references has been counted but the blocks that carry it are not named yet.",
)
AUDITS = Metric("kvtide_audits_total", "counter", "passes", _ENGINE, "Passes over the whole pool that have ended.")
LEDGER_DRIFT = Metric(
    "kvtide_ledger_drift_references_total",
    "counter",
    "references",
    _ENGINE,
    "References that took a path which is not counted, found and corrected by the audit.",
)

HOOK_ERRORS = Metric(
    "kvtide_hook_errors_total",
    "counter",
    "errors",
    ("engine", "hook"),
    "Exceptions caught in a hook; appears with the first one.",
)
HOOKS_OFF = Metric("kvtide_hooks_off", "gauge", "hooks", _ENGINE, "Hooks that were switched off after repeated errors.")
FRAMES_DROPPED = Metric(
    "kvtide_engine_frames_dropped_total",
    "counter",
    "frames",
    _ENGINE,
    "Frames that an engine dropped because the agent did not read fast enough, or was gone.",
)
HOOK_SECONDS = Metric(
    "kvtide_hook_seconds_total",
    "counter",
    "seconds",
    _ENGINE,
    "Time that our hooks took on the engine's thread, inside its steps and after them.",
)
STEP_SECONDS = Metric(
    "kvtide_engine_step_seconds_total", "counter", "seconds", _ENGINE, "Time that the engine's thread spent in steps."
)

LINK_UP = Metric("kvtide_link_up", "gauge", "boolean", _ENGINE, "1 while the engine process is connected to the agent.")
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

VERDICT = Metric(
    "kvtide_verdict",
    "gauge",
    "boolean",
    ("engine", "kind", "phase"),
    "A verdict that stands, with its phase (suspect, confirmed, or resolved for a minute); always 1.",
)

CATALOGUE: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
