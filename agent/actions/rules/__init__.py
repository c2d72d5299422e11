"""Rules: which lever for which verdict. Adding one: a class, its rung in the policy, a line here, a test."""

from __future__ import annotations

from collections.abc import Mapping

from agent.actions.rules.admission import Concurrency, Quotas, Shed
from agent.actions.rules.base import Case as Case
from agent.actions.rules.base import Rule as Rule
from agent.actions.rules.base import of_silent as of_silent
from agent.actions.rules.cache import EvictIdle, HoldHot
from agent.actions.rules.compaction import Compact
from agent.actions.rules.drastic import Preempt, Restart, RestartSilent
from agent.actions.rules.reclaim import EndZombies, ReclaimDelayed, ReclaimOrphans, Trim
from agent.actions.rules.throttle import ActiveCap, BatchTokens, Watermark
from agent.policy.actions import Rung

_ALL: tuple[Rule, ...] = (
    Quotas(),
    Concurrency(),
    Watermark(),
    ActiveCap(),
    BatchTokens(),
    EvictIdle(),
    HoldHot(),
    ReclaimOrphans(),
    Trim(),
    Compact(),
    EndZombies(),
    Shed(),
    Preempt(),
    ReclaimDelayed(),
    Restart(),
    RestartSilent(),
)

RULES: Mapping[Rung, Rule] = {rule.rung: rule for rule in _ALL}
