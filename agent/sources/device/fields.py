"""What one GPU said last, field by field, or why it did not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from agent.sources.device.lane import Answer, Call, Key, Lane
from agent.sources.device.nvml import NOT_SUPPORTED, code_of, lost, unsupported, why
from agent.sources.device.readings import RARE_SECONDS, Reading


class Fields:
    """Each field is in exactly one of ``values``, ``unavailable`` (it failed) and ``unsupported`` (there is none)."""

    def __init__(self, label: str, readings: Sequence[Reading]) -> None:
        self.values: dict[str, Any] = {}
        self.unavailable: dict[str, str] = {}
        self.unsupported: dict[str, str] = {}
        self.absent: set[str] = set()  # of the unsupported ones, those that the driver knows and this GPU lacks
        self._label = label
        self._readings = readings
        self._due: dict[str, float] = {}

    def hasten(self) -> None:
        """Ask for everything next time."""
        self._due.clear()

    def calls(self, nvml: Any, handle: Any, now: float) -> Iterator[Call]:
        """Yield what is due at ``now``."""
        for reading in self._readings:
            if now >= self._due.get(reading.field, now):
                yield Call(Key(self._label, reading.field), partial(reading.read, nvml, handle))

    def take(self, answers: Mapping[Key, Answer], lane: Lane, now: float) -> str:
        """Keep what was answered to ``calls`` at the same ``now``; return why the GPU is lost, empty when it is not."""
        for reading in self._readings:
            if now < self._due.get(reading.field, now):
                continue
            field, key = reading.field, Key(self._label, reading.field)
            for book in (self.values, self.unavailable, self.unsupported):
                book.pop(field, None)
            self.absent.discard(field)
            self._due[field] = now + reading.every
            answer = answers.get(key)
            if answer is None:
                self.unavailable[field] = lane.why(key)
                self._due[field] = now
            elif answer.error is None:
                self.values[field] = answer.value
            elif lost(answer.error):
                return why(answer.error)
            elif unsupported(answer.error):
                self.unsupported[field] = why(answer.error)
                self._due[field] = now + RARE_SECONDS
                if code_of(answer.error) in {NOT_SUPPORTED, None}:
                    self.absent.add(field)
            else:
                self.unavailable[field] = why(answer.error)
        return ""
