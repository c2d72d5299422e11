"""From plain data to a snapshot: the forms of torch 1.13 to 2.13, checked.

A list of segments, or a dict with ``segments`` and, newer, ``device_traces``, ``allocator_settings`` and
``external_annotations``. Blocks have ``frames``, or a ``history`` before torch 2.1. Keys that are not known are passed
over; what is missing is told in the snapshot's notes.
"""

from __future__ import annotations

from typing import Any

from agent.plain import plain
from agent.snapshot.checks import Checks, Place
from agent.snapshot.interning import Interning
from agent.snapshot.model import ACTIVE, AWAITING, DEFAULT_POOL, INACTIVE, Block, PoolId, Segment, Snapshot
from agent.snapshot.traces import Tally

_STATES = {
    "active_allocated": ACTIVE,
    "active_awaiting_free": AWAITING,
    "active_pending_free": AWAITING,
    "inactive": INACTIVE,
}
_SMALL_SEGMENT = 2 << 20
_SETTINGS = 40
_DEVICES = 256  # torch is built for 64 or 128


def parse(raw: Any, size: int, shared: bool = True) -> Snapshot:
    """Return the snapshot; raises ``SnapshotError`` with the place of what is wrong. Empties ``raw`` on the way.

    ``size``: of the file. ``shared``: whether equal frames are one object, as in a pickle.
    """
    checks = Checks(size)
    if type(raw) is list:
        raw = {"segments": raw}
    top = checks.row(raw, ("snapshot",))
    if "segments" not in top:
        keys = ", ".join(str(key)[:30] for key in list(top)[:6]) or "nothing"
        raise checks.wrong(("snapshot",), top, f"a list of segments, or a dict that has 'segments' (this has: {keys})")
    interning = Interning(checks, shared)
    rows = checks.rows(top.pop("segments"), ("segments",))
    segments = tuple([_segment(row, ("segments", n), checks, interning) for n, row in enumerate(rows)])
    tallies = []
    traces = checks.rows(top.pop("device_traces", []), ("device_traces",))
    if len(traces) > _DEVICES:
        raise checks.wrong(("device_traces",), traces, f"of {_DEVICES} devices at most")
    for device, trace in enumerate(traces):
        place = ("device_traces", device)
        entries = checks.rows(trace, place)
        if entries:
            tallies.append(Tally(device, entries, place, checks, interning))
            entries.clear()
    stacks = interning.result()
    settings = top.get("allocator_settings")
    return Snapshot(
        segments=segments,
        traces=tuple(tally.facts(stacks) for tally in tallies),
        stacks=stacks,
        settings={} if settings is None else _settings(checks.row(settings, ("allocator_settings",))),
        notes=checks.notes(),
    )


def _segment(row: Any, place: Place, checks: Checks, interning: Interning) -> Segment:
    row = checks.row(row, place)
    number = checks.number
    size = number(row, "total_size", place)
    address = number(row, "address", place)
    if "device" not in row:
        checks.note("segments don't say their device: taken as device 0")
    kind = row.get("segment_type")
    if kind is None:
        checks.note("segments don't say whether they are small or large: taken from their size")
    elif kind not in ("small", "large"):
        raise checks.wrong((*place, "segment_type"), kind, "small or large")
    expandable = row.get("is_expandable")
    if expandable is not None and type(expandable) is not bool:
        raise checks.wrong((*place, "is_expandable"), expandable, "true or false")
    blocks = _blocks(row.get("blocks"), (*place, "blocks"), address, checks, interning)
    total = sum([block.size for block in blocks])
    if total != size:
        checks.note(
            f"segments[{place[1]}]: blocks add up to {total:,} bytes, total_size is {size:,}: the blocks are believed"
        )
    return Segment(
        device=_device(number(row, "device", place, 0), place, checks),
        address=address,
        size=total,
        stream=number(row, "stream", place, 0),
        small=size <= _SMALL_SEGMENT if kind is None else kind == "small",
        pool=_pool(row.get("segment_pool_id"), (*place, "segment_pool_id"), checks),
        expandable=expandable,
        blocks=blocks,
    )


def _blocks(value: Any, place: Place, address: int, checks: Checks, interning: Interning) -> tuple[Block, ...]:
    blocks = []
    for n, row in enumerate(checks.rows(value, place)):
        if type(row) is not dict:
            raise checks.wrong((*place, n), row, "a dict")
        size = row.get("size")
        if type(size) is not int or not 0 <= size < 1 << 63:
            size = checks.number(row, "size", (*place, n))
        name = row.get("state")
        state = _STATES.get(name, -1) if type(name) is str else -1
        if state < 0:
            raise checks.wrong((*place, n, "state"), name, f"one of {', '.join(_STATES)}")
        frames, requested = row.get("frames"), row.get("requested_size")
        if state != INACTIVE and "history" in row:
            frames, requested = _history(row["history"], (*place, n, "history"), checks)
        if requested is None:
            requested = 0 if state == INACTIVE else size
            if state != INACTIVE:
                checks.note("requested sizes are not recorded: rounding is not known")
        elif type(requested) is not int or requested < 0:
            raise checks.wrong((*place, n, "requested_size"), requested, "an integer of 0 or more")
        at = row.get("address", address)
        if type(at) is not int or at < 0:
            raise checks.wrong((*place, n, "address"), at, "an integer of 0 or more")
        # A free block keeps the stack of its last use in some versions: nobody holds it.
        stack = 0 if state == INACTIVE else interning.number(frames, place, n)
        blocks.append(Block(at, size, 0 if state == INACTIVE else requested, state, stack))
        address += size
    return tuple(blocks)


def _device(number: int, place: Place, checks: Checks) -> int:
    if number >= _DEVICES:
        raise checks.wrong((*place, "device"), number, f"less than {_DEVICES}")
    return number


def _history(value: Any, place: Place, checks: Checks) -> tuple[Any, int | None]:
    """Return the frames and the requested size of a block's newest use."""
    rows = checks.rows(value, place)
    if not rows:
        return None, None
    newest = checks.row(rows[0], (*place, 0))
    return newest.get("frames"), checks.number(newest, "real_size", (*place, 0))


def _pool(value: Any, place: Place, checks: Checks) -> PoolId:
    if value is None:
        return DEFAULT_POOL
    if type(value) in {list, tuple} and len(value) == 2 and all(type(part) is int for part in value):
        return (value[0], value[1])
    raise checks.wrong(place, value, "a pair of integers")


def _settings(row: dict[Any, Any]) -> dict[str, str]:
    pairs = list(row.items())[:_SETTINGS]
    return {
        plain(str(key)[:60]): plain(str(value)[:200])
        for key, value in pairs
        if isinstance(value, str | int | float | bool)
    }
