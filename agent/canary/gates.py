"""The gates of a roll-out. What can't be told does not pass: a pipeline must not go on because nobody looked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from agent.canary.evidence import Evidence
from agent.retained import count_of
from agent.units import human_seconds

Stage = Literal[10, 30, 100]
STAGES: tuple[Stage, ...] = (10, 30, 100)
State = Literal["passed", "failed", "not known"]
# Verdicts that mean that memory does not come back.
LEAKS = frozenset(
    {
        "kv_orphan",
        "kv_over_freed",
        "kv_delayed_free",
        "kv_pinned",
        "spec_residue",
        "sleep_residue",
        "allocator_growth",
        "device_growth",
        "host_growth",
        "dead_process_memory",
    }
)
LEAST_SLOWER = 1.5  # the policy's: P99 latency against the usual one


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a candidate may. ``watched_seconds`` and ``requests``: with less of either side nothing is said."""

    p99_seconds: float = 2.0
    failed_ratio: float = 0.01
    watched_seconds: float = 300.0
    requests: int = 100


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One gate, from ``stage`` on. ``baseline`` and ``candidate``: what it looked at, for people."""

    name: str
    stage: Stage
    state: State
    baseline: str
    candidate: str
    reason: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """``passed``: every gate up to ``stage`` was passed. ``reason``: in one sentence."""

    stage: Stage
    passed: bool
    reason: str
    gates: tuple[Gate, ...]


def judge(baseline: Evidence, candidate: Evidence, stage: Stage, limits: Limits) -> Outcome:
    """Return whether the candidate may go beyond ``stage`` per cent: the gates of that stage and of those before."""
    gates = tuple(gate for gate in _gates(baseline, candidate, limits) if gate.stage <= stage)
    against = [gate for gate in gates if gate.state != "passed"]
    reason = "; ".join(gate.reason for gate in against) or f"all {len(gates)} gates up to {stage} % were passed"
    return Outcome(stage=stage, passed=not against, reason=reason, gates=gates)


def _gates(baseline: Evidence, candidate: Evidence, limits: Limits) -> Iterator[Gate]:
    yield _watched(baseline, candidate, limits)
    yield _memory(baseline, candidate)
    yield _leaks(baseline, candidate)
    yield _pages(baseline, candidate)
    yield _latency(baseline, candidate, limits)
    yield _errors(baseline, candidate, limits)


def _watched(baseline: Evidence, candidate: Evidence, limits: Limits) -> Gate:
    sides, wanted = {"baseline": baseline, "candidate": candidate}, human_seconds(limits.watched_seconds)
    short = [
        f"the {name} was watched for {human_seconds(each.watched_seconds)} only, of {wanted}"
        for name, each in sides.items()
        if each.watched_seconds < limits.watched_seconds
    ]
    if candidate.ended is not None and candidate.ended < limits.requests:
        short.append(f"the candidate has served {count_of(candidate.ended, 'request')} only, of {limits.requests:,}")
    told = [f"{human_seconds(each.watched_seconds)}, {count_of(each.engines, 'engine')}" for each in sides.values()]
    return Gate(
        name="watched for long enough",
        stage=10,
        state="not known" if short else "passed",
        baseline=told[0],
        candidate=told[1],
        reason=", and ".join(short),
    )


def _memory(baseline: Evidence, candidate: Evidence) -> Gate:
    failed = candidate.out_of_memory > 0
    return Gate(
        name="no failure for want of memory",
        stage=10,
        state="failed" if failed else "passed",
        baseline=str(baseline.out_of_memory),
        candidate=str(candidate.out_of_memory),
        reason=f"the candidate ran out of memory ({candidate.out_of_memory})" if failed else "",
    )


def _leaks(baseline: Evidence, candidate: Evidence) -> Gate:
    found = _kinds(candidate, leaks=True)
    return Gate(
        name="no leak",
        stage=10,
        state="failed" if found else "passed",
        baseline=", ".join(_kinds(baseline, leaks=True)) or "none",
        candidate=", ".join(found) or "none",
        reason=f"the candidate leaks: {', '.join(found)}" if found else "",
    )


def _pages(baseline: Evidence, candidate: Evidence) -> Gate:
    """Of the other verdicts, those that page and that the baseline does not have, too."""
    usual, found = _kinds(baseline, leaks=False), _kinds(candidate, leaks=False)
    new = [kind for kind in found if kind not in usual]
    return Gate(
        name="no page that the baseline has not",
        stage=10,
        state="failed" if new else "passed",
        baseline=", ".join(usual) or "none",
        candidate=", ".join(found) or "none",
        reason=f"the candidate pages and the baseline does not: {', '.join(new)}" if new else "",
    )


def _kinds(side: Evidence, *, leaks: bool) -> list[str]:
    found = (each.kind for each in side.episodes if (each.kind in LEAKS) == leaks and (leaks or each.tier == "page"))
    return sorted(set(found))


def _latency(baseline: Evidence, candidate: Evidence, limits: Limits) -> Gate:
    """Where the baseline itself is slower than the limit, the limit is half as long again as the baseline."""
    usual, found = baseline.p99_seconds, candidate.p99_seconds
    limit = limits.p99_seconds
    told = f"{human_seconds(limit)} allowed"
    if usual is not None and usual > limit:
        limit = LEAST_SLOWER * usual
        told = f"{human_seconds(limit)} allowed, {LEAST_SLOWER:g} times the baseline's"
    state: State = "not known" if found is None else "failed" if found > limit else "passed"
    reasons = {
        "not known": "the candidate's P99 is not known: it has no hooks, or served nothing",
        "failed": f"the candidate's P99 is {human_seconds(found or 0.0)}, {told}",
        "passed": "",
    }
    return Gate(
        name=f"P99 of requests, {told}",
        stage=30,
        state=state,
        baseline=_seconds(usual),
        candidate=_seconds(found),
        reason=reasons[state],
    )


def _errors(baseline: Evidence, candidate: Evidence, limits: Limits) -> Gate:
    found, allowed = candidate.failed_ratio, f"{limits.failed_ratio:.1%} allowed"
    state: State = "not known" if found is None else "failed" if found > limits.failed_ratio else "passed"
    reasons = {
        "not known": "the candidate's share of errors is not known: no engine tells, or no request ended",
        "failed": f"{found or 0.0:.1%} of the candidate's requests ended by an error, {allowed}",
        "passed": "",
    }
    return Gate(
        name=f"errors, {allowed}",
        stage=100,
        state=state,
        baseline=_ratio(baseline.failed_ratio),
        candidate=_ratio(found),
        reason=reasons[state],
    )


def _seconds(value: float | None) -> str:
    return "not known" if value is None else human_seconds(value)


def _ratio(value: float | None) -> str:
    return "not known" if value is None else f"{value:.2%}"
