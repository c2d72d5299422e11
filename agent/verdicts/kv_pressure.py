"""kv_pressure: the pool is short of blocks and requests feel it, or soon will."""

from __future__ import annotations

from collections.abc import Callable

from agent.retained import count_of, there_are
from agent.units import human_seconds
from agent.verdicts import raw_pressure
from agent.verdicts.base import TIERS, Facts, Finding
from agent.verdicts.harm import brief, fp8_factor, harm_of, waits_for_memory
from agent.verdicts.offline import grow_back_first

SOON_SECONDS = 60.0
QUEUE_SECONDS = 5.0
NEARLY_FULL = 0.90
ADMITTED_SHARE = 0.5  # of growth that is of requests that were let in: the engine lets none in that has no room
WORTH_NAMING = 0.05  # share of the pool that is leaked or kept for a connector

LOAD = "What helps: fewer or shorter requests at once (max_num_seqs, a limit on prompts), or another replica"
ENDS = "it ends by itself when load falls."


class KvPressure:
    """Default profile: use with harm; growth that no live request explains; a pool that running requests fill within a
    minute. Textbook profile: use, growth, latency and queue alone, see :mod:`agent.verdicts.raw_pressure`.
    """

    kind = "kv_pressure"
    confirm_seconds = 30.0
    clear_seconds = 30.0

    def judge(self, facts: Facts) -> Finding | None:
        """Return the worst of what is short; None when nothing is, or it can't be known."""
        if facts.signals is None:
            return None
        rules = raw_pressure.RULES if facts.policy.profile == "textbook" else RULES
        found = [finding for rule in rules if (finding := rule(facts)) is not None]
        if not found:
            return None
        worst = max(found, key=lambda each: TIERS.index(each.tier))
        evidence: dict[str, float] = {}
        for each in reversed(found):
            evidence |= each.evidence
        # Of those that are as bad the one that needs least time decides.
        times = [each.confirm_seconds for each in found if each.tier == worst.tier]
        seconds = min(self.confirm_seconds if each is None else each for each in times)
        return Finding(worst.sentence, remedy(facts), evidence | worst.evidence, worst.tier, seconds)


def _use_with_harm(facts: Facts) -> Finding | None:
    signals, policy, harm = facts.signals, facts.policy.use, harm_of(facts)
    if signals is None or signals.use_ratio is None or harm is None or not harm.felt:
        return None
    factor, use = fp8_factor(facts), signals.use_ratio
    # A large request at the head of the queue waits for room that small ones never leave: much is free meanwhile.
    least = facts.policy.growth.forecast_held_ratio if harm.severe else policy.warn_ratio
    if use < least * factor:
        return None
    for_long = factor < 1 or signals.above_page_seconds >= policy.page_seconds
    full = use >= policy.page_ratio * factor and for_long and harm.severe
    page = full or (signals.queue_above_page_seconds >= policy.page_seconds and waits_for_memory(facts))
    return Finding(
        f"The KV pool is short: {use:.0%} of it is held and requests feel it: {harm.words}.",
        "",
        {"use_ratio": use} | harm.evidence,
        "page" if page else "warn",
        policy.harm_seconds,
    )


def _unexplained(facts: Facts) -> Finding | None:
    signals, policy = facts.signals, facts.policy.growth
    if signals is None or not signals.settled or signals.unexplained is None:
        return None
    growth = signals.unexplained
    if growth.low <= 0 or growth.per_minute <= policy.warn_per_minute:
        return None
    evidence = {"unexplained_growth_ratio_per_minute": growth.per_minute}
    sentence = f"Held blocks grow by {growth.per_minute:.1%} of the pool a minute that no live request accounts for"
    fast = growth.per_minute > policy.page_per_minute and signals.unexplained_above_page_seconds >= policy.page_seconds
    ahead = signals.exhaustion
    short = (
        ahead is not None
        and ahead.seconds < policy.forecast_seconds
        and (signals.use_ratio or 0.0) > policy.forecast_held_ratio * fp8_factor(facts)
    )
    doubles = signals.doubling_seconds is not None and signals.doubling_seconds < policy.doubling_seconds
    if ahead is not None:
        evidence["exhaustion_seconds"] = ahead.seconds
        sentence += f"; the pool is full in about {human_seconds(ahead.seconds)}"
    elif doubles:
        sentence += ", and faster and faster"
    page = fast or short
    return Finding(f"{sentence}.", "", evidence, "page" if page else "warn", 10.0 if page else 60.0)


