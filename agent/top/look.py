"""How styles look: colours of Okabe and Ito, which the colour-blind tell apart, or none at all.

A colour never says anything alone: beside it stands a word, a letter of a bar or a sign.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.faces.lines import BAD

# By the name that lines use. What is not listed is rich's own, such as a colour of the waterfall's.
_COLOURS = {
    "page": f"bold reverse {BAD}",
    "warn": "bold #e69f00",
    "over": "bold #009e73",
    "bad": BAD,
    "good": "#009e73",
    "label": "bold",
    "head": "bold",
    "tab": "bold reverse",
    "spark": "#56b4e9",
    "stale": f"bold reverse {BAD}",
    "yellow": "#e69f00",
}
_MONO = {
    "page": "bold reverse",
    "warn": "bold underline",
    "over": "bold",
    "bad": "bold",
    "good": "",
    "label": "bold",
    "head": "bold",
    "tab": "bold reverse",
    "spark": "",
    "stale": "bold reverse",
    "yellow": "bold",
    "dim": "dim",
    "bold": "bold",
}
_OF_COLOURS = {BAD: "bad", "yellow": "yellow", "#009e73": "good"}


@dataclass(frozen=True, slots=True)
class Look:
    """``mono``: no colour at all, only bold, underlined, reversed and dim."""

    mono: bool = False

    def style(self, name: str, *, stale: bool = False) -> str:
        """Return rich's style. ``stale``: of what is no longer so, perhaps: dim."""
        if not name:
            return "dim" if stale else ""
        found = _MONO.get(name, "") if self.mono else _COLOURS.get(name, name)
        return f"{found} dim".strip() if stale and "dim" not in found else found


def named(style: str) -> str:
    """Return our name of a style that the other faces' lines have."""
    return _OF_COLOURS.get(style, style)
