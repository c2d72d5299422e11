"""What an engine does with its requests, by counters and histograms: rates, shares, quantiles of the last minutes."""

from __future__ import annotations

from typing import Any, NamedTuple

from agent.signals.counters import MINUTE, MINUTES, Kept, came, per_minute, ratio
from agent.signals.quantiles import between, quantile, share_above
from agent.signals.types import Reading
from engine_hooks.detail import Detail, Histogram

EVERY_SECONDS = 5.0
LEAST_TOKENS = 500  # of prefill, for a share of it
LEAST_ENDED = 20  # requests, for a share of them
LEAST_FOR_P99 = 100
LEAST_ROUNDS = 50
LEAST_PROMPTS = 20  # for their mean length
LEAST_FOR_TAIL = 100  # for the share of long ones: a tenth of 20 is chance
LEAST_SECONDS = 10.0  # for a rate

Values = dict[str, Any]


class _Moment(NamedTuple):
    reading: Reading
    rebuild_seconds: float | None
    rounds: int | None
    interruptions: int | None
    block_seconds: Histogram | None
    wait_seconds: Histogram | None
    request_seconds: Histogram | None
    prompt_tokens: Histogram | None


def _moment(reading: Reading, detail: Detail | None) -> _Moment:
    allocation = detail.allocation if detail else None
    work = detail.work if detail else None
    drafts = detail.speculation if detail else None
    return _Moment(
        reading=reading,
        rebuild_seconds=work.rebuild_seconds_total if work else None,
        rounds=drafts.rounds_total if drafts else None,
        interruptions=drafts.interruptions_total if drafts else None,
        block_seconds=allocation.block_seconds if allocation else None,
        wait_seconds=allocation.wait_seconds if allocation else None,
        request_seconds=work.request_seconds if work else None,
        prompt_tokens=work.prompt_tokens if work else None,
    )


