"""What really happened, as the labels of a bundle."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from agent.bundle.header import Label
from agent.subject import Subject
from engine_hooks.simulator import pipe
from engine_hooks.simulator.spec import Spec, Truth

_decoder = msgspec.msgpack.Decoder(Truth)


@dataclass(slots=True)
class _Told:
    onset: float
    truth: Truth
    tenants: set[str]
    blocks: int = 0
    ended: float | None = None


class Truths:
    """Collects the truths of one run. ``planted``: blocks taken, by the place of the fault in the spec."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._faults: dict[int, _Told] = {}
        self._events: list[str] = []

    def take(self, item: pipe.Item) -> None:
        """Take in an item that is a truth."""
        truth = _decoder.decode(item.body)
        if not truth.verdict:
            self._events.append(f"{truth.kind} {truth.what}@{item.at:.3f}")
            return
        told = self._faults.setdefault(truth.number, _Told(item.at, truth, set()))
        told.blocks += truth.blocks
        told.tenants.add(truth.tenant)
        if truth.what == "ended":
            told.ended = item.at

    def labels(self) -> tuple[Label, ...]:
        """Return a label for each fault that has begun. Its subject is a tenant only where the verdict is about one."""
        labels = []
        engine = self._spec.engine.name
        for told in self._faults.values():
            truth = told.truth
            tenant = truth.tenant if truth.scope == "tenant" else ""
            labels.append(
                Label(
                    kind=truth.verdict,
                    onset=told.onset,
                    ended=told.ended,
                    subject=Subject(scope="tenant" if tenant else "engine", engine=engine, tenant=tenant),
                    note=_note(told),
                )
            )
        return tuple(labels)

    def planted(self) -> dict[int, int]:
        """Return how many blocks each fault has taken."""
        return {number: told.blocks for number, told in self._faults.items()}

    def events(self) -> str:
        """Return the healthy things that happened, with their monotonic times."""
        return "; ".join(self._events)


def _note(told: _Told) -> str:
    parts = [told.truth.kind]
    if told.blocks:
        parts.append(f"{told.blocks} blocks")
    if tenants := sorted(told.tenants - {""}):
        parts.append(f"tenants {', '.join(tenants[:8])}")
    return "; ".join(parts)
