"""The judge with signals that a test gives by hand, and what it says of one kind, second by second."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from agent.judge import Judge
from agent.policy.types import DEFAULT, Policy
from agent.signals.reading import readings_of
from agent.signals.types import AllocatorSignals, EngineSignals, GpuSignals, HostSignals, NodeSignals, Rate, Slow
from agent.state import AgentState, Verdict

_NOTHING = NodeSignals()


class _Given:
    def __init__(self, signals: Callable[[AgentState], NodeSignals]) -> None:
        self._signals = signals

    def take(self, state: AgentState) -> NodeSignals:
        self.readings = {(each.engine, each.hooked): each for each, _ in readings_of(state)}
        return self._signals(state)


class Told:
    """``kind``: the only one that is looked at; ``signals``: those of each state, or the same for all."""

    def __init__(
        self,
        kind: str,
        signals: NodeSignals | Callable[[AgentState], NodeSignals] = _NOTHING,
        policy: Policy = DEFAULT,
    ) -> None:
        self._kind = kind
        self._judge = Judge(policy, on_error=self._failed)
        given = signals if callable(signals) else lambda _: signals
        self._judge._tracker = _Given(given)  # type: ignore[assignment]

    def _failed(self, name: str, error: Exception) -> None:
        if name == self._kind:
            raise error

    def look(self, state: AgentState) -> tuple[Verdict, ...]:
        """Return the verdicts of the kind at ``state``."""
        return tuple(each for each in self._judge.look(state).verdicts if each.kind == self._kind)

    def phases(self, states: Iterable[AgentState]) -> list[str]:
        """Return the phases that the only verdict goes through, each once."""
        found: list[str] = []
        for state in states:
            verdicts = self.look(state)
            assert len(verdicts) <= 1
            phase = verdicts[0].phase if verdicts else "none"
            if not found or found[-1] != phase:
                found.append(phase)
        return found

    def last(self, states: Iterable[AgentState]) -> Verdict | None:
        """Return the worst verdict at the end, None where there is none."""
        verdicts: tuple[Verdict, ...] = ()
        for state in states:
            verdicts = self.look(state)
        return verdicts[0] if verdicts else None


def told_tiers(verdicts: Iterable[Verdict]) -> list[tuple[str, str]]:
    """The phases and tiers of ``verdicts`` that somebody is told of."""
    return [(each.phase, each.tier) for each in verdicts if each.phase == "confirmed" and each.tier != "note"]


def rate(per_minute: float, **changes: Any) -> Rate:
    """A sure rate over ten minutes."""
    values: dict[str, Any] = {"low": 0.9 * per_minute, "high": 1.1 * per_minute, "seconds": 600.0, "samples": 60}
    return Rate(per_minute=per_minute, **values | changes)


def slow(per_hour: float = 0.01, **changes: Any) -> Slow:
    """A leak of six hours."""
    values: dict[str, Any] = {
        "low": 0.8 * per_hour,
        "high": 1.2 * per_hour,
        "later_per_hour": per_hour,
        "seconds": 21_600.0,
        "retained_ratio": 0.95,
        "leaks": True,
    }
    return Slow(per_hour=per_hour, **values | changes)


def engine_signals(**changes: Any) -> EngineSignals:
    """Engine ``m``, past its start."""
    values: dict[str, Any] = {"engine": "m", "instance": "i", "hooked": True, "age_seconds": 3600.0, "settled": True}
    return EngineSignals(**values | changes)


def allocator_signals(**changes: Any) -> AllocatorSignals:
    """The worker of engine ``m`` on GPU 0: little free, and that in one piece."""
    values: dict[str, Any] = {
        "engine": "m",
        "process": "",
        "role": "worker",
        "rank": 0,
        "pid": 4322,
        "gpu": "0",
        "fragmentation": 0.1,
        "free_bytes": 2**30,
        "largest_free_bytes": 966_367_641,
        "overcommit": 1.05,
        "slack_bytes": 2**30,
        "retries_per_minute": 0.0,
        "ooms_per_hour": 0.0,
    }
    return AllocatorSignals(**values | changes)


def gpu_signals(**changes: Any) -> GpuSignals:
    """GPU 0, 90 % used for an hour, as vLLM leaves it."""
    values: dict[str, Any] = {
        "gpu": "0",
        "use_ratio": 0.9,
        "above_warn_seconds": 3600.0,
        "kv_share_ratio": 0.5,
        "free_bytes": 8 * 2**30,
        "other_bytes": 2**30,
        "foreign_bytes": 0,
        "up_seconds": 3600.0,
    }
    return GpuSignals(**values | changes)


def host_signals(**changes: Any) -> HostSignals:
    """The core of engine ``m``: 8 GiB, at rest."""
    values: dict[str, Any] = {"engine": "m", "role": "core", "rank": 0, "what": "process", "bytes": 8 * 2**30}
    return HostSignals(**values | changes)


def node(**parts: Any) -> NodeSignals:
    """The signals of a node with engine ``m`` past its start; each part is one row or a tuple of them."""
    rows = {name: part if isinstance(part, tuple) else (part,) for name, part in parts.items()}
    return NodeSignals(**{"engines": (engine_signals(),)} | rows)