class Serving:
    """Compares the moment with those of one and of five minutes ago. New values each five seconds. ``long_tokens``: a
    longer prompt is of the long tail.
    """

    def __init__(self, long_tokens: int) -> None:
        self.long_tokens = long_tokens
        self._minute: Kept[_Moment] = Kept(EVERY_SECONDS, MINUTE)
        self._minutes: Kept[_Moment] = Kept(30.0, MINUTES)
        self._values: Values = {}
        self._tokens: float | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens that were prompted and generated over the last minute; None where that is not known."""
        return self._tokens

    def clear(self) -> None:
        """Forget all: counters have begun anew, or nobody knows what was meanwhile."""
        self._minute.clear()
        self._minutes.clear()
        self._values = {}
        self._tokens = None

    def take(self, now: float, reading: Reading, detail: Detail | None) -> Values:
        """Return the values by the names that signals have for them."""
        if self._minute.due(now):
            moment = _moment(reading, detail)
            self._minute.add(now, moment)
            self._minutes.add(now, moment)
            self._values = self._compared(now, moment)
        return self._values

    def _compared(self, now: float, moment: _Moment) -> Values:
        minute, minutes = self._minute.ago(now, MINUTE), self._minutes.ago(now, MINUTES)
        if minute is None or minute[0] < LEAST_SECONDS:
            return {}
        values = self._of_a_minute(moment, *minute)
        if minutes is not None:
            values |= self._of_minutes(moment, *minutes)
        return values

    def _of_a_minute(self, moment: _Moment, seconds: float, before: _Moment) -> Values:
        now, then = moment.reading, before.reading
        generated = came(now.generated_total, then.generated_total)
        tokens = None if generated is None else generated / seconds
        running = _mean(now.running, then.running)
        waits = between(moment.wait_seconds, before.wait_seconds)
        takes = between(moment.block_seconds, before.block_seconds)
        prompted = came(now.prompt_total, then.prompt_total)
        self._tokens = None if generated is None else (generated + (prompted or 0.0)) / seconds
        prefill = came(now.prefill_total, then.prefill_total)
        cost = came(moment.rebuild_seconds, before.rebuild_seconds)
        return {
            "preempted_per_minute": per_minute(came(now.preempted_total, then.preempted_total), seconds),
            "refused_per_minute": per_minute(came(now.refused_total, then.refused_total), seconds),
            "taken_per_minute": per_minute(came(now.taken_total, then.taken_total), seconds),
            "given_back_per_minute": per_minute(came(now.given_back_total, then.given_back_total), seconds),
            "tokens_per_second": tokens,
            "tokens_per_running": None if tokens is None or not running else tokens / running,
            "rebuild_cost_ratio": ratio(cost, seconds),
            "rebuild_ratio": ratio(came(now.rebuilt_total, then.rebuilt_total), prefill, LEAST_TOKENS),
            "rebuild_evicted_ratio": ratio(
                came(now.rebuilt_evicted_total, then.rebuilt_evicted_total), prefill, LEAST_TOKENS
            ),
            "latency_p99_seconds": quantile(*waits, 0.99) if waits else None,
            "take_p99_seconds": quantile(*takes, 0.99, LEAST_FOR_P99) if takes else None,
        }

    def _of_minutes(self, moment: _Moment, seconds: float, before: _Moment) -> Values:
        now, then = moment.reading, before.reading
        requests = between(moment.request_seconds, before.request_seconds)
        prompts = between(moment.prompt_tokens, before.prompt_tokens)
        interrupted = came(moment.interruptions, before.interruptions)
        rounds = came(moment.rounds, before.rounds)
        prompt = came(now.prompt_total, then.prompt_total)
        values: Values = {
            "running_more": None if now.running is None or then.running is None else now.running - then.running,
            "failed_ratio": ratio(
                came(now.failed_total, then.failed_total), came(now.ended_total, then.ended_total), LEAST_ENDED
            ),
            "request_p99_seconds": quantile(*requests, 0.99, LEAST_FOR_P99) if requests else None,
            "prompt_mean_tokens": _mean_between(moment.prompt_tokens, before.prompt_tokens, LEAST_PROMPTS),
            "prompt_spread_times": _spread(moment.prompt_tokens, before.prompt_tokens, LEAST_FOR_TAIL),
            "long_tail_ratio": share_above(*prompts, self.long_tokens, LEAST_FOR_TAIL) if prompts else None,
            "prefix_hit_ratio": _hits(now, then, prompt),
            "bytes_per_generated_token": _per_token(now, then),
        }
        if interrupted is not None and rounds is not None:
            values["interruption_ratio"] = ratio(interrupted, rounds + interrupted, LEAST_ROUNDS)
        return values


def _mean_between(now: Histogram | None, then: Histogram | None, least: int) -> float | None:
    """Return the mean of what was counted meanwhile; None for fewer than ``least`` counts."""
    counted = between(now, then)
    if now is None or then is None or counted is None or (number := sum(counted[1])) < least:
        return None
    return (now.sum - then.sum) / number


def _spread(now: Histogram | None, then: Histogram | None, least: int) -> float | None:
    """Return the longest of what came meanwhile as times their mean, at least: by the lower end of its bucket."""
    counted, mean = between(now, then), _mean_between(now, then, least)
    if counted is None or not mean:
        return None
    bounds, counts = counted
    highest = max(n for n, count in enumerate(counts) if count)
    return (bounds[highest - 1] if highest else 0.0) / mean


def _mean(now: int | None, then: int | None) -> float | None:
    return None if now is None or then is None else (now + then) / 2


def _hits(now: Reading, then: Reading, prompt: float | None) -> float | None:
    """Return the share of prompt tokens that were in the cache: by the engine's own count, or what was not computed.

    What was computed again after a preemption is no prompt and no miss.
    """
    asked = came(now.prefix_queries, then.prefix_queries)
    if asked is not None:
        return ratio(came(now.prefix_hits, then.prefix_hits), asked, LEAST_TOKENS)
    computed = came(now.prefill_total, then.prefill_total)
    if prompt is None or computed is None or prompt < LEAST_TOKENS:
        return None
    again = came(now.rebuilt_preempted_total, then.rebuilt_preempted_total) or 0.0
    return ratio(max(0.0, prompt - (computed - again)), prompt)


def _per_token(now: Reading, then: Reading) -> float | None:
    """Return by how many bytes held blocks have changed for each token that was generated."""
    generated = came(now.generated_total, then.generated_total)
    if not generated or now.held is None or then.held is None or now.block_bytes is None:
        return None
    return (now.held - then.held) * now.block_bytes / generated
