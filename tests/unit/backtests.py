"""Verdicts, states, labels and a history that tests of the backtest share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from agent.backtest.result import Episode
from agent.bundle.header import Label
from agent.state import AgentState, Verdict
from agent.subject import Subject
from tests.unit.builders import make_detail, make_engine, make_pool, make_state
from tests.unit.details import make_allocation, make_waiting

WALL, MONO = 1_700_000_000.0, 5_000.0
M = Subject(scope="engine", engine="m")


def verdict(phase: str, since: float, changed: float, **changes: Any) -> Verdict:
    values: dict[str, Any] = {
        "kind": "kv_orphan",
        "phase": phase,
        "since": WALL + since,
        "changed": WALL + changed,
        "sentence": "4 blocks are leaked.",
        "remedy": "",
        "evidence": {"orphaned_blocks": 4.0},
        "subject": M,
        "tier": "warn",
    }
    return Verdict(**values | changes)


def state(at: float, **changes: Any) -> AgentState:
    quiet: dict[str, Any] = {"host": None, "scrape": None, "failures": (), "failure_counts": (), "sources": ()}
    return make_state(at=WALL + at, monotonic=MONO + at, **quiet | changes)


def engine(refused: int = 0, preempted: int = 0, stalled: float | None = None, **changes: Any) -> Any:
    detail = replace(
        make_detail(),
        allocation=make_allocation(refused_total=refused, preempted_total=preempted),
        waiting=make_waiting(stalled_seconds=stalled),
    )
    return make_engine(detail=detail, verdicts=(), **changes)


def episode(confirmed: float, **changes: Any) -> Episode:
    values: dict[str, Any] = {
        "kind": "kv_orphan",
        "subject": M,
        "tier": "page",
        "suspected_at": MONO + confirmed - 10,
        "confirmed_at": MONO + confirmed,
        "paged_at": MONO + confirmed,
        "resolved_at": None,
        "ending": "",
        "sentence": "",
        "evidence": {},
    }
    return Episode(**values | changes)


def label(onset: float, ended: float | None = None, subject: Subject = M, kind: str = "kv_orphan") -> Label:
    return Label(kind=kind, subject=subject, onset=MONO + onset, ended=None if ended is None else MONO + ended)


@dataclass
class Given:
    """States and labels from a list."""

    given: list[AgentState]
    truth: tuple[Label, ...] | None = None

    def records(self) -> Iterator[tuple[str, AgentState]]:
        return (("night", each) for each in self.given)

    def labels(self) -> tuple[Label, ...] | None:
        return self.truth

    def remarks(self) -> tuple[str, ...]:
        return ("its end is lacking",)


def leaking() -> list[AgentState]:
    """Half an hour: a leak from 600 s on, memory refused from 1200 s on."""
    nothing: dict[str, Any] = {"device": None, "processes": (), "waterfalls": (), "driver_calls": None}
    states = []
    for at in range(0, 1800, 5):
        leaked = max(0, at - 600)
        pool = make_pool(
            capacity=5000,
            held=500 + leaked,
            orphaned=leaked,
            empty=4500 - leaked,
            cached_idle=0,
            over_freed=0,
            delayed=0,
            deferred=0,
            pinned=0,
        )
        here = engine(max(0, at - 1200), pool=pool, hooks=None, members=(), workers_expected=None)
        detail = replace(here.detail, pools=None, pins=None, delayed=None, leaks=None, speculation=None, tenants=None)
        states.append(state(at, engines=(replace(here, detail=detail, frontends_expected=None),), **nothing))
    return states
