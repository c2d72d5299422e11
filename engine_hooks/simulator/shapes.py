"""What requests look like: how long, how they begin, and when they come."""

from __future__ import annotations

import bisect
import math
import random
from collections import deque
from dataclasses import dataclass, field

from engine_hooks.simulator.spec import Load
from engine_hooks.simulator.text import CHUNK, Texts

# Quantiles of the public Mooncake conversation trace (12,031 requests in 59 minutes), in tokens.
_AT = (0.0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_INPUTS = (891, 901, 2306, 6909, 15368, 27367, 39552, 85401, 126195)
_OUTPUTS = (1, 10, 156, 350, 472, 597, 698, 1120, 2000)
_BATCH_SECONDS = 3.0  # its requests come in batches
_FOLLOWING = 0.45  # of its requests go on with a conversation that was there before, if they are longer than one
_CONVERSATIONS = 256  # that may be gone on with
LONG_TOKENS = 4096


@dataclass(slots=True)
class Shape:
    """One request: its prompt, and how many tokens it will generate. ``session``: empty for none."""

    prompt: list[int]
    output: int
    session: str = ""


@dataclass(frozen=True, slots=True)
class Shift:
    """The load is another from ``since`` until ``until``; of one ``tenant``, or of all where that is empty.

    ``rate``, ``prompt`` and ``output`` are factors. ``long_tail``: its share of long prompts from then on. ``alone``:
    its prompts share no prefix with anything. ``extra``: requests a second on top.
    """

    since: float
    until: float
    tenant: str = ""
    rate: float = 1.0
    prompt: float = 1.0
    output: float = 1.0
    long_tail: float | None = None
    alone: bool = False
    extra: float = 0.0

    def concerns(self, tenant: str) -> bool:
        """Whether requests of ``tenant`` are meant."""
        return not self.tenant or self.tenant == tenant


@dataclass(slots=True)
class Form:
    """What all shifts that concern a tenant make of its requests."""

    prompt: float = 1.0
    output: float = 1.0
    long_tail: float = 0.0
    alone: bool = False

    @classmethod
    def of(cls, load: Load, shifts: list[Shift]) -> Form:
        """Put the shifts together."""
        form = cls(long_tail=load.long_tail)
        for shift in shifts:
            form.prompt *= shift.prompt
            form.output *= shift.output
            form.alone |= shift.alone
            form.long_tail = form.long_tail if shift.long_tail is None else shift.long_tail
        return form


class PoissonShapes:
    """Requests that come one by one: a tenant's own beginning, then a text of their own of log-normal length."""

    def __init__(self, load: Load, draw: random.Random, texts: Texts) -> None:
        self._load, self._draw, self._texts = load, draw, texts

    def count(self, rate: float, begin: float, end: float) -> int:
        """Return how many requests come between two moments."""
        return poisson(self._draw, rate * (end - begin))

    def make(self, tenant: int, form: Form) -> Shape:
        """Return a request of a tenant."""
        load, draw = self._load, self._draw
        length = self.text_length(form)
        system = [] if form.alone else self._texts.system(tenant, load.system)
        output = draw.lognormvariate(math.log(load.output * form.output), load.spread)
        return Shape([*system, *self._texts.own(length)], max(1, int(output)))

    def text_length(self, form: Form) -> int:
        """Return how long the next text of a user is."""
        load, draw = self._load, self._draw
        if draw.random() < form.long_tail:
            return int(LONG_TOKENS * (1.0 + min(3.0, draw.expovariate(1.0))) * load.scale)
        return max(1, int(draw.lognormvariate(math.log(load.prompt * form.prompt), load.spread) * load.scale))


@dataclass(slots=True)
class _Conversation:
    chunks: list[int]
    length: int


@dataclass(slots=True)
class MooncakeShapes:
    """The shape of the Mooncake trace: batches every three seconds, long prompts, conversations that are gone on with,
    one beginning that all have in common.
    """

    load: Load
    draw: random.Random
    texts: Texts
    _conversations: deque[_Conversation] = field(default_factory=lambda: deque(maxlen=_CONVERSATIONS))

    def count(self, rate: float, begin: float, end: float) -> int:
        """Return how many requests come between two moments."""
        batches = math.floor(end / _BATCH_SECONDS) - math.floor(begin / _BATCH_SECONDS)
        return poisson(self.draw, rate * _BATCH_SECONDS * batches) if batches else 0

    def make(self, tenant: int, form: Form) -> Shape:
        """Return a request; tenants do not share anything but the common beginning."""
        draw = self.draw
        length = max(1, int(_quantile(_INPUTS, draw.random()) * self.load.scale * form.prompt))
        output = max(1, int(_quantile(_OUTPUTS, draw.random()) * self.load.scale * form.output))
        begun = [one for one in self._conversations if 2 * CHUNK <= one.length < length]
        chunks = [0]
        if begun and not form.alone and draw.random() < _FOLLOWING:
            chunks = draw.choice(begun).chunks[:]
        elif form.alone:
            chunks = []
        while len(chunks) * CHUNK < length:
            chunks.append(self.texts.new_chunk())
        if not form.alone:
            # What is gone on with are the whole chunks: the next turn fills up the last one.
            self._conversations.append(_Conversation(chunks[: length // CHUNK] or [0], length))
        return Shape(self.texts.chunks(chunks, length), output)


def poisson(draw: random.Random, mean: float) -> int:
    """Return a Poisson number."""
    if mean > 30.0:
        return max(0, round(draw.gauss(mean, math.sqrt(mean))))
    limit, product, number = math.exp(-mean), draw.random(), 0
    while product > limit:
        product *= draw.random()
        number += 1
    return number


def _quantile(values: tuple[int, ...], share: float) -> float:
    """Interpolate in the logarithm: lengths spread over three orders of magnitude."""
    place = min(bisect.bisect_right(_AT, share), len(_AT) - 1)
    low, high = _AT[place - 1], _AT[place]
    weight = (share - low) / (high - low)
    return math.exp((1 - weight) * math.log(values[place - 1]) + weight * math.log(values[place]))