def _filling(facts: Facts) -> Finding | None:
    """A pool that running requests fill by what they generate: unlike an admission, that can't be held back."""
    signals, reading = facts.signals, facts.reading
    if signals is None or reading is None or not signals.settled or signals.exhaustion is None:
        return None
    growth, ahead, use = signals.growth, signals.exhaustion, signals.use_ratio
    if growth is None or use is None or use < NEARLY_FULL * fp8_factor(facts) or ahead.seconds > SOON_SECONDS:
        return None
    if not reading.capacity or signals.blocks_per_running is None or signals.running_more is None:
        return None
    admitted = signals.running_more * signals.blocks_per_running / reading.capacity
    if admitted >= ADMITTED_SHARE * growth.per_minute * growth.seconds / 60:
        return None
    return Finding(
        f"The KV pool is full in about {human_seconds(ahead.seconds)}: {use:.0%} of it is held, and what "
        "runs goes on growing. Then running requests are thrown out and begin again.",
        "",
        {"use_ratio": use, "exhaustion_seconds": ahead.seconds, "growth_ratio_per_minute": growth.per_minute},
        "warn",
        10.0,
    )


def _slow_taking(facts: Facts) -> Finding | None:
    signals, policy = facts.signals, facts.policy.allocator
    taking = signals.take_p99_seconds if signals else None
    if taking is None or taking < policy.latency_warn_seconds:
        return None
    sentence = f"To take blocks from the pool takes {brief(taking)} (p99), which should be well under 1 ms."
    return Finding(sentence, "", {"take_p99_seconds": taking}, "warn", 60.0)


def _queue_on_a_page(facts: Facts) -> Finding | None:
    """A page does not say what is waited for. A long queue before a pool that is nearly full needs no minute more."""
    signals, reading = facts.signals, facts.reading
    if signals is None or reading is None or reading.hooked or signals.use_ratio is None or signals.queue is None:
        return None
    use, queue = signals.use_ratio, signals.queue
    if use < facts.policy.use.warn_ratio * fp8_factor(facts) or queue <= facts.policy.serving.queue_warn:
        return None
    sentence = f"{use:.0%} of the KV pool is held, and {count_of(queue, 'request')} wait."
    return Finding(sentence, "", {"use_ratio": use, "waiting_requests": queue}, "warn", QUEUE_SECONDS)


RULES: tuple[Callable[[Facts], Finding | None], ...] = (
    _use_with_harm,
    _unexplained,
    _filling,
    _queue_on_a_page,
    _slow_taking,
)


def remedy(facts: Facts) -> str:
    """Return what gives blocks back on this engine, and what does not."""
    pool = facts.pool
    if pool is None or not pool.capacity:
        return f"{LOAD}; {ENDS} Resetting the prefix cache gains nothing: cached blocks that are idle count as free."
    parts = [first.strip()] if (first := grow_back_first(facts)) else []
    if (pool.orphaned or 0) >= WORTH_NAMING * pool.capacity:
        blocks = there_are(pool.orphaned or 0, "block")
        parts.append(
            f"{blocks} leaked ({(pool.orphaned or 0) / pool.capacity:.0%} of the pool): a restart alone "
            "brings those back."
        )
    kept = (pool.delayed or 0) + (pool.pinned or 0)
    if kept >= WORTH_NAMING * pool.capacity:
        blocks = there_are(kept, "block")
        parts.append(f"{blocks} kept for a connector: see whether its peer answers.")
    parts.append(f"{LOAD}{'.' if parts else f'; {ENDS}'}")
    if pool.cached_idle == 0:
        parts.append("Nothing is left to evict.")
    else:
        parts.append("Evicting cached blocks gains nothing: idle ones count as free.")
    return " ".join(parts)
