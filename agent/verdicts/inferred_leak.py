"""A leak where blocks can't be compared with their holders: inferred from what stays held, and said to be so."""

from __future__ import annotations

from agent.retained import NO_LEASE_SECONDS
from agent.signals.types import EngineSignals
from agent.units import human_seconds
from agent.verdicts.base import Facts, Finding
from agent.verdicts.endings import OUT_OF_SIGHT
from agent.verdicts.leaking import STEPS, leaks

REST_RATIO = 0.002  # of the pool: less at rest is a rounding
PAGE_RATIO = 0.5

PROOF = "This is inferred from how much stays held; hooks (kvtide installed beside the engine) would tell whose it is."
PROOF_HOOKED = "This is inferred from how much stays held: the hooks can't count this engine's blocks by their holders."
REMEDY = (
    "If a connector or an offload tier may keep blocks for so long, look there first. Otherwise only a restart brings "
    "them back: resetting the prefix cache frees none that is held. If all is free after a restart, it was a leak."
)


def inferred(facts: Facts) -> Finding | None:
    """Return a leak that shows at rest, or as growth over hours that requests don't account for; None where none does.

    Blocks that are kept for ten minutes at rest are past any lease that connectors have.
    """
    signals = facts.signals
    if signals is None:
        return None
    return _at_rest(signals) or _over_hours(signals, facts)


def _proof(signals: EngineSignals) -> str:
    return PROOF_HOOKED if signals.hooked else PROOF


def _at_rest(signals: EngineSignals) -> Finding | None:
    ratio, seconds = signals.idle_floor_ratio, signals.idle_floor_seconds
    if ratio is None or ratio < REST_RATIO or seconds < NO_LEASE_SECONDS:
        return None
    share = f"{ratio:.0%}" if ratio >= 0.1 else f"{ratio:.1%}"
    return Finding(
        f"Nothing has run or waited for {human_seconds(seconds)}, and {share} of the KV pool is still held: "
        f"probably leaked. {_proof(signals)}",
        REMEDY,
        {"idle_held_ratio": ratio, "idle_seconds": seconds},
        "page" if ratio >= PAGE_RATIO else "warn",
        ending=OUT_OF_SIGHT,  # a request that runs hides it and gives nothing back
    )


def _over_hours(signals: EngineSignals, facts: Facts) -> Finding | None:
    slow = signals.slow_unexplained
    if slow is None or slow.per_hour <= 0 or not leaks(slow):
        return None
    evidence = {"leaked_ratio_per_hour": slow.per_hour, "over_seconds": slow.seconds}
    sentence = f"Held blocks rise by {slow.per_hour:.1%} of the pool an hour, and requests do not account for it"
    if slow.staircase >= STEPS:
        evidence["steps"] = slow.staircase
        sentence += f", in {slow.staircase} steps that never came down"
    full = (1 - use) / slow.per_hour * 3600 if (use := signals.use_ratio) is not None and slow.per_hour > 0 else None
    if full is not None:
        evidence["exhaustion_seconds"] = full
        sentence += f"; at this rate the pool is full in {human_seconds(full)}"
    page = full is not None and full < facts.policy.host.limit_seconds
    text = f"{sentence}: probably leaked. {_proof(signals)}"
    return Finding(text, REMEDY, evidence, "page" if page else "warn", ending=OUT_OF_SIGHT)
