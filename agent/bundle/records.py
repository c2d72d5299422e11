"""The records of a bundle's stream: states, and what the live judge said and knew."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
from msgspec.structs import replace

from agent.bundle.errors import BundleError
from agent.bundle.header import Change, Usuals
from agent.bundle.limits import excess
from agent.state import AgentState, LinkState

MAX_RECORD = 8 << 20  # bytes of one, unpacked
RECORD = struct.Struct("<BI")  # kind and length before each
LATEST = 1e11  # seconds of any clock; Unix seconds of the year 5138
STATE, CHANGE, USUALS, STANDING = 1, 2, 3, 4  # readers pass over others
Record = AgentState | Change | Usuals

# What no judge reads: it is of the agent, not of the node, and costs space.
_NO_LINK = LinkState(socket="", connections=0, accepted=0, frames=0, rejected_frames={}, refused_peers={})

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[int, msgspec.msgpack.Decoder[Any]] = {
    STATE: msgspec.msgpack.Decoder(AgentState),
    CHANGE: msgspec.msgpack.Decoder(Change),
    USUALS: msgspec.msgpack.Decoder(Usuals),
    STANDING: msgspec.msgpack.Decoder(Change),
}


class When(msgspec.Struct, frozen=True):
    """The times of a state, read without the rest of it."""

    at: float
    monotonic: float
    started_at: float


_whens = msgspec.msgpack.Decoder(When)


def bare(state: AgentState) -> AgentState:
    """Return ``state`` without its judgement and without what no judge reads."""
    engines = state.engines
    if any(engine.verdicts for engine in engines):
        engines = tuple(replace(engine, verdicts=()) for engine in engines)
    return replace(state, link=_NO_LINK, judgement=None, recorder=None, http=None, judge_errors={}, engines=engines)


def encoded(record: Record) -> tuple[int, bytes]:
    """Return the kind and the bytes of ``record``."""
    if isinstance(record, AgentState):
        return STATE, _encoder.encode(bare(record))
    if isinstance(record, Change):
        return STANDING if record.standing else CHANGE, _encoder.encode(record)
    return USUALS, _encoder.encode(record)


def decoded(kind: int, body: bytes) -> Record | None:
    """Return a record, None for a kind that is not known; raises :class:`BundleError`."""
    decoder = _decoders.get(kind)
    if decoder is None:
        return None
    record: Record = _read(decoder, body)
    if isinstance(record, AgentState) and not all(map(is_time, (record.at, record.monotonic, record.started_at))):
        raise BundleError("a state's time is no time")
    if not isinstance(record, Usuals) and (why := excess(record)):
        raise BundleError(f"a record was never of an agent: {why}")
    return record


def is_time(seconds: float) -> bool:
    """Return whether ``seconds`` can be of a clock; NaN is not."""
    return 0.0 <= seconds < LATEST


def when_of(body: bytes) -> When:
    """Return the times in the bytes of a state; raises :class:`BundleError`."""
    when: When = _read(_whens, body)
    return when


def _read(decoder: msgspec.msgpack.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"a record can't be read: {error}") from None
