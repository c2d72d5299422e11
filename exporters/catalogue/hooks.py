"""What our hooks cost, and what went wrong in them."""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

HOOK_ERRORS = Metric(
    "kvtide_hook_errors_total",
    "counter",
    "errors",
    ("engine", "hook"),
    "Exceptions caught in a hook of an engine core, or of the processes around it (worker/HOOK, frontend/HOOK); "
    "appears with the first one.",
)
HOOKS_OFF = Metric(
    "kvtide_hooks_off",
    "gauge",
    "hooks",
    ENGINE,
    "Hooks of an engine core and of the processes around it that were switched off after repeated errors.",
)
FRAMES_DROPPED = Metric(
    "kvtide_engine_frames_dropped_total",
    "counter",
    "frames",
    ENGINE,
    "Frames that an engine dropped because the agent did not read fast enough, or was gone.",
)
HOOK_SECONDS = Metric(
    "kvtide_hook_seconds_total",
    "counter",
    "seconds",
    ENGINE,
    "Time that our hooks took on the engine's thread, inside its steps and after them.",
)
STEP_SECONDS = Metric(
    "kvtide_engine_step_seconds_total", "counter", "seconds", ENGINE, "Time that the engine's thread spent in steps."
)
