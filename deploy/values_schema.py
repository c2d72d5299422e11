"""Write what the chart's ``config``, ``policy`` and ``engines.levers`` may be into its schema, from the agent's types:
``python -m deploy.values_schema [--check]``.

Helm then refuses a key or a word that the agent would refuse at its start, and in a policy, where text is no number,
what ``--set`` makes of 0.5: text. How large a number may be stays the agent's to say, in its own words.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from agent.config import AgentConfig
from agent.policy.actions import LEVERS
from agent.policy.types import Policy
from deploy.values_docs import CHART

TARGET = CHART / "values.schema.json"
# A line each, before those that are written by hand.
_BEGIN = '  "definitions": {'
_MADE = re.compile(r'    "(?:(?:config|policy)(?:\.[a-z_.]+)?|lever)": \{"(?:type|enum)": .*')

Schema = dict[str, Any]


def definitions() -> Iterator[tuple[str, Schema]]:
    """Yield the definitions by their names: a section's is its dotted key."""
    yield from _sections("config", AgentConfig)
    yield from _sections("policy", Policy)
    yield "lever", {"enum": list(LEVERS)}


def _sections(name: str, model: type[BaseModel]) -> Iterator[tuple[str, Schema]]:
    whole = model.model_json_schema()
    known = whole.get("$defs", {})
    strict = bool(model.model_config.get("strict"))

    def section(key: str, node: Mapping[str, Any]) -> Iterator[tuple[str, Schema]]:
        found: Schema = {}
        for field, inner in node["properties"].items():
            path = f"{key}.{field}"
            listed = inner.get("items", {})
            if "$ref" in inner:
                yield from section(path, _named(known, inner))
                found[field] = _reference(path)
            elif "$ref" in listed:
                yield from section(path, _named(known, listed))
                found[field] = {"type": "array", "items": _reference(path)}
            else:
                found[field] = _closed(inner, typed=strict)
        yield key, {"type": "object", "additionalProperties": False, "properties": found}

    return section(name, whole)


def _named(known: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = known[node["$ref"].rpartition("/")[2]]
    return found


def _reference(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


def _closed(node: Mapping[str, Any], *, typed: bool) -> Schema:
    """Return what of a value's schema names all words that there may be, and its type where that is held to."""
    found: Schema = {"enum": node["enum"]} if "enum" in node else {}
    if typed and not found and "type" in node:
        found["type"] = node["type"]
    for part in ("items", "propertyNames", "additionalProperties"):
        inner = node.get(part)
        if isinstance(inner, Mapping) and (closed := _closed(inner, typed=typed)):
            found[part] = closed
    return found


def render(text: str) -> str:
    """Return the schema ``text`` with its definitions as they should be."""
    lines = [line for line in text.splitlines() if not _MADE.fullmatch(line)]
    begin = lines.index(_BEGIN) + 1
    made = [f"    {json.dumps(name)}: {json.dumps(found)}," for name, found in definitions()]
    return "\n".join((*lines[:begin], *made, *lines[begin:])) + "\n"


def main(arguments: list[str]) -> int:
    """Write the file, or with ``--check`` say whether the one in the tree is fresh; return the exit code."""
    before = TARGET.read_text(encoding="utf-8")
    after = render(before)
    if arguments == ["--check"]:
        sys.stdout.write(f"{TARGET.name} is {'fresh' if before == after else 'stale: run make generate'}\n")
        return 0 if before == after else 1
    TARGET.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
