"""States over time, and what the judge makes of them: for tests of verdicts that take minutes or days to come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from agent.judge import Judge
from agent.oom.log import Failure
from agent.policy.types import DEFAULT, Policy
from agent.sources.base import SourceState
from agent.sources.device.state import DevicesState, GpuMemory, GpuState
from agent.sources.host.state import CgroupState, HostState, ProcessState
from agent.sources.scrape.state import ScrapedEngine, ScrapedState
from agent.state import AgentState, EngineState, LinkState, MemberState, PoolState, Verdict
from engine_hooks.allocator import AllocatorRow

UNIX = 1_700_000_000.0
MONOTONIC = 10_000.0
GIB = 2**30
MIB = 2**20


def state(t: float, **parts: Any) -> AgentState:
    """The node ``t`` seconds after the beginning, with nothing on it but ``parts``.

    ``pages`` and ``gpus`` are the engines and the GPUs of their sources.
    """
    pages = parts.pop("pages", None)
    gpus = parts.pop("gpus", None)
    link = LinkState(socket="/s", connections=0, accepted=0, frames=0, rejected_frames={}, refused_peers={})
    values: dict[str, Any] = {
        "at": UNIX + t,
        "monotonic": MONOTONIC + t,
        "version": "0",
        "started_at": UNIX - 3600,
        "ready": True,
        "not_ready_reason": "",
        "link": link,
        "engines": (),
    }
    if pages is not None:
        values["scrape"] = ScrapedState(engines=tuple(pages))
    if gpus is not None:
        values["device"] = DevicesState(driver="580", cuda_driver="13.0", gpus=tuple(gpus))
    return AgentState(**values | parts)


def source(name: str, *, up: bool = True, reason: str = "", age: float = 0.5) -> SourceState:
    """The health of one source."""
    return SourceState(source=name, up=up, reason=reason, reads=10, failures=0, read_seconds=0.01, age_seconds=age)


def page(**changes: Any) -> ScrapedEngine:
    """A healthy engine without hooks: 1,000 blocks of 16 tokens, 40 % held by eight requests."""
    values: dict[str, Any] = {
        "engine": "s",
        "url": "http://127.0.0.1:8000",
        "kind": "vllm",
        "found": "config",
        "pid": 4000,
        "model": "m",
        "index": "0",
        "phase": "up",
        "reason": "",
        "page_age_seconds": 0.5,
        "scrapes": 100,
        "failures": 0,
        "scrape_seconds": 0.01,
        "bad_values": {},
        "resets": 0,
        "cannot": {},
        "capacity_blocks": 1000,
        "block_tokens": 16,
        "usage_ratio": 0.4,
        "running": 8,
        "waiting": 0,
        "preemptions": 0,
        "prompt_tokens": 10_000,
        "generation_tokens": 10_000,
        "generation_tokens_per_second": 80.0,
    } | changes
    if values["usage_ratio"] is not None and values["capacity_blocks"] is not None:
        values.setdefault("held_blocks", round(values["usage_ratio"] * values["capacity_blocks"]))
    return ScrapedEngine(**values)


def pool(**changes: Any) -> PoolState:
    """A sound pool of 1,000 blocks of 1 MiB, 400 held."""
    values: dict[str, Any] = {
        "capacity": 1000,
        "held": 400,
        "cached_idle": 100,
        "orphaned": 0,
        "over_freed": 0,
        "exact": True,
        "audits": 5,
        "ledger_drift": 0,
        "block_tokens": 16,
        "block_bytes": MIB,
        "delayed": 0,
        "deferred": 0,
        "pinned": 0,
    } | changes
    values.setdefault("held_min", values["held"])
    values.setdefault("held_max", values["held"])
    values.setdefault("empty", values["capacity"] - values["held"] - (values["cached_idle"] or 0))
    return PoolState(**values)


def engine(**changes: Any) -> EngineState:
    """A live engine with hooks, eight requests running, no detail."""
    values: dict[str, Any] = {
        "engine": "m",
        "engine_id": "e",
        "instance": "i",
        "host": "node",
        "pid": 4321,
        "index": 0,
        "rank": 0,
        "started_at": UNIX - 1800,
        "engine_version": "0.32.0",
        "hooks_version": "0",
        "phase": "live",
        "reason": "",
        "link_up": True,
        "report_age_seconds": 0.1,
        "report_sequence": 1,
        "steps": 1000,
        "running": 8,
        "waiting": 0,
        "pool": pool(),
        "audit_supported": True,
        "audit_reason": "",
        "hooks": None,
    }
    return EngineState(**values | changes)


def member(allocator: AllocatorRow | None = None, **changes: Any) -> MemberState:
    """The worker of engine ``m``."""
    from agent.state import AllocatorState

    values: dict[str, Any] = {
        "role": "worker",
        "rank": 0,
        "pid": 4322,
        "own_pid": 4322,
        "pid_namespace": 1,
        "host": "node",
        "started_at": UNIX - 1800,
        "up": True,
        "link_up": True,
        "heard_age_seconds": 0.1,
        "resident_bytes": 4 * GIB,
        "worker": None,
        "frontend": None,
        "allocator": None
        if allocator is None
        else AllocatorState(row=allocator, walk_age_seconds=1.0 if allocator.walk else None, history=None),
    }
    return MemberState(**values | changes)


def gpu(used: int, total: int = 80 * GIB, **changes: Any) -> GpuState:
    """A GPU with so many bytes in use."""
    reserved = min(GIB // 2, total - used)
    memory = GpuMemory(total=total, used=used, free=total - used - reserved, reserved=reserved)
    values: dict[str, Any] = {"gpu": "0", "uuid": "GPU-0", "name": "NVIDIA A100 80GB", "index": 0, "memory": memory}
    return GpuState(**values | {"xids": ()} | changes)


def process(resident: int, **changes: Any) -> ProcessState:
    """The core of engine ``m`` with so much resident memory, nearly all of it its own."""
    values: dict[str, Any] = {"engine": "m", "role": "core", "rank": 0, "pid": 4321, "started_at": UNIX - 1800}
    return ProcessState(**values | {"resident_bytes": resident, "anonymous_bytes": resident - 100 * MIB} | changes)


def cgroup(working_set: int, limit: int | None, **changes: Any) -> CgroupState:
    """The pod of engine ``m``."""
    values: dict[str, Any] = {
        "engine": "m",
        "role": "core",
        "rank": 0,
        "path": "/pod",
        "current_bytes": working_set,
        "working_set_bytes": working_set,
        "limit_bytes": limit,
        "limit_of": "/pod" if limit else "",
        "limit_current_bytes": working_set if limit else None,
        "events": {"high": 0, "max": 0, "oom": 0, "oom_kill": 0},
    }
    return CgroupState(**values | changes)


def host(**changes: Any) -> HostState:
    """A host of 256 GiB, with nothing on it that concerns us."""
    memory = {"total": 256 * GIB, "available": 200 * GIB, "swap_total": 0, "swap_free": 0}
    values: dict[str, Any] = {"memory": memory, "host_pids": True, "dead": (), "dead_bytes": {}}
    return HostState(**values | changes)


def failed(failure: Failure) -> dict[str, Any]:
    """The part of a state that has ``failure`` in its log."""
    return {"failures": (failure,)}


@dataclass(slots=True)
class Seen:
    """What the judge said over a timeline: every confirmation, with the seconds since the beginning."""

    confirmed: list[tuple[float, Verdict]] = field(default_factory=list)
    last: tuple[Verdict, ...] = ()

    def kinds(self) -> set[str]:
        """The kinds of all confirmed verdicts that somebody is told of."""
        return {verdict.kind for _, verdict in self.confirmed if verdict.tier != "note"}

    def pages(self) -> set[str]:
        """The kinds of those that page."""
        return {verdict.kind for _, verdict in self.confirmed if verdict.tier == "page"}

    def of(self, kind: str) -> Verdict:
        """The last state of the only verdict of ``kind``."""
        now = [verdict for verdict in self.last if verdict.kind == kind]
        if now:
            (verdict,) = now
            return verdict
        return [verdict for _, verdict in self.confirmed if verdict.kind == kind][-1]

    def at(self, kind: str) -> float:
        """When the first verdict of ``kind`` was confirmed."""
        return next(t for t, verdict in self.confirmed if verdict.kind == kind)


def watch(states: Iterable[AgentState], policy: Policy = DEFAULT) -> Seen:
    """Judge the states in turn."""
    judge, seen = Judge(policy), Seen()
    known: set[tuple[Any, ...]] = set()
    for each in states:
        judgement = judge.look(each)
        seen.last = judgement.verdicts
        for verdict in judgement.verdicts:
            # Its beginning by the wall clock is rounded differently at each look.
            key = (verdict.kind, verdict.subject, verdict.tier, round(verdict.since))
            if verdict.phase == "confirmed" and key not in known:
                known.add(key)
                seen.confirmed.append((each.monotonic - MONOTONIC, verdict))
    return seen


def times(seconds: float, period: float = 1.0) -> Iterator[float]:
    """The times of a timeline."""
    for number in range(int(seconds / period) + 1):
        yield number * period
