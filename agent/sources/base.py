"""What a source is, and what is known of one."""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

T_co = TypeVar("T_co", bound=msgspec.Struct, covariant=True)


class Source(Protocol[T_co]):
    """Reads one part of the node.

    ``NAME`` is its label and its field of the state; ``period``: seconds from one reading to the next; ``timeout``:
    seconds after which a reading that has not ended counts as failed.
    """

    NAME: str
    period: float
    timeout: float

    def read(self) -> T_co:
        """Return what is there now, an immutable value. Runs on the source's own thread and may block.

        Raises :class:`SourceError` with one line when nothing can be read; what fails in part belongs into the value.
        """
        ...

    def close(self) -> None:
        """Give back what the source holds; a reading may be under way."""
        ...


class SourceError(Exception):
    """Nothing could be read; the text says why, for people."""


class SourceAbsentError(SourceError):
    """There is nothing here for this source to read, and that is no failure: a node without a GPU."""


class SourceState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The health of a source, apart from its data.

    ``up``: the last reading succeeded and is not old; otherwise ``reason`` says why and there is no data.
    ``read_seconds``: how long the last finished reading took; ``failures``: readings that raised or took too long.
    ``absent``: there is nothing here for it to read, and that is no failure.
    """

    source: str
    up: bool
    reason: str
    reads: int
    failures: int
    read_seconds: float | None
    age_seconds: float | None
    absent: bool = False
