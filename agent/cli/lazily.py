"""Commands that are imported and built when they are asked for: most of a short command's time went into the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.models import CommandInfo


class Commands(MutableMapping[str, Any]):
    """``made``: those that are there; ``places``: by name, the module of the others and what they are called in it."""

    def __init__(self, made: Mapping[str, Any], places: Mapping[str, str]) -> None:
        self._made, self._places = dict(made), dict(places)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            module, _, attribute = self._places[name].partition(":")
            self._made[name] = _command(name, getattr(import_module(module), attribute))
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        if name not in self._made and name not in self._places:
            raise KeyError(name)
        self._made.pop(name, None)
        self._places.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        yield from self._places
        yield from (name for name in self._made if name not in self._places)

    def __len__(self) -> int:
        return len(self._made.keys() | self._places.keys())


def group_of(places: Mapping[str, str]) -> type[TyperGroup]:
    """Return the class of a group that has the commands at ``places`` (``module:function`` or ``module:app``)."""

    class Lazily(TyperGroup):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.commands = Commands(self.commands, places)

        def list_commands(self, _ctx: Any) -> list[str]:
            """Return all names; asking for them builds none."""
            return list(self.commands)

    return Lazily


def _command(name: str, found: Any) -> Any:
    if isinstance(found, typer.Typer):
        group = typer.main.get_group(found)
        group.name = name
        return group
    like = typer.Typer()
    return typer.main.get_command_from_info(
        CommandInfo(name=name, callback=found),
        pretty_exceptions_short=like.pretty_exceptions_short,
        rich_markup_mode=like.rich_markup_mode,
    )
