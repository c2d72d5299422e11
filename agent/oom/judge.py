"""Why an allocation failed, and what would help: a pure function of what is known of it.

Four causes that need four different remedies look the same in a log: the memory is truly out; it is free, but in
pieces; somebody else holds it; it is free and can't be used. The facts may be from a message, from what the observer
read in that moment, from the waterfall, or from a memory snapshot (:mod:`agent.snapshot.oom`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from agent.oom.facts import Foreign, OomFacts, facts_of
from agent.oom.message import OomMessage, parse
from agent.units import human_bytes
from engine_hooks.allocator import MemoryEvent

# host: the kernel killed a process for host memory. unknown: the message has no numbers, and nobody else has.
Cause = Literal["out", "fragmented", "foreign", "unusable", "host", "unknown"]
CAUSES: tuple[Cause, ...] = ("out", "fragmented", "foreign", "unusable", "host", "unknown")

_PIECES = (
    "Set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF in older torch), or free and allocate in "
    "fewer sizes."
)
_CONTEXT = 512 * 2**20  # a CUDA context is of about that size: each process that touches the device has one
_TOGETHER = 0.25  # of what was asked for: with less in pieces it was not the pieces
_BARELY = 1.02  # torch asks the driver for whole pages, and the numbers are of a moment before


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """``sentence`` says what happened, in numbers; ``remedy`` what would help."""

    cause: Cause
    sentence: str
    remedy: str


class _Asked(NamedTuple):
    """Facts of an allocation whose size and the device's free memory are known."""

    requested: int
    free: int
    facts: OomFacts

    @property
    def words(self) -> str:
        return f"{human_bytes(self.requested)} were asked for"

    @property
    def left(self) -> str:
        return f"{human_bytes(self.free)} are free"

    @property
    def inside(self) -> int | None:
        """What torch keeps and nothing uses, where all may allocate."""
        return self.facts.unallocated if self.facts.shared_free is None else self.facts.shared_free

    @property
    def others(self) -> int:
        """What other processes hold beyond a context each."""
        held = self.facts.others or 0
        return held if held > _CONTEXT * self.facts.other_count else 0

    @property
    def barely(self) -> bool:
        """Whether it was just enough by the numbers, and as much again lies in pieces."""
        return self.requested <= self.free < _BARELY * self.requested and (self.inside or 0) >= self.requested / 2


def judge(message: str, event: MemoryEvent | None = None, foreign: Foreign | None = None) -> Judgement | None:
    """Return the judgement on a message and, where there is one, on what the observer read; None for what is no OOM.

    ``foreign``: what others hold of the device, where it is known apart from the message.
    """
    said = parse(message)
    if said is None and (event is None or event.requested_bytes is None):
        return None
    return judge_facts(said, facts_of(said, event, foreign))


def judge_facts(said: OomMessage | None, facts: OomFacts) -> Judgement:
    """Return the judgement on ``facts``; ``said``: the message that they are from, if any."""
    before = _before_serving(said) if said is not None else None
    if before is not None:
        return before
    if facts.requested is None or facts.free is None:
        return _without_numbers(said, facts)
    asked = _Asked(facts.requested, facts.free, facts)
    return _limited(asked) or _unusable(asked) or _fragmented(asked) or _foreign(asked) or _out(asked)


def _limited(asked: _Asked) -> Judgement | None:
    """The device has room, this process may not take it."""
    facts = asked.facts
    if facts.limit is None or facts.reserved is None or asked.free < asked.requested:
        return None
    if facts.reserved + asked.requested <= facts.limit:
        return None
    return Judgement(
        cause="unusable",
        sentence=f"{asked.words} and {asked.left} on the device, but this process may take no "
        f"more than {human_bytes(facts.limit)} and has {human_bytes(facts.reserved)}.",
        remedy="Raise the limit that was set by torch.cuda.set_per_process_memory_fraction.",
    )


def _unusable(asked: _Asked) -> Judgement | None:
    facts = asked.facts
    if asked.barely:
        return None
    if asked.free >= asked.requested:
        # A limit that is known was looked at before; where the device's size is not known, no limit is.
        limit = "" if facts.total is not None else "A memory limit (set_per_process_memory_fraction) may be set. "
        return Judgement(
            cause="unusable",
            sentence=f"{asked.words} and {asked.left} on the device: the driver did not give them.",
            remedy=f"{limit}Torch asks for more than the tensor (rounding, whole segments), drivers keep a part back "
            "(WSL, Windows, MIG, a limit of MPS), and another process may have taken it in that moment. Leave more "
            "room: lower gpu_memory_utilization.",
        )
    if facts.largest_free is not None and facts.largest_free >= asked.requested:
        return Judgement(
            cause="unusable",
            sentence=f"{asked.words} and torch has a free block of {human_bytes(facts.largest_free)}, which belongs to "
            "another stream or may not be split.",
            remedy="Use fewer streams for such tensors, or raise max_split_size_mb.",
        )
    if facts.unallocated is not None and facts.shared_free is not None:
        apart = facts.unallocated - facts.shared_free
        if apart >= asked.requested:
            return Judgement(
                cause="unusable",
                sentence=f"{asked.words} and torch keeps {human_bytes(apart)} free in private pools, where nothing "
                "else may allocate.",
                remedy="Capture fewer CUDA graphs (cudagraph_capture_sizes), or let them share a pool.",
            )
    return None


