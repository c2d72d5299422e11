"""Settings in YAML files: read without surprises, checked whole, and every mistake told in one line."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Container
from pathlib import Path
from typing import Any, TypeVar, get_args

import pydantic
import yaml

from agent.errors import ConfigError

Settings = TypeVar("Settings", bound=pydantic.BaseModel)

MAX_BYTES = 1 << 20
OUT_OF_ORDER = "out_of_order"  # pydantic's name for what a section's own check of its thresholds finds
MOST_VALUES = 100_000  # in one file, with what its aliases repeat
MOST_BITS = 1024  # of a whole number: more than any float can be
MOST_PROBLEMS = 8  # that are told at once
_SHOWN = 200  # characters of a wrong value
_PASSWORD = re.compile(r"//[^@\s'\"]*@")
_QUERY = re.compile(r"(://[^?\s'\"]*\?)[^\s'\"]*")


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice: the second would silently replace the first.

    Also aliases that make millions of values of a few lines, or hold themselves, numbers of thousands of digits, and
    those that only YAML 1.1 takes for numbers: 1:30 would be 90, of whatever unit.
    """

    def get_single_node(self) -> Any:
        node = super().get_single_node()
        if node is not None:
            _weigh(node, {})
        return node

    def construct_number(self, node: Any) -> int:
        _refuse_sixties(node)
        try:
            number: int = super().construct_yaml_int(node)
        except ValueError:
            if not set(node.value) <= set("+-0123456789_"):
                raise  # no number at all
            number = 1 << (MOST_BITS + 1)  # Python's own limit of digits
        if number.bit_length() > MOST_BITS:
            raise yaml.constructor.ConstructorError(None, None, "too large a number", node.start_mark)
        return number

    def construct_fraction(self, node: Any) -> float:
        _refuse_sixties(node)
        number: float = super().construct_yaml_float(node)
        return number

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_number)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_fraction)


def _refuse_sixties(node: Any) -> None:
    if ":" in node.value:
        problem = f"{_short(node.value)} would be counted in sixties: write a plain number, or put it in quotes"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _weigh(node: Any, weights: dict[int, int]) -> int:
    """Return how many values ``node`` is, each alias counted with all that it repeats."""
    known = weights.get(id(node))
    if known is None:
        weights[id(node)] = 0
        inner = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = (part for each in inner for part in (each if isinstance(each, tuple) else (each,)))
        known = weights[id(node)] = 1 + sum(_weigh(part, weights) for part in parts)
    if not known:
        raise yaml.constructor.ConstructorError(None, None, "an alias of what it stands in", node.start_mark)
    if known > MOST_VALUES:
        raise yaml.constructor.ConstructorError(None, None, f"more than {MOST_VALUES:,} values", node.start_mark)
    return known


def read(file: Path) -> Any:
    """Return what is in ``file``, an empty mapping where nothing is; raises :class:`ConfigError`."""
    try:
        # A pipe that nobody writes to would hold up whoever reads it: at a reload, the agent.
        with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise ConfigError(f"{file}: not a regular file")
            content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{file}: more than {MAX_BYTES >> 20} MiB: no file of settings is so large")
        data = yaml.load(content.decode(), _Loader)  # noqa: S506 - it is a SafeLoader
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, or no such date or number
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ConfigError(f"{file}:{line} not valid YAML: {problem}") from None
    return {} if data is None else data


def checked(model: type[Settings], data: Any, where: str, options: Container[str] = ()) -> Settings:
    """Return ``data`` as ``model``; raises :class:`ConfigError` with one line: key, value, and what is allowed.

    ``where`` is the file; ``options``: dotted keys that did not come from it.
    """
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: must be a mapping of settings, not {type(data).__name__}")
    try:
        return model.model_validate(data)
    except pydantic.ValidationError as error:
        raise ConfigError(_one_line(model, where, error, options)) from None


def _one_line(model: type[Settings], where: str, error: pydantic.ValidationError, options: Container[str]) -> str:
    parts = []
    problems = error.errors()
    for problem in problems[:MOST_PROBLEMS]:
        key = _short(".".join(str(part) for part in problem["loc"]))
        source = "command line or environment" if key in options else where
        if problem["type"] == "extra_forbidden":
            allowed = ", ".join(_known_keys(model, problem["loc"][:-1]))
            parts.append(f"{source}: unknown key {key}; allowed here: {allowed}")
        elif problem["type"] == "missing":
            *outer, name = map(str, problem["loc"])
            parts.append(f"{source}: {'.'.join(outer)}: {name} is missing")
        elif problem["type"] == OUT_OF_ORDER:
            context = problem["ctx"]
            parts.append(f"{source}: {key}.{context['key']}: {context['value']}: {problem['msg']}")
        else:
            text = _allowed(model, problem["type"], problem["loc"]) or problem["msg"].removeprefix("Value error, ")
            parts.append(f"{source}: {key}: {shown(problem['input'])}: {_hidden(text)}")
    if len(problems) > MOST_PROBLEMS:
        parts.append(f"and {len(problems) - MOST_PROBLEMS:,} more mistakes")
    return " ".join("; ".join(parts).split())  # a key may hold line ends


def _allowed(model: type[Settings], kind: str, path: tuple[int | str, ...]) -> str:
    """Return what must be there, for kinds of problems that pydantic tells in Python's words; else nothing."""
    if kind == "model_type":
        return f"must be a mapping with {', '.join(_known_keys(model, path))}"
    return 'must be a list (lines that begin with "-")' if kind == "tuple_type" else ""


def shown(value: object) -> str:
    """Return a wrong value as people wrote it, its beginning where it is long, without passwords."""
    return _short(_hidden(repr(value)))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _hidden(text: str) -> str:
    """Return ``text`` without passwords in addresses and without what these ask for: logs are read by many."""
    return _QUERY.sub(r"\1...", _PASSWORD.sub(r"//...@", text))


def _known_keys(model: Any, path: tuple[int | str, ...]) -> list[str]:
    for part in path:
        # The number of an item of a list: the list's type is tuple[Section, ...].
        model = get_args(model)[0] if isinstance(part, int) else model.model_fields[part].annotation
    return list(model.model_fields)
