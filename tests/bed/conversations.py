"""People who talk with a model turn by turn, and prompts that come once: for one seed the same, with any engine.

No engine here: who plays it says how time passes and what asking is, so that one load can be given to a real scheduler
with made-up outputs and to a real model.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

FIRST_TOKEN, END_TOKEN = 3, 500
PEOPLE, JOBS = "people", "jobs"  # the tenants


@dataclass(frozen=True, slots=True)
class Mix:
    """``people`` who think for so many seconds between ``turns``, then begin another conversation of ``first`` blocks,
    each turn ``grow`` blocks longer and with the answer; every ``one_shot_seconds``, where they are not 0, a prompt of
    ``one_shot`` blocks that nobody sends again. All begin with the same ``system`` blocks.

    ``sessions``: people say theirs. ``tenants``: whose a request is, is said.
    """

    people: int = 6
    think: tuple[float, float] = (60.0, 150.0)
    turns: tuple[int, int] = (2, 14)
    first: int = 8
    grow: int = 1
    system: int = 0
    one_shot_seconds: float = 10.0
    one_shot: int = 8
    sessions: bool = False
    tenants: bool = True
    minutes: int = 40
    block_tokens: int = 16


@dataclass(slots=True)
class Found:
    """Tokens by tenant: ``asked`` for, and ``found`` in the cache, after the first ten minutes."""

    asked: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)

    def ratio(self, *tenants: str) -> float:
        """Hit ratio of ``tenants``, of all where none is named."""
        names = tenants or tuple(self.asked)
        return sum(self.found[name] for name in names) / max(1, sum(self.asked[name] for name in names))


@dataclass(slots=True)
class _Talk:
    back: float
    session: str
    left: int
    prompt: list[int]


def talk(
    mix: Mix,
    seed: int,
    advance: Callable[[float], None],
    say: Callable[[str, str, list[int]], tuple[int, list[int]]],
) -> Found:
    """Play ``mix``. ``advance(now)``: so many seconds have passed since the beginning. ``say(tenant, session, prompt)``
    has the prompt answered and returns how many of its tokens were found in the cache, and the answer's tokens.
    """
    draw, other, told = random.Random(seed), random.Random(seed + 1_000_000), Found()
    system = _words(draw, mix, mix.system)
    names = iter(range(1_000_000))

    def begin(back: float) -> _Talk:
        return _Talk(back, f"s{next(names)}", draw.randint(*mix.turns), system + _words(draw, mix, mix.first))

    def ask(now: float, tenant: str, session: str, prompt: list[int]) -> list[int]:
        found, answer = say(tenant if mix.tenants else "", session if mix.sessions else "", prompt)
        if now > 600.0:
            told.asked[tenant] += len(prompt)
            told.found[tenant] += found
        return answer

    talks = [begin(draw.uniform(0.0, mix.think[1])) for _ in range(mix.people)]
    next_shot = 0.0
    for second in range(60 * mix.minutes):
        now = float(second)
        advance(now)
        for place, one in enumerate(talks):
            if now >= one.back:
                answer = ask(now, PEOPLE, one.session, one.prompt)
                one.prompt = one.prompt + answer + _words(draw, mix, mix.grow)
                one.left -= 1
                one.back = now + draw.uniform(*mix.think)
                if not one.left:
                    talks[place] = begin(one.back)
        if mix.one_shot_seconds and now >= next_shot:
            ask(now, JOBS, "", system + _words(other, mix, mix.one_shot))
            next_shot = now + other.uniform(0.5, 1.5) * mix.one_shot_seconds
    return told


def _words(draw: random.Random, mix: Mix, blocks: int) -> list[int]:
    return [draw.randrange(FIRST_TOKEN, END_TOKEN) for _ in range(blocks * mix.block_tokens)]
