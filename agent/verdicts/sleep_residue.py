"""sleep_residue: an engine sleeps, and its processes still hold memory of the GPU that others count on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agent.plain import plain
from agent.retained import count_of, listed
from agent.state import AgentState, MemberState
from agent.subject import Subject
from agent.units import human_bytes
from agent.verdicts.base import Finding, View
from engine_hooks.allocator import AllocatorRow

HALF_AWAKE_SECONDS = 300.0
SHARE = 0.10  # of what the process had when awake; contexts, graphs and libraries stay and are small beside it

REMEDY = (
    "Do not start another engine on this memory. What sleep mode did not make it can't unmap (an encoder's weights, "
    "graphs, buffers of a library): end the engine, if the memory is needed."
)


class SleepResidue:
    """Fires where the KV cache is unmapped and a process still holds more than contexts need.

    An engine that is half awake (weights back, no KV cache yet) is being woken up; only one that stays so is a fault.
    """

    kind = "sleep_residue"
    confirm_seconds = 30.0
    clear_seconds = 0.0
    of_absence = False

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the engines that sleep and hold memory all the same."""
        for engine in view.state.engines:
            least = view.policy.residue.sleep_bytes
            left = [_left(member, view.state, least) for member in engine.members if member.up]
            if held := [each for each in left if each is not None]:
                yield Subject(scope="engine", engine=engine.engine), _finding(held)


class _Left(NamedTuple):
    """Bytes of one process: all that it holds, and by tag what sleep mode manages and has not unmapped."""

    size: int
    mapped: dict[str, int]


def _finding(left: Sequence[_Left]) -> Finding:
    total = sum(each.size for each in left)
    mapped: Counter[str] = Counter()
    for each in left:
        mapped.update(each.mapped)
    who = "its process still holds" if len(left) == 1 else f"{count_of(len(left), 'rank')} still hold"
    sentence = f"The engine sleeps, and {who} {human_bytes(total)} on the GPU"
    if mapped:
        sentence += f", of it {listed(f'{human_bytes(size)} of {plain(tag)}' for tag, size in sorted(mapped.items()))}"
    evidence = {"residue_bytes": float(total), "ranks": float(len(left))}
    return Finding(f"{sentence}.", REMEDY, evidence, "warn", HALF_AWAKE_SECONDS if mapped else None)


def _left(member: MemberState, state: AgentState, least: int) -> _Left | None:
    """Return what a sleeping process holds, None where it is awake, holds little, or it can't be told."""
    row = member.allocator.row if member.allocator else None
    if row is None or not asleep(row):
        return None
    unmapped = sum(tag.bytes - (tag.mapped_bytes or 0) for tag in row.tags)
    left = _by_driver(member, state)
    if left is None:
        left = sum(device.reserved_bytes or 0 for device in row.devices) - unmapped
    if left <= max(least, SHARE * (left + unmapped)):
        return None
    return _Left(left, {tag.tag: tag.mapped_bytes for tag in row.tags if tag.mapped_bytes})


def asleep(row: AllocatorRow) -> bool:
    """Return whether something that an engine can't run without is not on the device."""
    return any(tag.bytes and tag.mapped_bytes == 0 for tag in row.tags)


def _by_driver(member: MemberState, state: AgentState) -> int | None:
    """Return what the driver books on the process, where pids here are those that it speaks of."""
    if state.device is None or state.host is None or not state.host.host_pids or member.pid <= 0:
        return None
    rows = [
        row
        for gpu in state.device.gpus
        for each in (gpu, *gpu.instances)
        if each.processes is not None
        for row in each.processes.rows
        if row.pid == member.pid and row.used_bytes is not None
    ]
    return sum(row.used_bytes or 0 for row in rows) if rows else None
