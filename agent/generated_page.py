"""Pages of docs/ that are made from models: rows for their keys, and writing or checking the file in the tree."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

DOCS = Path(__file__).resolve().parent.parent / "docs"
_OCTAL = "mode"  # a number of this name holds permissions


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the dotted keys of ``model``, those of its sections in their place."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def rows(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield a line of a table for each key: the key, its default, its description."""
    for key, field in keys(model, prefix):
        octal = key.endswith(f".{_OCTAL}") and isinstance(field.default, int)
        value = oct(field.default).replace("0o", "0") if octal else field.default
        shown = "-" if value in (None, ()) else f"`{value}`"
        yield f"| `{key}` | {shown} | {field.description} |"


def write_or_check(target: Path, render: Callable[[], str], arguments: Sequence[str]) -> int:
    """Write the page, or with ``--check`` say whether the one in the tree is fresh; return the exit code."""
    if list(arguments) == ["--check"]:
        fresh = target.exists() and target.read_text() == render()
        sys.stdout.write(f"docs/{target.name} is {'fresh' if fresh else 'stale: run make generate'}\n")
        return 0 if fresh else 1
    target.write_text(render())
    return 0
