"""The probe of one process: it reads torch's allocator for whichever member of the process speaks for it.

All of it runs on that member's side thread, but for what the threads that fail call: :meth:`Probe.caught` and the
observer of failed allocations. Those never raise, and what they do is bounded.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from engine_hooks.allocator import AllocatorRow, HistoryRow, MemoryEvent, SegmentsRow, TagRow, WalkRow
from engine_hooks.guard import Guard
from engine_hooks.settings import Settings
from engine_hooks.torch.configuration import configuration_of
from engine_hooks.torch.cuda import NATIVE, Cuda, UnsupportedError
from engine_hooks.torch.errors import chain, classify
from engine_hooks.torch.events import Events
from engine_hooks.torch.recording import Recording
from engine_hooks.torch.segments import rows_of
from engine_hooks.torch.snapshots import OFF, Snapshots
from engine_hooks.torch.stats import row_of, size_of
from engine_hooks.torch.tags import allocator, pools_by_id, tag_rows

WALK_SECONDS = 5.0
DUTY = 0.002  # of the time at most: a walk holds the interpreter
SLOW_WALK_SECONDS = 1.0  # one that takes longer is not made while an allocation fails
SEND_SECONDS = 0.2
_SEEN = "__kvtide_seen__"


class Speaker(Protocol):
    """A member that reports for the process."""

    def speak(self) -> bool:
        """Send what has happened, at once and without waiting, from any thread; return whether there is a link."""
        ...

    def connecting(self) -> bool:
        """Return whether the first attempt to find the agent is still under way."""
        ...


def _nobody() -> None:
    return None


class Probe:
    """What torch's allocator does here. ``cuda`` is the boundary to torch."""

    def __init__(self, settings: Settings, cuda: Cuda | None = None) -> None:
        self.pid = os.getpid()
        self.events = Events()
        self._cuda = cuda or Cuda()
        self._guard = Guard()
        self._recording = Recording(self._cuda, allowed=settings.history)
        self._snapshots = Snapshots(settings.snapshot_dir)
        self._has_folder = settings.snapshot_dir is not None
        self._speaker: Callable[[], Speaker | None] = _nobody
        self._released: weakref.WeakSet[Speaker] = weakref.WeakSet()
        self._observing = False
        self._unsupported: dict[str, str] = {}
        self._uuids: dict[int, str] = {}
        self._told: dict[str, Any] = {}
        self._next_walk = 0.0
        self._walk_seconds = 0.0
        self._tags: tuple[TagRow, ...] = ()
        self._spoke = -SEND_SECONDS
        self.unsent = False
        self._untold = False

    # -- who speaks ---------------------------------------------------------------------------------------

    def claim(self, speaker: Speaker) -> bool:
        """Return whether ``speaker`` reports for this process: the first one that asked, while it lives."""
        known = self._speaker()
        if known is not None:
            return known is speaker
        self._speaker = weakref.ref(speaker)
        # Looked at last: it may be released while its side thread is in here.
        if speaker in self._released:
            self._speaker = _nobody
            return False
        return True

    def release(self, speaker: Speaker) -> None:
        """Let another one speak, and this one never more; a recording ends, for nobody would tell of it."""
        self._released.add(speaker)
        if self._speaker() is speaker:
            self._speaker = _nobody
            self._guard.run("history", self._recording.stop)

    # -- the side thread ----------------------------------------------------------------------------------

    def row(self, now: float) -> AllocatorRow:
        """Return the allocator's counters now, with a walk over the segments when one is due."""
        absent = self._cuda.absent()
        if absent:
            return AllocatorRow(reason=absent)
        self._observe()
        backend = self._cuda.backend()
        rows = self._guard.run("counters", self._counters, native=backend == NATIVE) or []
        if backend != NATIVE:
            self._unsupported["counters"] = f"the {backend} allocator keeps none of its own but bytes, at most"
        walk = self._guard.run("walk", self._walk, now) if now >= self._next_walk else None
        configured = configuration_of(os.environ, self._told)
        return AllocatorRow(
            backend=backend[:64],
            settings=configured.text,
            expandable_segments=configured.expandable_segments,
            max_split_bytes=configured.max_split_bytes,
            garbage_collection_threshold=configured.garbage_collection_threshold,
            fields=min((fields for _, fields in rows), default=0),
            devices=tuple(row for row, _ in rows[:16]),
            walk=walk,
            tags=self._tags,
            unsupported={
                **self._unsupported,
                **{name: f"off after errors: {why}" for name, why in self._guard.off.items()},
            },
        )

    def _counters(self, *, native: bool) -> list[Any]:
        return [
            row_of(device, self._uuid(device), self._cuda.stats(device), native=native)
            for device in self._cuda.devices()
        ]

    def _uuid(self, device: int) -> str:
        if device not in self._uuids:
            self._uuids[device] = self._guard.run("uuid", self._cuda.uuid, device) or ""
        return self._uuids[device]

    def _walk(self, now: float) -> WalkRow | None:
        self._next_walk = now + WALK_SECONDS
        found = allocator()
        self._tags = (self._guard.run("tags", tag_rows, found) or ()) if found is not None else ()
        began = time.monotonic()
        devices = self._segments(found)
        if devices is None:
            return None
        self._walk_seconds = time.monotonic() - began
        period = max(WALK_SECONDS, self._walk_seconds / DUTY)
        self._next_walk = now + period
        return WalkRow(monotonic=now, seconds=self._walk_seconds, period_seconds=period, devices=devices)

    def _segments(self, found: Any) -> tuple[SegmentsRow, ...] | None:
        try:
            snapshot = self._cuda.snapshot()
        except UnsupportedError as error:
            self._unsupported["walk"] = str(error)
            return None
        self._unsupported.pop("walk", None)
        self._told = snapshot.get("allocator_settings") or {}
        names = (self._guard.run("tags", pools_by_id, found) or {}) if found is not None else {}
        return rows_of(snapshot["segments"], names)

    # -- recordings ---------------------------------------------------------------------------------------

    def record(self, seconds: float, now: float) -> str:
        """Begin to record allocations; return why not, or an empty string."""
        return self._recording.begin(seconds, now)

    def tick(self, now: float) -> None:
        """End a recording whose time is over; several times a second, whether an agent is there or not."""
        if self._recording.tick(now):
            self._untold = True

    def news(self, *, everything: bool, again: bool) -> tuple[tuple[MemoryEvent, ...], HistoryRow | None]:
        """Return what the agent is to be told beyond the counters.

        ``everything``: it has just come. ``again``: repeat what is new, for a frame may have been lost.
        """
        repeated = again and self._recording.recent()
        history = self._recording.outcome if everything or self._untold or repeated else None
        self._untold = False
        unsent, self.unsent = self.unsent, False
        if everything:
            return self.events.all(), history
        return self.events.recent() if unsent or again else (), history

    # -- the threads that fail ----------------------------------------------------------------------------

    def caught(self, where: str, error: BaseException, patience: float = 0.0) -> None:
        """Tell of ``error``, which ``where`` raised, if it is the device's or its memory's: once.

        ``patience``: seconds to wait for a link that is just being made, for the process may end with the error.
        """
        self._guard.run("caught", self._caught, where, error, patience)

    def _caught(self, where: str, error: BaseException, patience: float) -> None:
        if any(getattr(each, _SEEN, False) for each in chain(error)):
            return
        found = classify(error)
        if found is None:
            return
        self.events.raised(*found, where)
        with contextlib.suppress(AttributeError):  # one with slots is told twice
            setattr(error, _SEEN, True)
        speaker, ends = self._speaker(), time.monotonic() + patience
        while speaker is not None and speaker.connecting() and time.monotonic() < ends:
            time.sleep(0.01)
        self._speak()

    def _observe(self) -> None:
        if self._observing:
            return
        self._observing = True
        try:
            self._cuda.attach_observer(self._observer)
        except UnsupportedError as error:
            self._unsupported["observer"] = str(error)
        except Exception as error:
            self._guard.note("observer", error)
            self._unsupported["observer"] = "attaching it failed"

    def _observer(self, device: int, requested: int, limit: int, device_free: int) -> None:
        """Called by torch, without its lock, before it raises."""
        self._guard.run("observer", self._observed, device, requested, limit, device_free)

    def _observed(self, device: int, requested: int, limit: int, device_free: int) -> None:
        stats = self._guard.run("observer stats", self._cuda.stats, device) or {}
        row, _ = row_of(device, "", stats, native=True)
        values: dict[str, Any] = {"private_reserved_bytes": row.private_reserved_bytes}
        snapshot = self._guard.run("observer walk", self._look, values, device, requested, device_free)
        self.events.observed(
            MemoryEvent(
                sequence=0,
                kind="oom",
                at=0.0,
                device=device,
                requested_bytes=size_of(requested),
                limit_bytes=size_of(limit),
                device_free_bytes=size_of(device_free),
                allocated_bytes=row.allocated_bytes,
                reserved_bytes=row.reserved_bytes,
                expandable_segments=configuration_of(os.environ, self._told).expandable_segments,
                snapshot=snapshot or "writing it failed",
                **values,
            )
        )
        self._speak()

    def _look(self, values: dict[str, Any], device: int, requested: int, device_free: int) -> str:
        """Walk the segments and write them; fills ``values`` and returns the file, or why there is none."""
        if self._walk_seconds > SLOW_WALK_SECONDS:
            return f"a walk takes {self._walk_seconds:.1f} s here"
        try:
            snapshot = self._cuda.snapshot()
        except UnsupportedError as error:
            return str(error)
        for found in rows_of(snapshot["segments"], {}):
            if found.device == device:
                values["free_bytes"] = found.free_bytes
                values["largest_free_bytes"] = found.largest_free_bytes
                values["private_reserved_bytes"] = sum(pool.reserved_bytes for pool in found.private)
                values["private_active_bytes"] = sum(pool.active_bytes for pool in found.private)
        if not self._has_folder:
            return OFF
        try:
            return self._snapshots.write(snapshot, device, requested, device_free)[:400]
        except OSError as error:
            return f"KVTIDE_SNAPSHOT_DIR: {error.strerror}"

    def _speak(self) -> None:
        now = time.monotonic()
        speaker = self._speaker()
        if speaker is None or now - self._spoke < SEND_SECONDS or not speaker.speak():
            self.unsent = True
            return
        self._spoke = now


_probes: list[Probe] = []


def of_process(settings: Settings) -> Probe:
    """Return this process's probe; a forked child gets its own."""
    if not _probes or _probes[0].pid != os.getpid():
        _probes[:] = [Probe(settings)]
    return _probes[0]
