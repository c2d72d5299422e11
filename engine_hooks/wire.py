"""The wire: every message between the hooks and the agent, and how it is encoded.

One ``SOCK_SEQPACKET`` packet carries one frame: a msgpack array ``[version, kind, body]``. The receiver ignores
and counts unknown fields and kinds, so that either side can be newer. The conversation::

    engine connects, and checks the uid of whoever bound the path
    agent  -> Banner      its nonce
    engine -> Challenge   the engine's nonce: the only thing that an unproven listener is ever sent
    agent  -> Proof       HMAC over both nonces (see auth)
    engine -> Hello       who it is, with a proof of its own
    engine -> Report      5 to 10 times a second under load, once a second when idle
    engine -> Detail      once a second
    member -> MemberReport  once a second, and at once when an allocation fails: a worker or an API server has no
                            Report and no Detail
    engine -> Heartbeat   from the side thread, while the engine's own thread is silent, and with its memory each 10 s
    agent  -> SignedOrder
    engine -> OrderResult, or ActionResult for a lever; the latter also when a lease has run out
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from engine_hooks.detail import Detail
from engine_hooks.levers.orders import MAX_LEVERS, ActionOrder, ActionResult, LeaseRow, LeverRow
from engine_hooks.members import MemberReport
from engine_hooks.own_memory import OwnMemoryRow
from engine_hooks.wire_types import MAX_HOOKS, Blocks, Message, Name, Text

# Where the two meet unless told otherwise; the key lies beside the socket.
DEFAULT_SOCKET = Path("/run/kvtide/agent.sock")
KEY_NAME = "agent.key"

CHECK, HISTORY, LEVER = "check", "history", "lever"  # the kinds of an order

WIRE_VERSION = 1
MAX_FRAME_BYTES = 64 * 1024
NONCE_BYTES = 32


class WireError(Exception):
    """A frame that can't be used; ``reason`` is one of a fixed set, fit for a metric label."""

    REASONS: ClassVar[tuple[str, ...]] = (
        "oversize",
        "malformed",
        "unknown_version",
        "unknown_kind",
        "rate",
        "order",
    )

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class Banner(Message, frozen=True, kw_only=True):
    """First word of the agent: ``nonce`` makes the engine's proof fresh."""

    nonce: bytes
    agent_version: Name


class Challenge(Message, frozen=True, kw_only=True):
    """The engine asks whoever listens to prove that it has the key. It says nothing about the engine."""

    nonce: bytes


class Proof(Message, frozen=True, kw_only=True):
    """HMAC-SHA256 by the shared key over both nonces."""

    mac: bytes


class Support(Message, frozen=True, kw_only=True):
    """Whether something can be done on this engine, and if not, why."""

    ok: bool
    reason: Text = ""


class PoolInfo(Message, frozen=True, kw_only=True):
    """A KV block pool, as it was when the engine came up.

    ``capacity``: usable blocks (the null block is not one). ``block_tokens``: tokens per block.
    ``block_bytes``: bytes of one block on one rank, all KV cache groups and layers; None where it can't be told.
    ``cache_dtype``: of the KV cache, as the engine's settings call it. ``longest_tokens``: what one request may have.
    """

    capacity: Blocks
    block_tokens: Blocks | None
    block_bytes: Blocks | None
    cache_dtype: Name = ""
    longest_tokens: Blocks | None = None


class Hello(Message, frozen=True, kw_only=True):
    """Who an engine process is.

    ``role``: "core" for an engine core; "worker" and "frontend" are members of one and send a MemberReport once a
    second instead of Report and Detail, and so does "torch", a process that belongs to no engine. A worker in its
    engine core's process has a link of its own.
    ``instance`` is drawn anew by each engine process: a restarted engine is a new one. ``engine_id`` joins the
    processes of one engine (data-parallel ranks, workers, API servers). ``index``: which data-parallel rank
    (``data_parallel``: one of several, although a rank of a dense model thinks that its ``data_parallel_size`` is 1);
    ``rank``: the worker's in that rank's world, or the API server's number. ``pid`` and ``pid_namespace`` are the
    process's own view; the agent knows its own view from the kernel; ``parent_pid`` tells whose child a member is, 0
    where it is not said. ``started_at`` is Unix time in seconds. ``world_size``: workers of this data-parallel rank,
    on all nodes; ``local_world_size``: those of them on this node. Both are 0 where the hooks can't tell.
    ``in_process``: the engine runs inside its caller's loop, and reports only while it steps. ``levers``: what this
    process can be asked to do; ``in_force``: what an agent before this one has asked for and is still held to.
    """

    name: Name
    instance: Name
    engine_id: Name
    host: Text
    pid: int
    pid_namespace: int
    index: int
    rank: int
    data_parallel_size: int
    started_at: float
    engine_version: Name
    hooks_version: Name
    in_process: bool
    idle_period_seconds: float
    pool: PoolInfo | None
    audit: Support
    mac: bytes
    role: Name = "core"
    data_parallel: bool = False
    parent_pid: int = 0
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    world_size: int = 0
    local_world_size: int = 0
    levers: Annotated[tuple[LeverRow, ...], msgspec.Meta(max_length=MAX_LEVERS)] = ()
    in_force: Annotated[tuple[LeaseRow, ...], msgspec.Meta(max_length=MAX_LEVERS)] = ()


