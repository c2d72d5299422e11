"""One engine's signals, folded from its readings: with hooks, or from its own page."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from agent.estimators import Slope, Span, exhaustion
from agent.policy.types import Policy
from agent.retained import leaks_of
from agent.signals import equal
from agent.signals.baseline import Learning, Usual
from agent.signals.durations import Above, over
from agent.signals.equal import Equal
from agent.signals.fast import Exact, Fast
from agent.signals.harm import Harm
from agent.signals.held_bytes import HeldBytes
from agent.signals.kept import KeptTrack, Restored
from agent.signals.series import Pace
from agent.signals.serving import Serving
from agent.signals.slow import SlowTrack
from agent.signals.still import Still
from agent.signals.sustained import Sustained
from agent.signals.types import EngineSignals, Forecast, Rate, Reading
from engine_hooks.detail import Detail

MOST_FORECAST_SECONDS = 1800.0
CONNECTOR_FAILURE = "connector_failure"
NO_BASELINE = "not learned yet"
NOT_SETTLED = "it has just started, or its pool has just changed"
UNEXPLAINED_GOES_ON = "if what no request accounts for goes on growing as it does"
GROWTH_GOES_ON = "if held blocks go on growing as in the last minutes and no request ends"
FULL = "the pool is full"
NOT_SURE = "it does not surely grow"
NOT_SOON = "not within half an hour as it grows now"
NO_POOL = "the size of its pool is not known"
NO_AUDIT = "orphaned blocks can't be counted on this engine"
NO_LENGTHS = "too few requests came in five minutes, or nobody tells how long they were"
NO_REPEATS = "no API server's admission looks at its prompts"
NO_CONTEXT = "a page does not tell what requests hold from what nobody holds any more"
NO_RUNNING = "its page does not say how many requests run"
LEAST_P99_SECONDS = 0.05
LEAST_CONTEXT = 64.0
LEAST_HITS = 0.02
LEAST_TAIL = 0.02


class EngineTracker:
    """Keeps what one engine's signals need of its past. All of it begins anew when the engine restarts, the slopes
    when its pool changes size, and durations after a gap. ``restored``: what an agent before this one had.
    """

    def __init__(
        self, name: str, hooked: bool, policy: Policy, known: dict[str, Usual], restored: Restored | None = None
    ) -> None:
        self._policy = policy
        self._restored = restored
        self._names = [f"kv/{name}/{'hooks' if hooked else 'page'}/{which}" for which in ("held", "exact")]
        self._pace, self._held_pace = Pace(), Pace()
        self._offset = zlib.crc32(name.encode()) % 60
        self.learning = Learning(known)
        self._instance: str | None = None
        self._begun = self._age = 0.0
        self._capacity: int | None = None
        self._capacity_changed: float | None = None
        self._fast, self._exact, self._equal = Fast(), Exact(), Equal()
        self._slow = SlowTrack(offset=self._offset)
        self._slow_exact = SlowTrack(settle_seconds=1800.0, least_ratio=0.002, exact=True, offset=self._offset + 1)
        self._serving, self._harm, self._still = Serving(policy.workload.long_tokens), Harm(), Still()
        self._held_bytes, self._sustained = HeldBytes(), Sustained()
        self._above_warn, self._above_page = Above(), Above()
        self._queue_warn, self._queue_page = Above(), Above()
        self._growing, self._unexplained, self._idle = Above(), Above(), Above()
        self._durations = (
            self._above_warn,
            self._above_page,
            self._queue_warn,
            self._queue_page,
            self._growing,
            self._unexplained,
            self._idle,
        )

    @property
    def last(self) -> float | None:
        """When it was last heard of, monotonic."""
        return self._pace.last

    def adopt(self, policy: Policy) -> None:
        """Go by another policy from now on. How many long prompts are usual says nothing of those of another length."""
        if policy.workload.long_tokens != self._policy.workload.long_tokens:
            self._serving.long_tokens = policy.workload.long_tokens
            self.learning.known.pop("long_tail", None)
        self._policy = policy

    def take(self, now: float, at: float, reading: Reading, detail: Detail | None) -> EngineSignals:
        """Return the signals with this reading at ``now`` (monotonic; ``at`` is the wall clock)."""
        step = self._pace.take(now)
        if reading.instance != self._instance:
            self._restarted(now, at, reading)
        elif step == "gap":
            self._gap()
        self._resized(now, reading)
        age = self._age + now - self._begun
        changed = None if self._capacity_changed is None else now - self._capacity_changed
        settled = min(age, age if changed is None else changed) >= self._policy.growth.grace_seconds
        self._follow(now, reading)
        values = dict(self._serving.take(now, reading, detail))
        missing: dict[str, str] = {}
        values |= self._growth(now, reading, missing)
        values |= self._levels(now, reading)
        values |= _units(reading, detail)
        harm = self._harm.take(now, reading, detail)
        values["harm"] = harm
        values["repeated_ratio"] = reading.repeated_ratio
        self._held_bytes.add(now, reading.held, reading.block_bytes)
        values["kv_p90_bytes"], values["kv_p99_bytes"] = self._held_bytes.p90, self._held_bytes.p99
        values["still_seconds"] = self._still.take(now, reading, detail)
        values["exhaustion"], values["no_forecast"] = self._forecast(reading, settled, values["unexplained"])
        values |= self._against_usual(now, values, settled and not harm, missing)
        return EngineSignals(
            engine=reading.engine,
            instance=reading.instance,
            hooked=reading.hooked,
            age_seconds=age,
            settled=settled,
            capacity_changed_seconds=changed,
            missing=missing,
            **values,
        )

    def kept(self) -> Iterator[tuple[str, KeptTrack]]:
        """Yield what is to be kept over a restart of the agent, by name."""
        if self._instance is not None:
            for name, track in zip(self._names, (self._slow, self._slow_exact), strict=True):
                yield name, track.kept((self._instance, self._capacity), self._begun)

    # -- what breaks a series ------------------------------------------------------------------------------

    def _restarted(self, now: float, at: float, reading: Reading) -> None:
        first = self._instance is None
        self._instance, self._begun = reading.instance, now
        started = reading.started_at
        # An engine that we see for the first time may have run for long; one that restarted under our eyes has not.
        self._age = max(0.0, at - started) if first and started is not None else 0.0
        self._capacity, self._capacity_changed = reading.capacity, None
        self._gap()
        for name, track in zip(self._names, (self._slow, self._slow_exact), strict=True):
            track.clear()
            kept = self._restored.take(name, (self._instance, self._capacity)) if first and self._restored else None
            if kept is not None:
                track.restore(kept, now)

    def _gap(self) -> None:
        for series in (self._fast, self._exact, self._equal, self._serving, self._harm, self._still, *self._durations):
            series.clear()
        self._held_bytes.clear()
        self._sustained.clear()

    def _resized(self, now: float, reading: Reading) -> None:
        if reading.capacity is None or reading.capacity == self._capacity:
            return
        if self._capacity is not None:
            self._capacity_changed = now
            for series in (self._fast, self._exact, self._equal, self._slow, self._slow_exact, self._sustained):
                series.clear()
        self._capacity = reading.capacity

    # -- growth --------------------------------------------------------------------------------------------

    def _follow(self, now: float, reading: Reading) -> None:
        held, whole = _held_of(reading)
        if held is None or whole is None:
            return
        if self._held_pace.take(now) == "gap":  # it has told other things meanwhile, and not this
            for series in (self._fast, self._exact, self._equal):
                series.clear()
        running = None if reading.running is None else float(reading.running)
        self._fast.add(now, held, whole, self._pace.period)
        self._slow.add(now, held, whole, running)
        if reading.unaccounted is not None:
            self._exact.add(now, reading.unaccounted, whole)
            self._slow_exact.add(now, reading.unaccounted, whole)
        elif running is not None and not reading.hooked:
            self._equal.add(now, held, running, whole, self._renewal(reading, held, whole))

    def _renewal(self, reading: Reading, held: float, whole: float) -> float | None:
        """Return the seconds in which requests fill the held blocks anew; None where that can't be told."""
        if reading.block_tokens is None or reading.capacity is None:
            return None
        values = self._serving.tokens_per_second
        if values is None:
            return None
        # What holds blocks and makes no token at all is not waited for.
        return held / whole * reading.capacity * reading.block_tokens / values if values > 0 else 0.0

    def _growth(self, now: float, reading: Reading, missing: dict[str, str]) -> dict[str, Any]:
        fast, policy = self._fast, self._policy.growth
        held, whole = _held_of(reading)
        if held is None or whole is None:
            # What it was before is not what it is: nothing is said of it until there is a value again.
            self._growing.clear()
            self._unexplained.clear()
            missing["growth"] = NO_POOL
            missing["unexplained"] = NO_RUNNING if not reading.hooked and reading.running is None else NO_POOL
            return {"growth": None, "unexplained": None}
        if fast.rate is None:
            missing["growth"] = fast.reason
        unexplained, slow_unexplained = self._exact.rate, self._slow_exact.slow
        if reading.unaccounted is None:
            unexplained, slow_unexplained = self._equal.rate, self._slow.at_equal
            if reading.hooked:
                missing["unexplained"] = NO_AUDIT
            elif reading.running is None:
                missing["unexplained"] = NO_RUNNING
            elif unexplained is None:
                missing["unexplained"] = self._equal.reason
        elif unexplained is None:
            missing["unexplained"] = equal.TOO_SHORT
        saw = fast.saw
        return {
            "growth": fast.rate,
            "unexplained": unexplained,
            "acceleration": fast.acceleration,
            "doubling_seconds": fast.doubling_seconds,
            "growth_above_page_seconds": self._growing.take(now, _fast_enough(fast.rate, policy.page_per_minute)),
            "unexplained_above_page_seconds": self._unexplained.take(
                now, _fast_enough(unexplained, policy.page_per_minute)
            ),
            "slow": self._slow.slow,
            "slow_unexplained": slow_unexplained,
            "floor_ratio": saw.floor / whole if saw else None,
            "amplitude_ratio": saw.amplitude / whole if saw else None,
            "period_seconds": saw.period_seconds if saw else None,
            "in_teeth": fast.in_teeth,
        }

    def _forecast(self, reading: Reading, settled: bool, unexplained: Rate | None) -> tuple[Forecast | None, str]:
        """Return when the pool is full if that goes on, or why nobody can say."""
        held, whole = _held_of(reading)
        if held is None or not whole:
            return None, NO_POOL
        if not settled:
            return None, NOT_SETTLED
        fast = self._fast
        # Teeth ride on what stays: the highest of them runs into the end first.
        crest = max(held, fast.crest or held)
        choices = [(unexplained, crest, UNEXPLAINED_GOES_ON)]
        if not fast.in_teeth or (fast.rate is not None and fast.rate.low > 0):
            choices.append((fast.rate, crest if fast.in_teeth else held, GROWTH_GOES_ON))
        forecasts = [
            Forecast(seconds=span.value, low=span.low, high=span.high, condition=condition)
            for rate, level, condition in choices
            if (span := _full(rate, level / whole)) is not None and span.value <= MOST_FORECAST_SECONDS
        ]
        if forecasts:
            return min(forecasts, key=lambda each: each.seconds), ""
        return None, self._no_forecast(held >= whole)

    def _no_forecast(self, full: bool) -> str:
        rate = self._fast.rate
        if full:
            return FULL
        if rate is None:
            return self._fast.reason
        return NOT_SURE if rate.low <= 0 else NOT_SOON

    # -- levels --------------------------------------------------------------------------------------------

    def _levels(self, now: float, reading: Reading) -> dict[str, Any]:
        use, serving, ratio = self._policy.use, self._policy.serving, reading.use_ratio
        queue = reading.waiting
        idle = None if reading.running is None or queue is None else reading.running == 0 and queue == 0
        idle_seconds = self._idle.take(now, idle)
        return {
            "use_ratio": ratio,
            "use_mean_ratio": self._sustained.take(now, ratio),
            "above_warn_seconds": self._above_warn.take(now, over(ratio, use.warn_ratio)),
            "above_page_seconds": self._above_page.take(now, over(ratio, use.page_ratio)),
            "queue": queue,
            "queue_above_warn_seconds": self._queue_warn.take(now, over(queue, serving.queue_warn)),
            "queue_above_page_seconds": self._queue_page.take(now, over(queue, serving.queue_page)),
            "idle_floor_ratio": ratio if idle else None,
            "idle_floor_seconds": idle_seconds,
        }

    # -- what is usual -------------------------------------------------------------------------------------

    def _against_usual(
        self, now: float, values: dict[str, Any], calm: bool, missing: dict[str, str]
    ) -> dict[str, float | None]:
        learning = self.learning
        p99, context = values.get("request_p99_seconds"), values.get("context_mean_tokens")
        hits, tail = values.get("prefix_hit_ratio"), values.get("long_tail_ratio")
        prompt = values.get("prompt_mean_tokens")
        times = {
            "request_p99_times": learning.times("request_p99", p99, LEAST_P99_SECONDS),
            "context_times": learning.times("context", context, LEAST_CONTEXT),
            "prefix_hit_times": learning.times("prefix_hit", hits, LEAST_HITS),
            "long_tail_times": learning.times("long_tail", tail, LEAST_TAIL),
            "prompt_times": learning.times("prompt", prompt, LEAST_CONTEXT),
        }
        if tail is None:
            missing["long_tail_ratio"] = NO_LENGTHS
        if values["repeated_ratio"] is None:
            missing["repeated_ratio"] = NO_REPEATS
        known = {"request_p99": p99, "context": context, "prefix_hit": hits, "long_tail": tail, "prompt": prompt}
        for name, value in known.items():
            if value is not None and learning.usual(name) is None:
                missing[f"{name}_times"] = NO_BASELINE
        if learning.due(now) and calm:
            learning.learn("request_p99", p99)
            learning.learn("context", context)
            learning.learn("prefix_hit", hits)
            # What is almost never there goes up and down by times itself.
            learning.learn("long_tail", None if tail is None else max(tail, LEAST_TAIL))
            learning.learn("prompt", prompt)
        return times


