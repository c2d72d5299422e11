"""What a scenario is: states in the order of their times, and what really happens in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Literal

from agent.state import AgentState
from agent.subject import Subject

Part = Literal["tuning", "evaluation"]


@dataclass(frozen=True, slots=True)
class Label:
    """A fault that is there from ``onset`` to ``ended``, in monotonic seconds; None: to the end of the states.

    ``due_seconds``: a person who watched these numbers would know of it so long after the onset. ``implied``: verdicts
    that would be right about it, too, though they are not its name.
    """

    kind: str
    onset: float
    ended: float | None
    subject: Subject
    due_seconds: float = 60.0
    implied: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Made:
    """States with the labels of what is wrong in them; no label: nothing is."""

    states: Iterator[AgentState]
    labels: tuple[Label, ...] = ()


Maker = Callable[[Random], Made]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How scenarios of one sort are made. ``kind``: the verdict that is due, empty where nothing is wrong.

    ``tuning``, ``evaluation``: how many of each part. ``unseen``: kept out of tuning, scored apart. ``long``: hours and
    days, left out where there is no time.
    """

    name: str
    family: str
    kind: str
    make: Maker
    tuning: int = 2
    evaluation: int = 4
    unseen: bool = False
    long: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """One recipe with a seed. ``seed`` follows from the names alone, so that it is the same everywhere."""

    recipe: Recipe
    part: Part
    number: int
    seed: int = field(init=False)

    def __post_init__(self) -> None:
        """Draw the seed from what the scenario is called."""
        digest = sha256(f"{self.part}/{self.recipe.name}/{self.number}".encode()).digest()
        object.__setattr__(self, "seed", int.from_bytes(digest[:8], "big"))

    @property
    def name(self) -> str:
        """What it is called in the lists of the score."""
        return f"{self.recipe.family}/{self.recipe.name}/{self.part}-{self.number}"

    def made(self) -> Made:
        """Return its states and labels, made anew."""
        return self.recipe.make(Random(self.seed))


def scenarios_of(recipe: Recipe, part: Part) -> list[Scenario]:
    """Return the scenarios of one part; a recipe that is unseen has none to tune on."""
    tuning = 0 if recipe.unseen else recipe.tuning
    number = tuning if part == "tuning" else recipe.evaluation
    return [Scenario(recipe, part, each) for each in range(number)]