class PoolReport(Message, frozen=True, kw_only=True):
    """One pool at one moment, in blocks; None where a number is not known (never a zero in its place).

    ``held + cached_idle + empty = capacity``. ``held_min`` and ``held_max`` are over every step since the report
    before. ``orphaned`` and ``over_freed``: see the design's vocabulary; ``exact`` is False while a difference of
    references has been counted but the blocks that make it up have not been named yet.
    ``cached_idle_age_seconds``: how old the count of cached idle blocks is. ``delayed``: blocks of finished requests,
    kept for a connector; ``deferred``: those that wait for a step in flight; ``pinned``: references held for a
    connector that we can't see into, not old enough to be orphaned.
    """

    capacity: Blocks
    held: Blocks
    held_min: Blocks
    held_max: Blocks
    cached_idle: Blocks | None
    cached_idle_age_seconds: float | None
    orphaned: Blocks | None
    over_freed: Blocks | None
    exact: bool
    audits: int
    ledger_drift: int
    delayed: Blocks | None = None
    deferred: Blocks | None = None
    pinned: Blocks | None = None


class HookReport(Message, frozen=True, kw_only=True):
    """What the hooks cost and what went wrong in them, since the engine came up.

    ``errors`` counts exceptions by hook; ``off`` names the hooks that were switched off, with the reason.
    ``hook_seconds`` is the time that hooks took on the engine's thread, inside its steps and after them;
    ``step_seconds`` is that of the steps.
    """

    errors: Annotated[dict[Name, int], msgspec.Meta(max_length=MAX_HOOKS)]
    off: Annotated[dict[Name, Text], msgspec.Meta(max_length=MAX_HOOKS)]
    dropped_frames: int
    hook_seconds: float
    step_seconds: float


class Report(Message, frozen=True, kw_only=True):
    """The engine's counters at ``monotonic`` (CLOCK_MONOTONIC seconds), taken between two steps. ``in_force``: what it
    has been ordered and is held to now.
    """

    sequence: int
    monotonic: float
    steps: int
    running: int
    waiting: int
    requests: int
    pool: PoolReport | None
    hooks: HookReport
    in_force: Annotated[tuple[LeaseRow, ...], msgspec.Meta(max_length=MAX_LEVERS)] = ()


class Heartbeat(Message, frozen=True, kw_only=True):
    """From the side thread: the process is alive although its engine thread has been silent so long. ``memory``: now
    and then, what the process has.
    """

    silent_seconds: float
    memory: OwnMemoryRow | None = None


class Order(Message, frozen=True, kw_only=True):
    """What the agent asks of an engine. ``check``: audit now and report. ``history``: record allocations for
    ``seconds``; only members whose environment allows it obey. ``lever``: what ``action`` says.
    """

    sequence: int
    kind: str
    seconds: float = 0.0
    action: ActionOrder | None = None


class SignedOrder(Message, frozen=True, kw_only=True):
    """``payload`` is an encoded :class:`Order`; ``mac`` signs it with the session's key."""

    payload: bytes
    mac: bytes


class OrderResult(Message, frozen=True, kw_only=True):
    """What became of an order."""

    sequence: int
    ok: bool
    detail: Text = ""


KINDS: dict[str, type[Message]] = {
    "banner": Banner,
    "challenge": Challenge,
    "proof": Proof,
    "hello": Hello,
    "report": Report,
    "detail": Detail,
    "member": MemberReport,
    "heartbeat": Heartbeat,
    "order": SignedOrder,
    "result": OrderResult,
    "action": ActionResult,
}
_NAMES = {cls: name for name, cls in KINDS.items()}


class _Frame(msgspec.Struct, array_like=True, frozen=True):
    version: int
    kind: str
    body: msgspec.Raw


_encoder = msgspec.msgpack.Encoder()
_frame_decoder = msgspec.msgpack.Decoder(_Frame)
_decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {name: msgspec.msgpack.Decoder(cls) for name, cls in KINDS.items()}
_order_decoder = msgspec.msgpack.Decoder(Order)
# Every float that is no number looks like this on the wire, and little else does: looking through all values of every
# message would take the agent longer than decoding it.
_MAY_NOT_BE_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]|\xca[\x7f\xff][\x80-\xff]")


def encode(message: Message) -> bytes:
    """Return the frame of ``message``; raises :class:`WireError` when it is too large to be sent."""
    body = msgspec.Raw(_encoder.encode(message))
    data = _encoder.encode(_Frame(WIRE_VERSION, _NAMES[type(message)], body))
    if len(data) > MAX_FRAME_BYTES:
        raise WireError("oversize", f"{len(data)} bytes, {MAX_FRAME_BYTES} allowed")
    return data


def decode(data: bytes) -> Message:
    """Return the message in a frame; raises :class:`WireError` with the reason, and nothing else."""
    if len(data) > MAX_FRAME_BYTES:
        raise WireError("oversize", f"more than {MAX_FRAME_BYTES} bytes")
    try:
        frame = _frame_decoder.decode(data)
        if frame.version != WIRE_VERSION:
            raise WireError("unknown_version", str(frame.version))
        decoder = _decoders.get(frame.kind)
        if decoder is None:
            raise WireError("unknown_kind", frame.kind[:32])
        message: Message = decoder.decode(frame.body)
        if _MAY_NOT_BE_FINITE.search(frame.body) and not _finite(message):
            raise WireError("malformed", "a number that is not finite")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise WireError("malformed", str(error)) from None
    return message


def _finite(value: object) -> bool:
    """Whether all floats in it are numbers: NaN and infinity would go on into sums, and are no JSON."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, msgspec.Struct):
        return all(_finite(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, tuple):
        return all(map(_finite, value))
    return True


def encode_order(order: Order) -> bytes:
    """Return the bytes of ``order`` that are signed."""
    return _encoder.encode(order)


def decode_order(payload: bytes) -> Order:
    """Return the order in a signed payload; raises :class:`WireError`."""
    try:
        return _order_decoder.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise WireError("malformed", str(error)) from None
