"""eviction_storm: cached prefixes are evicted before they are used again, and computed anew."""

from __future__ import annotations

from agent.plain import plain
from agent.verdicts.base import Facts, Finding
from agent.verdicts.harm import harm_of
from agent.verdicts.offline import grow_back_first

HALVED = 0.5  # of the usual hit ratio
FULL_ENOUGH = 0.85

REMEDY = (
    "What helps: send each conversation to the engine that has its prefix, keep one-off long prompts away from this "
    "one, or an offload tier. Resetting the prefix cache makes it worse."
)


class EvictionStorm:
    """Fires where evictions cost a sixth of all prefill, and of what was asked for; for a page, where the hit ratio has
    halved and it is felt.

    Evictions alone are no fault: prompts that nobody sends again are evicted too. Nor is it one where the cache serves
    nearly all and prefill is the little that it doesn't: of that a few sessions that come back late are much.
    """

    kind = "eviction_storm"
    confirm_seconds = 60.0
    clear_seconds = 60.0

    def judge(self, facts: Facts) -> Finding | None:
        """Return what evictions cost; None when it is little, or can't be known."""
        signals, policy = facts.signals, facts.policy
        if signals is None:
            return None
        lost = signals.rebuild_evicted_ratio
        if lost is None and signals.preempted_per_minute == 0:
            lost = signals.rebuild_ratio  # nothing else can have lost it
        evidence: dict[str, float] = {}
        remedy = grow_back_first(facts) + REMEDY
        if signals.prefix_hit_ratio is not None:
            evidence["prefix_hit_ratio"] = signals.prefix_hit_ratio
        if lost is not None:
            least = policy.serving.rebuild_warn_ratio
            if lost < least or (policy.profile != "textbook" and _of_asked(lost, signals.prefix_hit_ratio) < least):
                return None
            evidence["rebuild_evicted_ratio"] = lost
            page = lost >= policy.serving.rebuild_page_ratio and policy.profile == "textbook"
            sentence = f"Cached prefixes are evicted before they are used again: {lost:.0%} of all prompt work is done"
            return Finding(f"{sentence} again for that.{_who(facts)}", remedy, evidence, "page" if page else "warn")
        times, hits = signals.prefix_hit_times, signals.prefix_hit_ratio
        if times is None or hits is None or times > HALVED or (signals.use_ratio or 0.0) < FULL_ENOUGH:
            return None
        harm = harm_of(facts)
        if harm is None:
            return None
        sentence = f"Only {hits:.0%} of prompt tokens are found in the prefix cache, {times:.0%} of what is usual here,"
        return Finding(
            f"{sentence} with the pool nearly full: cached prefixes are pushed out. {harm.words[:1].upper()}"
            f"{harm.words[1:]}.{_who(facts)}",
            remedy,
            evidence | harm.evidence | {"prefix_hit_times": times},
            "warn",
        )


def _of_asked(lost: float, hits: float | None) -> float:
    """Return the share of prompt tokens that is computed again; ``lost``: of those that are computed at all."""
    return lost if hits is None else lost * (1 - hits)


def _who(facts: Facts) -> str:
    """Return a sentence on the tenant that has grown most meanwhile, led by a space; empty where none has."""
    grown = [each for each in facts.tenants if (each.share_times or 0.0) >= facts.policy.tenants.surge_times]
    if not grown:
        return ""
    first = max(grown, key=lambda each: each.share_ratio or 0.0)
    return f" Tenant {plain(first.tenant)} holds {first.share_times:.1f} times its usual share meanwhile."
