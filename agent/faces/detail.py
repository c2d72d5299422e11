"""An engine's detail in words: one line per thing that there is to say."""

from __future__ import annotations

from collections.abc import Mapping

from agent.faces import kept, load, smaller
from agent.faces.lines import SHOWN, Line
from engine_hooks.detail import Detail

OPTIONAL = {"pools", "speculation", "encoder", "tiers"}  # many an engine has none: that is nothing to say


def lines_of(detail: Detail, peers: Mapping[str, str]) -> list[Line]:
    """Return all that there is to say, tenants aside. ``peers``: engines that are ours, by what others call them."""
    lines = [*smaller.lines(detail), *kept.lines(detail, peers), *load.lines(detail)]
    missing = [(name, why) for name, why in sorted(detail.unsupported.items()) if name not in OPTIONAL]
    lines += [Line("not told", f"{name}: {why}", "dim") for name, why in missing[:SHOWN]]
    return lines