def _held_of(reading: Reading) -> tuple[float | None, float | None]:
    """Return what is held and of how much: blocks, or the share where a page does not tell the pool's size."""
    if reading.held is not None and reading.capacity:
        return float(reading.held), float(reading.capacity)
    if reading.use_ratio is not None:
        return reading.use_ratio, 1.0
    return None, None


def _full(rate: Rate | None, use: float) -> Span | None:
    if rate is None or rate.low <= 0:
        return None
    return exhaustion(use, 1.0, Slope(rate.per_minute / 60, rate.low / 60, rate.high / 60))


def _fast_enough(rate: Rate | None, limit: float) -> bool | None:
    return None if rate is None else rate.per_minute > limit and rate.low > 0


def _units(reading: Reading, detail: Detail | None) -> dict[str, Any]:
    """Return what comes on each request and on each slot, now."""
    running, tokens = reading.running, reading.block_tokens
    used = reading.explained if reading.explained is not None else reading.held
    values: dict[str, Any] = {"blocks_per_running": used / running if running and used is not None else None}
    work = detail.work if detail else None
    if work is not None and work.tail_slots is not None and tokens and used:
        values["tail_waste_ratio"] = min(1.0, work.tail_slots / (used * tokens))
    if reading.references is not None and running and tokens:
        slots = reading.references * tokens - (work.tail_slots or 0 if work else 0)
        values["context_mean_tokens"] = max(0.0, slots / running)
    values["residue_bytes"] = _residue(reading, detail)
    return values


def _residue(reading: Reading, detail: Detail | None) -> int | None:
    """Return the bytes that interrupted drafts and failed transfers left behind, as far as they are orphaned still."""
    if detail is None or reading.block_bytes is None:
        return None
    drafts = detail.speculation.residue_blocks_total if detail.speculation else None
    transfers = (
        None
        if detail.leaks is None
        else sum(row.blocks for row in leaks_of(detail, "orphaned") if row.ending == CONNECTOR_FAILURE)
    )
    if drafts is None and transfers is None:
        return None
    blocks = (drafts or 0) + (transfers or 0)
    return reading.block_bytes * (blocks if reading.orphaned is None else min(blocks, reading.orphaned))
