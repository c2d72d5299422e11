"""The boards as they are built, and what is in them: panels, expressions, addresses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dashboards.build import boards
from exporters import catalogue as c

BOARDS: dict[str, dict[str, Any]] = {name.removesuffix(".json"): json.loads(text) for name, text in boards().items()}
CATALOGUE = {metric.name: metric for metric in c.CATALOGUE}
# A metric's or a recording rule's name: what kvtide writes, with a level before it or none.
NAME = re.compile(r"(?:[a-z]+:)?kvtide_[a-z0-9_]+(?::[a-z0-9_]+)?")
# What Grafana puts in place of its variables, as it does where all is chosen.
VALUES = {
    "$__rate_interval": "1m0s",
    "$__interval": "15s",
    "$__range": "3600s",
    "$job": ".*",
    "$instance": ".*",
    "$engine": ".*",
    "$tenant": ".*",
    "$gpu": ".*",
}


@dataclass(frozen=True)
class Asked:
    """An expression: of which board, by which panel or annotation, and whether it is of one moment."""

    board: str
    by: str
    expr: str
    instant: bool


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def asked() -> Iterator[Asked]:
    for uid, board in BOARDS.items():
        for panel in panels(board):
            for target in panel["targets"]:
                yield Asked(uid, panel["title"], target["expr"], target["instant"])
        for mark in board["annotations"]["list"]:
            if "expr" in mark:
                yield Asked(uid, mark["name"], mark["expr"], False)


def variables(board: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in board["templating"]["list"]}


def filled(expr: str) -> str:
    """Return an expression as Grafana asks it."""
    for name, value in VALUES.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, f"{expr}: a variable that nobody fills"
    return expr


def addresses(value: Any) -> Iterator[str]:
    """Yield every address of a board in a board."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "url" and isinstance(inner, str):
                yield inner
            else:
                yield from addresses(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from addresses(inner)
