"""workload_shift: what is asked of the engine is not what it was: longer contexts, more long ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agent.retained import listed
from agent.signals.types import EngineSignals
from agent.state import Tier
from agent.units import human_seconds
from agent.verdicts.base import Facts, Finding
from agent.verdicts.harm import harm_of

REMEDY = (
    "Nothing is broken: find out who sends it. If it is meant to stay, give it engines of its own or size the pool for "
    "it; the baseline learns it within a day."
)
REMEDY_HARM = "Send the long requests to engines of their own or limit their number; the pool was sized for others."
MANY_LONG = 0.20  # of the requests: a long tail that warns by how much larger it is than usual


class _Shift(NamedTuple):
    """``strong``: by what the policy pages at; ``tells``: not only to be noted, whatever else there is."""

    words: str
    evidence: dict[str, float]
    strong: bool
    tells: bool = True


LEAST_RUNNING = 4  # for a mean of their contexts: one long session at night is no shift


class WorkloadShift:
    """A note for what the policy warns at, a warning for what it pages at or where requests feel it.

    It never gets anybody up by itself: what does harm has verdicts of its own. The textbook profile pages.
    """

    kind = "workload_shift"
    confirm_seconds = 180.0
    clear_seconds = 180.0

    def judge(self, facts: Facts) -> Finding | None:
        """Return the shift; None when the workload is as ever, or not yet known well enough."""
        signals = facts.signals
        if signals is None or not signals.settled:
            return None
        shifts = [*_shifts(signals, facts)]
        if not shifts:
            return None
        strong, harm = any(each.strong for each in shifts), harm_of(facts)
        evidence = {name: value for each in shifts for name, value in each.evidence.items()}
        sentence = f"The workload has changed: {listed(each.words for each in shifts)}."
        times = signals.request_p99_times
        if times is not None and times >= facts.policy.serving.latency_warn_times:
            evidence["request_p99_times"] = times
            slow = signals.request_p99_seconds
            took = "" if slow is None else f" ({human_seconds(slow)})"
            sentence += f" The slowest 1% of requests take {times:.1f} times as long as usual{took}."
        if harm is not None:
            evidence |= harm.evidence
            sentence += f" Requests feel it: {harm.words}."
        tier: Tier = "warn" if strong or (harm is not None and any(each.tells for each in shifts)) else "note"
        if facts.policy.profile == "textbook":
            tier = "page" if strong else "warn"
        return Finding(sentence, REMEDY if harm is None else REMEDY_HARM, evidence, tier)


def _shifts(signals: EngineSignals, facts: Facts) -> Iterator[_Shift]:
    policy = facts.policy.workload
    times, mean = signals.context_times, signals.context_mean_tokens
    if times is not None and times >= policy.context_warn_times and facts.running >= LEAST_RUNNING:
        size = "" if mean is None else f" ({mean:,.0f} tokens)"
        words = f"contexts are {times:.1f} times as long as usual{size}"
        yield _Shift(words, {"context_times": times}, times >= policy.context_page_times)
    times, mean = signals.prompt_times, signals.prompt_mean_tokens
    if times is not None and times >= policy.context_warn_times:
        size = "" if mean is None else f" ({mean:,.0f} tokens)"
        words = f"prompts are {times:.1f} times as long as usual{size}"
        yield _Shift(words, {"prompt_times": times}, times >= policy.context_page_times)
    tail, tail_times = signals.long_tail_ratio, signals.long_tail_times
    if tail is not None and tail_times is not None and tail_times >= policy.long_tail_warn_times:
        usual = tail / tail_times
        # One long request among a few is a large share of them; a share that is small all the same is no tail.
        if tail > policy.long_tail_from_ratio:
            risen = usual <= policy.long_tail_from_ratio and tail >= policy.long_tail_to_ratio
            words = f"{tail:.0%} of requests are longer than {policy.long_tokens:,} tokens, where {usual:.0%} is usual"
            # Three times of little is little, and chance where few prompts come.
            many = facts.policy.profile == "textbook" or tail >= MANY_LONG
            strong = risen or (many and tail_times >= policy.long_tail_page_times)
            yield _Shift(words, {"long_tail_ratio": tail, "long_tail_times": tail_times}, strong)
    repeated = signals.repeated_ratio
    if repeated is not None and repeated > policy.repetition_warn_ratio:
        words = f"{repeated:.0%} of the prompts' text is repeated"
        yield _Shift(words, {"repeated_ratio": repeated}, repeated > policy.repetition_page_ratio)
    spread = signals.prompt_spread_times
    if spread is not None and spread > policy.spread_times:
        words = f"the longest prompts are {spread:.0f} times as long as their mean"
        yield _Shift(words, {"prompt_spread_times": spread}, strong=False, tells=False)
