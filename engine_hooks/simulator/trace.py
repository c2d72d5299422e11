"""A trace in a file: one JSON object a line, ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from engine_hooks.simulator.shapes import Shape
from engine_hooks.simulator.spec import SpecError
from engine_hooks.simulator.text import CHUNK, Texts

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=1 << 24)]


class _Line(msgspec.Struct):
    timestamp: float
    input_length: _Tokens
    output_length: _Tokens
    hash_ids: list[int] = []


class TraceFile:
    """Reads a trace as it is needed; raises :class:`SpecError`, at once where there is no request in it."""

    def __init__(self, path: Path, scale: float) -> None:
        self._path = path
        self._scale = scale
        self._lines = self._read()
        self._next = next(self._lines, None)
        if self._next is None:
            raise SpecError(f"trace {path}: has no request in it")

    def until(self, seconds: float) -> Iterator[Shape]:
        """Yield what comes before ``seconds`` since the beginning."""
        while self._next is not None and self._next.timestamp < 1000.0 * seconds:
            line = self._next
            length = max(1, int(line.input_length * self._scale))
            ids = list(line.hash_ids)
            while len(ids) * CHUNK < length:
                ids.append(hash((line.timestamp, len(ids))) & 0x7FFF_FFFF)
            yield Shape(Texts.chunks(ids, length), max(1, int(line.output_length * self._scale)))
            self._next = next(self._lines, None)

    def _read(self) -> Iterator[_Line]:
        decoder = msgspec.json.Decoder(_Line)
        try:
            with self._path.open("rb") as file:
                for number, text in enumerate(file, 1):
                    if text.strip():
                        try:
                            yield decoder.decode(text)
                        except msgspec.MsgspecError as error:
                            raise SpecError(f"trace {self._path}: line {number}: {error}") from None
        except OSError as error:
            raise SpecError(f"trace {self._path}: {error.strerror}") from None
