"""What changed between two waterfalls of one GPU, part by part."""

from __future__ import annotations

from typing import NamedTuple

from agent.units import human_bytes
from agent.waterfall.state import Waterfall

LEAST = 1 << 20  # bytes: what changed less is not said to have changed


class Change(NamedTuple):
    """``first`` and ``last`` in bytes; None: it was not there."""

    part: str
    owner: str
    first: int | None
    last: int | None

    @property
    def grown(self) -> int:
        """Bytes more than at first."""
        return (self.last or 0) - (self.first or 0)

    def said(self) -> str:
        """Return the change for people."""
        if abs(self.grown) < LEAST:
            return "-"
        return f"{'+' if self.grown > 0 else '-'}{human_bytes(abs(self.grown))}"


def changes(first: Waterfall, last: Waterfall) -> list[Change]:
    """Return all parts, what grew most first."""
    before, after = _parts(first), _parts(last)
    rows = [
        Change(part, owner, before.get((part, owner)), after.get((part, owner))) for part, owner in {**before, **after}
    ]
    return sorted(rows, key=lambda each: -each.grown)


def _parts(waterfall: Waterfall) -> dict[tuple[str, str], int]:
    parts = {(part.part.replace("_", " "), part.owner): part.bytes for part in waterfall.parts}
    if waterfall.unattributed_bytes is not None:
        parts["unattributed", ""] = waterfall.unattributed_bytes
    return parts
