"""The rules that a Prometheus has loaded, compared with those that are built: missing, differing, extra."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

OURS = "kvtide-"  # how the names of our groups begin
OPTIONAL = ("kvtide-textbook.yml", "kvtide-names.yml", "kvtide-global.yml")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = re.compile(r"(?<![\w.:\"])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.:\"])")
_TEXT = re.compile(r'("(?:[^"\\]|\\.)*")')
_MATCHERS = re.compile(r'\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\}')
_MATCHER = re.compile(r'\w+(?:=~|!~|!=|=)"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True, slots=True)
class Compared:
    """``missing``: of ours and not loaded; ``differing``: what differs, by name; ``extra``: in our groups and not ours.

    ``left_out``: optional files of which nothing is loaded. ``same``: how many rules are as built.
    """

    missing: tuple[str, ...]
    differing: Mapping[str, tuple[str, ...]]
    extra: tuple[str, ...]
    left_out: tuple[str, ...]
    same: int

    @property
    def right(self) -> bool:
        """Whether what must be loaded is, as built, and nothing of an older version beside it."""
        return not (self.missing or self.differing or self.extra)


def compare(files: Mapping[str, str], groups: Sequence[Mapping[str, Any]]) -> Compared:
    """Compare built rule files, by name, with the groups of ``/api/v1/rules``. Other people's groups are left alone.

    Raises ``KeyError``, ``TypeError`` or ``AttributeError`` for groups that are none.
    """
    loaded = {
        str(rule["name"]): _told(rule)
        for group in groups
        if str(group["name"]).startswith(OURS)
        for rule in group["rules"]
    }
    missing: list[str] = []
    differing: dict[str, tuple[str, ...]] = {}
    left_out: list[str] = []
    known: set[str] = set()
    same = 0
    for file, text in files.items():
        if not file.startswith(OURS):
            continue
        built = {str(rule.get("record") or rule["alert"]): _built(rule) for rule in _rules(text)}
        known |= built.keys()
        if file in OPTIONAL and not built.keys() & loaded.keys():
            left_out.append(file)
            continue
        for name, ours in built.items():
            theirs = loaded.get(name)
            if theirs is None:
                missing.append(name)
            elif found := tuple(key for key in ours if ours[key] != theirs[key]):
                differing[name] = found
            else:
                same += 1
    return Compared(tuple(missing), differing, tuple(sorted(loaded.keys() - known)), tuple(left_out), same)


def _rules(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def _built(rule: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "expr": _plain(rule["expr"]),
        "for": _seconds(rule.get("for", "0s")),
        "labels": rule.get("labels", {}),
        "annotations": rule.get("annotations", {}),
    }


def _told(rule: Mapping[str, Any]) -> dict[str, Any]:
    # Prometheus adds the alert's name to no list of labels, and leaves out what is empty.
    return {
        "expr": _plain(rule["query"]),
        "for": float(rule.get("duration") or 0.0),
        "labels": dict(rule.get("labels") or {}),
        "annotations": dict(rule.get("annotations") or {}),
    }


def _plain(expression: str) -> str:
    """Return an expression as it can be compared: Prometheus has spaces, numbers and the order of labels of its own."""
    expression = _MATCHERS.sub(lambda found: f"{{{','.join(sorted(_MATCHER.findall(found[1])))}}}", expression)
    parts = _TEXT.split(expression)
    for at in range(0, len(parts), 2):  # what stands between texts
        numbers = _NUMBER.sub(lambda found: repr(float(found[0])), parts[at])
        parts[at] = "".join(numbers.split())
    return "".join(parts)


def _seconds(duration: str) -> float:
    return sum(float(number) * _SECONDS[unit] for number, unit in re.findall(r"(\d+)(ms|[smhd])", duration))