def _fragmented(asked: _Asked) -> Judgement | None:
    facts, inside = asked.facts, asked.inside
    if inside is None:
        return None
    kept = f"torch keeps {human_bytes(inside)} that nothing uses"
    if inside >= asked.requested:
        largest = "" if facts.largest_free is None else f", the largest block {human_bytes(facts.largest_free)}"
        return Judgement(
            cause="fragmented",
            sentence=f"{asked.words}: {kept}, in pieces too small{largest}; {asked.left} on the device.",
            remedy=_PIECES if facts.expandable is not True else _DESPITE,
        )
    together = inside + asked.free >= asked.requested and inside >= _TOGETHER * asked.requested
    if together and (asked.barely or asked.others + asked.free < asked.requested):
        return Judgement(
            cause="fragmented",
            sentence=f"{asked.words}: {asked.left} on the device and {kept}; together they would do, apart they don't.",
            remedy=_PIECES if facts.expandable is not True else _DESPITE,
        )
    return None


_DESPITE = "Expandable segments are on already: private pools and small blocks stay apart. Leave more head-room."


def _foreign(asked: _Asked) -> Judgement | None:
    """Without the others there would have been room."""
    facts = asked.facts
    if asked.others and asked.free + asked.others >= asked.requested:
        who = "another process holds" if facts.other_count == 1 else f"{facts.other_count} other processes hold"
        return Judgement(
            cause="foreign",
            sentence=f"{asked.words}, {asked.left}, and {who} {human_bytes(asked.others)} of this device.",
            remedy="Move the others to another device, or give each its share: lower gpu_memory_utilization here.",
        )
    if facts.hidden and asked.free + facts.hidden >= asked.requested:
        return Judgement(
            cause="foreign",
            sentence=f"{asked.words}, {asked.left}, and {human_bytes(facts.hidden)} of this device are held by "
            "something that is not this process's torch.",
            remedy="Look for other processes and containers on this device (kvtide status --waterfall), and for memory "
            "outside torch: communicators, registered buffers.",
        )
    return None


def _out(asked: _Asked) -> Judgement:
    facts = asked.facts
    of = "" if facts.total is None else f" of {human_bytes(facts.total)}"
    uses = "" if facts.allocated is None else f"; this process's tensors take {human_bytes(facts.allocated)}"
    graphs = f", {human_bytes(facts.private)} of it private pools such as CUDA graphs'" if facts.private else ""
    return Judgement(
        cause="out",
        sentence=f"{asked.words}, {human_bytes(asked.free)}{of} are free{uses}{graphs}: the memory is truly out.",
        remedy="Less must be held: a lower gpu_memory_utilization leaves room for what is not the KV cache; fewer "
        "sequences or tokens per batch, a shorter context, a smaller model or more devices.",
    )


def _before_serving(said: OomMessage) -> Judgement | None:
    """What vLLM and the kernel say in words of their own."""
    if said.source == "host":
        return Judgement(
            cause="host",
            sentence="The kernel killed a process because its group's or the host's memory was out: not the device's.",
            remedy="Raise the memory limit of the container or the group, or find what grows in it.",
        )
    if said.source == "startup":
        have = "less" if said.free is None else human_bytes(said.free)
        want = "" if said.needed is None else f" where {human_bytes(said.needed)} were to be taken"
        return Judgement(
            cause="foreign",
            sentence=f"At the start {have} of the device were free{want}: something else is on it.",
            remedy="End the other processes, one of an earlier run perhaps, or lower gpu_memory_utilization.",
        )
    if said.source == "profiling":
        return Judgement(
            cause="foreign",
            sentence="Another process gave back memory of this device while vLLM measured its own needs.",
            remedy="Start engines that share a device one after the other, each when the one before is ready.",
        )
    if said.source in ("kv_cache", "context"):
        numbers = ""
        if said.needed is not None and said.available is not None:
            numbers = f": {human_bytes(said.needed)} needed, {human_bytes(said.available)} left"
        return Judgement(
            cause="out",
            sentence=f"After weights and work space the KV cache has no room for one request of full length{numbers}.",
            remedy="Raise gpu_memory_utilization, lower max_model_len, or use a smaller model or more devices.",
        )
    return None


def _without_numbers(said: OomMessage | None, facts: OomFacts) -> Judgement:
    who = {
        "library": "A library (cuBLAS, cuDNN and the like) could not get its work space",
        "collective": "The collective library (NCCL) could not get its buffers",
        "driver": "The driver gave no memory",
    }.get(said.source if said is not None else "", "An allocation failed")
    kept = "" if facts.unallocated is None else f" torch keeps {human_bytes(facts.unallocated)} that nothing uses."
    return Judgement(
        cause="unknown",
        sentence=f"{who}, outside torch's allocator; the message has no numbers.{kept}",
        remedy="Such memory is taken beside torch's: leave room for it by a lower gpu_memory_utilization, and see who "
        "holds the device (kvtide status --waterfall).",
    )
