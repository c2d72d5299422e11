"""Where new requests may be sent on to: servers for short and long prompts, and smaller models under pressure.

``KVTIDE_UPSTREAMS`` names a JSON file; without it nothing is ever sent on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines

VARIABLE = "KVTIDE_UPSTREAMS"
VIA = b"x-kvtide-via"  # whoever gets it serves the request itself: no request goes round
MAX_FILE_BYTES = 1 << 16
_Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,32}\Z")]
_Model = Annotated[str, msgspec.Meta(max_length=256)]


class Upstream(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step. ``url``: the server's base, without a path of the API; None for this server itself. ``model``: what the
    request's model is called there, where that differs. ``below``: for prompts of fewer tokens, None for all that are
    left. ``at``: from so many percent of pressure.
    """

    name: _Name
    url: str | None = None
    model: _Model | None = None
    below: Annotated[int, msgspec.Meta(ge=1)] | None = None
    at: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    by_tokens: Annotated[tuple[Upstream, ...], msgspec.Meta(max_length=16)] = ()
    by_pressure: Annotated[tuple[Upstream, ...], msgspec.Meta(max_length=16)] = ()


@dataclass(frozen=True, slots=True)
class Upstreams:
    """``by_tokens``: shortest first. ``by_pressure``: highest first; it goes before the other."""

    by_tokens: tuple[Upstream, ...] = ()
    by_pressure: tuple[Upstream, ...] = ()

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Upstreams:
        """Read the file that the environment names. A bad one is reported in one line, and nothing is sent on."""
        path = env.get(VARIABLE, "").strip()
        if not path:
            return cls()
        try:
            return read_upstreams(Path(path))
        except ValueError as error:
            said = " ".join(str(error).split())[:300]
            logger.warning("kvtide: %s: %s; every request is served here", VARIABLE, said)
            return cls()

    def choose(self, headers: Iterable[tuple[bytes, bytes]], tokens: int, pressure: float | None) -> Upstream | None:
        """Return where a prompt of so many tokens is to be sent on to; None when this server is to serve it."""
        if not (self.by_tokens or self.by_pressure) or any(name == VIA for name, _ in headers):
            return None
        found = None
        if pressure is not None:
            found = next((step for step in self.by_pressure if step.at is not None and pressure >= step.at), None)
        if found is None:
            found = next((step for step in self.by_tokens if step.below is None or tokens < step.below), None)
        return found if found is not None and found.url is not None else None


def read_upstreams(path: Path) -> Upstreams:
    """Return what the file says; raises ``ValueError``."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    if len(text) > MAX_FILE_BYTES:
        raise ValueError(f"{path}: more than {MAX_FILE_BYTES} bytes")
    try:
        found = msgspec.json.decode(text, type=_File)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    for step in (*found.by_tokens, *found.by_pressure):
        parts = urlsplit(step.url or "http://here")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{path}: {step.name}: {step.url!r} is not the address of an HTTP server")
    if any(step.at is None for step in found.by_pressure):
        raise ValueError(f"{path}: each step of by_pressure needs at, a percentage")
    return Upstreams(
        by_tokens=tuple(sorted(found.by_tokens, key=lambda step: step.below or float("inf"))),
        by_pressure=tuple(sorted(found.by_pressure, key=lambda step: -(step.at or 0.0))),
    )
