"""A bundle as a history; and what a recorder keeps for long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.backtest.span import Span
from agent.bundle.format import SUFFIX, BundleError, Change, Label, Usuals, read
from agent.errors import ConfigError
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


class RecorderFeed:
    """What a recorder keeps for long, one state a minute, under its folder's name; those of ``span`` alone.

    ``folder``: an agent's state directory, or ``recorder`` in it. Raises :class:`agent.errors.ConfigError` where it has
    none.
    """

    def __init__(self, folder: Path, span: Span) -> None:
        self._name = str(folder)
        self._span = span
        self._damaged: list[str] = []
        places = (folder / "recorder", folder)
        self._chunks = next((found for place in places if (found := sorted(place.glob(f"coarse-*{SUFFIX}")))), [])
        if not self._chunks:
            raise ConfigError(f"{folder}: no recorder keeps anything here; an agent's recorder.directory is needed")

    def records(self) -> Iterator[tuple[str, AgentState | Usuals]]:
        """Yield the states, and what the live judge had learned."""
        for chunk in self._chunks:
            try:
                for record in read(chunk).records():
                    if isinstance(record, Change):
                        continue
                    if isinstance(record, Usuals) or self._span.start <= record.at <= self._span.end:
                        yield self._name, record
            except (BundleError, OSError) as error:  # thrown away meanwhile, or damaged: what comes after counts
                self._damaged.append(str(error))

    def labels(self) -> None:
        """Nobody knows what was wrong."""

    def remarks(self) -> tuple[str, ...]:
        """Return what could not be read."""
        return tuple(self._damaged)
