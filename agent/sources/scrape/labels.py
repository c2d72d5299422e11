"""The labels of scraped engines: bounded, over time too, unique, and the same for as long as an engine is there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agent.names import ENGINES, Allowance, Names, free_of
from engine_hooks.detail import OTHER
from engine_hooks.names import printable


class Wanted(NamedTuple):
    """An engine and the name it would like. ``key`` tells engines apart."""

    key: tuple[str, ...]
    name: str


def name_of(*, given: str, hint: str, model: str, models: int, rank: str, ranked: bool) -> str:
    """Return the name that an engine would like, made as hooks make theirs.

    ``given`` is from the settings, ``hint`` what is known without a page; ``models`` are on the page of this one;
    ``rank`` is its data-parallel index,
    ``ranked``: it has others beside it.
    """
    name = given or model or hint
    if given and model and models > 1:
        name = f"{given}-{model}"
    return printable(f"{name}-dp{rank}" if rank and (ranked or rank != "0") else name)


class Labels:
    """Gives labels: the first that comes gets the name, another with the same name gets ``~2``. One that is new while
    there are too many new ones is called ``other``: a page may say another name each time.
    """

    def __init__(self) -> None:
        self._names, self._models = Names(Allowance(*ENGINES)), Names(Allowance(*ENGINES))
        self._given: dict[tuple[str, ...], tuple[str, str]] = {}  # the name it wanted, and the label

    def model(self, name: str, now: float) -> str:
        """Return what an engine's model may be called at ``now``."""
        return name if not name or self._models.admits(name, now) else OTHER

    def give(self, wanted: Iterable[Wanted], now: float) -> dict[tuple[str, ...], str]:
        """Return the label of each key; who is not among them any more has given its label back."""
        wanted = list(wanted)
        names = dict(wanted)
        self._given = {key: given for key, given in self._given.items() if names.get(key) == given[0]}
        taken = {label for _, label in self._given.values()}
        for key, name in wanted:
            if key not in self._given:
                label = free_of(name, taken)
                if not self._names.admits(label, now):
                    label = free_of(OTHER, taken)
                taken.add(label)
                self._given[key] = (name, label)
        return {key: label for key, (_, label) in self._given.items()}
