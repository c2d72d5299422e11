"""Write docs/kubernetes-values.md from the chart's values: ``python -m deploy.values_docs [--check]``.

The comment above a key says what it is, its value is the default, and the schema knows what is allowed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from agent.generated_page import DOCS, write_or_check

CHART = Path(__file__).parent / "helm" / "kvtide"
TARGET = DOCS / "kubernetes-values.md"
_INDENT = 2

HEAD = """# Values of the Helm chart

Generated from `deploy/helm/kvtide/values.yaml` by `make generate`; do not edit. How to use them:
[Kubernetes](kubernetes.md). A key that is not listed here is an error.

| value | default | meaning |
|---|---|---|
"""


class Row(NamedTuple):
    """A value: its dotted key, its default, what its comment says."""

    key: str
    default: Any
    meaning: str


def rows(text: str) -> Iterator[Row]:
    """Yield a row for each key of ``text`` that has a comment; raises ValueError for one that has none."""
    values = yaml.safe_load(text)
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# "):
            comment.append(stripped.removeprefix("# "))
            continue
        name, colon, rest = stripped.partition(":")
        if not colon or stripped.startswith("-") or not name.isidentifier():
            comment = []
            continue
        depth = (len(line) - len(line.lstrip())) // _INDENT
        key = [*path[:depth], name]
        if comment:
            yield Row(".".join(key), _at(values, key), " ".join(comment))
            # What is inside is its value, not keys of the chart.
            path = [*key[:-1], ""]
        elif not rest and not _inside(path, depth):
            path = key
        elif not _inside(path, depth):
            raise ValueError(f"{'.'.join(key)}: has no comment")
        comment = []


def _inside(path: list[str], depth: int) -> bool:
    return "" in path[:depth]


def _at(values: Any, key: list[str]) -> Any:
    for name in key:
        values = values[name]
    return values


def render() -> str:
    """Return the page."""
    lines = [_line(row) for row in rows((CHART / "values.yaml").read_text(encoding="utf-8"))]
    return HEAD + "".join(f"{line}\n" for line in lines)


def _line(row: Row) -> str:
    shown = "-" if row.default in ("", [], {}) else f"`{json.dumps(row.default).strip(chr(34))}`"
    return f"| `{row.key}` | {shown} | {row.meaning.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    sys.exit(write_or_check(TARGET, render, sys.argv[1:]))
