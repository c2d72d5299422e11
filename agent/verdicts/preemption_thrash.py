"""preemption_thrash: running requests are thrown out for memory again and again, and what they had is computed anew."""

from __future__ import annotations

from agent.retained import count_of
from agent.verdicts.base import Facts, Finding
from agent.verdicts.harm import LEAST_PREEMPTED

SWING_RATIO = 0.30  # of the pool that comes and goes without a token: one prompt computed and dropped, over and over
SWINGS = 2.0  # periods for which it must go on: after so many without another, teeth are over, as when a stall began

REMEDY = (
    "Let fewer requests run at once (max_num_seqs) or send some elsewhere: each that is admitted throws another out. "
    "If this share falls while held blocks go on rising, look for a leak."
)
REMEDY_SWING = (
    "Abort the request that is being computed over and over: it does not fit beside what is held. If it comes back, "
    "limit the length of prompts; evicting the prefix cache does not help."
)


class PreemptionThrash:
    """Fires on preemptions that cost a sixth of all prefill, or that leave no token; a few that do no harm are none."""

    kind = "preemption_thrash"
    confirm_seconds = 60.0
    clear_seconds = 60.0

    def judge(self, facts: Facts) -> Finding | None:
        """Return what is computed anew; None when preemptions are rare or cheap, or it can't be known."""
        return _swing(facts) or _preempted(facts)


def _preempted(facts: Facts) -> Finding | None:
    signals, policy = facts.signals, facts.policy.serving
    rate = signals.preempted_per_minute if signals else None
    if signals is None or rate is None or rate < LEAST_PREEMPTED:
        return None
    evidence = {"preempted_per_minute": rate, "running_requests": float(facts.running)}
    start = f"Running requests are thrown out for memory {rate:,.0f} times a minute"
    if signals.rebuild_ratio is not None:
        lost = signals.rebuild_ratio - (signals.rebuild_evicted_ratio or 0.0)
        if lost < policy.rebuild_warn_ratio:
            return None
        page = lost >= policy.rebuild_page_ratio
        evidence["rebuild_ratio"] = lost
        sentence = f"{start}: {lost:.0%} of all prompt work is done again for them."
        return Finding(sentence, REMEDY, evidence, "page" if page else "warn")
    # A page does not tell what is rebuilt. That each running request is thrown out once a minute is no good sign.
    stopped = signals.tokens_per_second is not None and signals.tokens_per_second <= 0
    if not stopped and rate < max(2 * LEAST_PREEMPTED, facts.running):
        return None
    if signals.tokens_per_second is not None:
        evidence["tokens_per_second"] = signals.tokens_per_second
    result = "and no token comes" if stopped else f"with {count_of(facts.running, 'request')} running"
    return Finding(f"{start}, {result}.", REMEDY, evidence, "page" if stopped else "warn")


def _swing(facts: Facts) -> Finding | None:
    """Prompts that are computed and dropped: some engines put them back without counting a preemption."""
    signals, reading = facts.signals, facts.reading
    if signals is None or reading is None or not signals.in_teeth or signals.amplitude_ratio is None:
        return None
    # A model that only embeds makes no token ever.
    if signals.amplitude_ratio < SWING_RATIO or signals.tokens_per_second != 0 or not reading.generated_total:
        return None
    if not facts.running and not facts.waiting:
        return None
    # A single fall has no period: all was aborted, and the pool is empty since.
    if signals.period_seconds is None:
        return None
    return Finding(
        f"No token was generated in the last minute, while held blocks go up and down by "
        f"{signals.amplitude_ratio:.0%} of the pool: a prompt is computed and thrown away over and over.",
        REMEDY_SWING,
        {"tokens_per_second": 0.0, "tooth_amplitude_ratio": signals.amplitude_ratio},
        "page",
        max(PreemptionThrash.confirm_seconds, SWINGS * signals.period_seconds),
    )
