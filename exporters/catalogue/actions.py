"""What the agent does about verdicts, and the policy it does it by."""

from __future__ import annotations

from exporters.catalogue.base import Metric

ACTIONS = Metric(
    "kvtide_actions_total",
    "counter",
    "actions",
    ("lever", "result"),
    "Actions by how they ended: done, would (a dry-run's end), undone, did_not_help (and was undone), expired, refused "
    "by the engine, failed, lost.",
)
ACTION_REFUSALS = Metric(
    "kvtide_action_refusals_total",
    "counter",
    "refusals",
    ("lever", "reason"),
    "Plans that were not run, by why; a reason that stays the same counts once.",
)
ACTION_IN_FORCE = Metric(
    "kvtide_action_in_force",
    "gauge",
    "boolean",
    ("engine", "lever"),
    "A lever that is held on an engine now; always 1.",
)
ACTIONS_MODE = Metric(
    "kvtide_actions_mode",
    "gauge",
    "boolean",
    ("mode",),
    "1 for the strongest mode that any lever has, 0 for the others.",
)
ACTIONS_BLOCKED = Metric(
    "kvtide_actions_blocked",
    "gauge",
    "boolean",
    (),
    "1 while nothing can be done: an off switch, or a journal that can't be written. Absent in mode observe.",
)
ACTIONS_BUDGET = Metric(
    "kvtide_actions_budget_left", "gauge", "actions", (), "Actions left of this hour's. Absent in mode observe."
)
BREAKER_OPEN = Metric(
    "kvtide_breaker_open",
    "gauge",
    "boolean",
    (),
    "1 while the breaker is open: nothing is done until a person closes it.",
)
POLICY_LOADED = Metric(
    "kvtide_policy_loaded",
    "gauge",
    "boolean",
    (),
    "1 where the policy in force is what is in the file now; 0 where the last attempt to load it was refused.",
)
POLICY_LOADED_AT = Metric(
    "kvtide_policy_loaded_timestamp_seconds",
    "gauge",
    "seconds",
    (),
    "Unix time at which the policy in force was loaded.",
)
