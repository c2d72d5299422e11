"""A pool that live compaction has made smaller, as a line: by how much, what came free, and how it stands."""

from __future__ import annotations

from collections.abc import Iterator

from agent.faces.lines import Line
from agent.retained import count_of
from agent.units import human_bytes
from engine_hooks.detail import CompactionRow, Detail

_STANDS = {
    "moving": "blocks are being moved",
    "releasing": "memory is being given back",
    "growing": "it grows back",
    "stopped": "it stopped halfway",
}


def lines(detail: Detail) -> Iterator[Line]:
    """Yield how it stands; nothing of a pool that is whole and stays so."""
    row = detail.compaction
    if row is not None and (row.offline or row.state not in ("idle", "shrunk")):
        yield Line("smaller", _text(row), "")


def _text(row: CompactionRow) -> str:
    released = row.released_bytes
    given = "no memory can be given back" if released is None else f"{human_bytes(released)} given back"
    text = f"by {count_of(row.offline, 'block')}, {given}"
    stands = _STANDS.get(row.state, "" if row.state == "shrunk" else row.state)
    return "; ".join(filter(None, (text, ": ".join(filter(None, (stands, row.reason))))))
