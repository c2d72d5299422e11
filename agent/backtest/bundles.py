"""A bundle as a history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.bundle.format import Change, Label, Usuals, read
from agent.state import AgentState


class BundleFeed:
    """The states of one bundle, under its file's name; see :class:`agent.backtest.run.Feed`."""

    def __init__(self, path: Path) -> None:
        self._name = str(path)
        self._bundle = read(path)

    def records(self) -> Iterator[tuple[str, AgentState | Usuals]]:
        """Yield the states, and what the live judge had learned; not what it said of them."""
        for record in self._bundle.records():
            if not isinstance(record, Change):
                yield self._name, record

    def labels(self) -> tuple[Label, ...] | None:
        """Return the truth that the bundle carries, None where it carries none."""
        header = self._bundle.header
        return header.labels if header.labelled else None

    def remarks(self) -> tuple[str, ...]:
        """Return why the file ended early, where it did."""
        return (f"{self._name}: {self._bundle.torn}",) if self._bundle.torn else ()
