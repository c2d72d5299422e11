"""Which value of a setting is better, and whether that is more than chance: runs with other seeds tell how much is."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec

from agent.advise.grid import Trial
from agent.advise.measure import Measured

# In the order in which they decide: what people feel first.
MEASURES = ("p99_seconds", "preempted_ratio", "rebuild_ratio", "waste_ratio")
LEAST_BETTER = 0.05  # of the usual value: what is better by less is not worth a change


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The mean over the seeds, and the least and the most of them; None where none could tell."""

    mean: float
    low: float
    high: float


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a setting with what its runs have shown, by measure."""

    setting: str
    value: str
    usual: bool
    blocks: int
    block_size: int
    runs: int
    estimates: dict[str, Estimate | None]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """For one setting. ``value``: what to take; the usual one where nothing is surely better. ``sure``: no run with the
    usual value was as good as any with this one. ``reason``: in words.
    """

    setting: str
    value: str
    usual: str
    sure: bool
    reason: str


def tried(trial: Trial, runs: Sequence[Measured]) -> Tried:
    """Return what the runs of one trial show."""
    names = (*MEASURES, "use_ratio")
    return Tried(
        setting=trial.setting,
        value=trial.value,
        usual=trial.usual,
        blocks=trial.engine.blocks,
        block_size=trial.engine.block_size,
        runs=len(runs),
        estimates={name: _estimate(getattr(run, name) for run in runs) for name in names},
    )


def advise(results: Sequence[Tried]) -> Advice | None:
    """Return the advice for the values of one setting; None where what is in use is not among them."""
    usual = next((each for each in results if each.usual), None)
    if usual is None:
        return None
    for name in MEASURES:
        best, sure = _best(results, usual, name)
        if best is not None:
            words = f"{LABELS[name]} {_said(best, name)} instead of {_said(usual, name)}"
            return Advice(setting=usual.setting, value=best.value, usual=usual.value, sure=sure, reason=words)
    return Advice(
        setting=usual.setting,
        value=usual.value,
        usual=usual.value,
        sure=True,
        reason="no other value was better by more than chance",
    )


LABELS = {
    "p99_seconds": "P99 (proxy)",
    "preempted_ratio": "preemptions a request",
    "rebuild_ratio": "rebuild",
    "waste_ratio": "tail waste",
    "use_ratio": "use",
}


def _best(results: Sequence[Tried], usual: Tried, name: str) -> tuple[Tried | None, bool]:
    """Return the value that is better than the usual one in ``name`` by enough, and whether no run says otherwise.

    One that is worse in a measure that decides before ``name`` is no candidate.
    """
    base = usual.estimates[name]
    if base is None or base.mean <= 0:
        return None, False
    before = MEASURES[: MEASURES.index(name)]
    fit = [each for each in results if not each.usual and not any(_worse(each, usual, other) for other in before)]
    known = [(estimate.mean, each) for each in fit if (estimate := each.estimates[name]) is not None]
    if not known:
        return None, False
    mean, best = min(known, key=lambda each: each[0])
    if mean > base.mean * (1 - LEAST_BETTER):
        return None, False
    found = best.estimates[name]
    return best, found is not None and found.high < base.low


def _worse(one: Tried, other: Tried, name: str) -> bool:
    mine, theirs = one.estimates[name], other.estimates[name]
    return mine is not None and theirs is not None and mine.mean > theirs.mean * (1 + LEAST_BETTER)


def _estimate(values: Iterable[float | None]) -> Estimate | None:
    known = [value for value in values if value is not None]
    return Estimate(mean=statistics.fmean(known), low=min(known), high=max(known)) if known else None


def _said(result: Tried, name: str) -> str:
    estimate = result.estimates[name]
    return "-" if estimate is None else shown(name, estimate)


def shown(name: str, estimate: Estimate) -> str:
    """Return an estimate for people: its mean, and how far the runs were apart."""
    if name == "p99_seconds":
        return f"{estimate.mean:.1f} s ({estimate.low:.1f}..{estimate.high:.1f})"
    return f"{estimate.mean:.1%} ({estimate.low:.1%}..{estimate.high:.1%})"
