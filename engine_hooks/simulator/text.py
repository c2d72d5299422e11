"""Prompts as lists of tokens. What they say does not matter; which of them begin alike does."""

from __future__ import annotations

from itertools import count

CHUNK = 512  # tokens of one hash id of a trace
_FILL = [3 + (k * 31) % 509 for k in range(CHUNK)]
# Blocks are hashed with all that is before them, so one token of its own makes all of a text's blocks its own.
_SYSTEM, _CHUNKS, _OWN = 1 << 20, 1 << 24, 1 << 40


class Texts:
    """Makes texts: the same number, the same text."""

    def __init__(self) -> None:
        self._numbers = count(_OWN)

    @staticmethod
    def system(tenant: int, length: int) -> list[int]:
        """Return what all prompts of a tenant begin with."""
        return _fill(_SYSTEM + tenant, length)

    def own(self, length: int) -> list[int]:
        """Return a text that nobody else has."""
        return _fill(next(self._numbers), length)

    def new_chunk(self) -> int:
        """Return the id of a chunk that nobody else has."""
        return next(self._numbers) - _CHUNKS

    @staticmethod
    def chunks(ids: list[int], length: int) -> list[int]:
        """Return the text of these chunks, of which the last may be short of ``CHUNK`` tokens."""
        tokens: list[int] = []
        for number in ids:
            tokens.append(_CHUNKS + number)
            tokens += _FILL[1:]
        return tokens[:length]


def _fill(first: int, length: int) -> list[int]:
    if length <= 0:
        return []
    whole, rest = divmod(length, CHUNK)
    return [first, *(_FILL * whole + _FILL[:rest])[1:]]
