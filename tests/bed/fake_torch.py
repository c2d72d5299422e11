"""``torch`` as far as the probe touches it, over allocators that keep its rules: what a torch built for the CPU lacks.

The names, arguments and structures are torch's; ``without`` takes names away, as older torch does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from tests.bed.snapshots import GIB, AllocatorBed

_OBSERVER = Callable[[int, int, int, int], None]


class OutOfMemoryError(RuntimeError):
    """torch's, by name and base."""


class FakeTorch:
    """A module to put into ``sys.modules``. ``beds``: one allocator per device, each with a context.

    ``walks``: whether traces came along, for each time that segments were asked for.
    """

    __version__ = "2.13.0"

    def __init__(
        self,
        *beds: AllocatorBed,
        backend: str = "native",
        without: Iterable[str] = (),
        ready: bool = True,
        flags: bool = True,
    ) -> None:
        self.beds = beds or (AllocatorBed(capacity=GIB),)
        self.backend = backend
        self.ready = ready
        self.observers: list[_OBSERVER] = []
        self.recording = False
        self.walks: list[bool] = []
        self.recorded_with: dict[str, Any] = {}
        self.retries = self.ooms = 0
        self.contexts = {bed.device for bed in self.beds}
        names = {
            "_cuda_memoryStats": self._stats,
            "_cuda_memorySnapshot": self._snapshot,
            "_cuda_getAllocatorBackend": lambda: self.backend,
            "_cuda_hasPrimaryContext": lambda device: device in self.contexts,
            "_cuda_isHistoryEnabled": lambda: self.recording,
            "_cuda_attach_out_of_memory_observer": self._attach,
        }
        self._C = SimpleNamespace(**{name: value for name, value in names.items() if name not in set(without)})
        self.cuda = SimpleNamespace(
            is_initialized=lambda: self.ready,
            device_count=lambda: len(self.beds),
            get_device_properties=lambda device: SimpleNamespace(uuid=f"0000-{device}"),
            memory_snapshot=self._with_flag if flags else self._without_flag,
            memory=SimpleNamespace(_record_memory_history=self._record, _snapshot=lambda: self._snapshot(None)),
        )

    # -- what a program does ------------------------------------------------------------------------------

    def empty(self, size: int, device: int = 0, **where: Any) -> int:
        """Allocate; where it fails, call the observers and raise as torch does."""
        bed = self.beds[device]
        try:
            return bed.alloc(size, **where)
        except MemoryError:
            self.ooms += 1
            self.retries += 1
            for observer in self.observers:
                observer(device, size, bed.capacity, bed.capacity - bed.reserved)
            raise OutOfMemoryError(self.message(size, device)) from None

    def message(self, size: int, device: int) -> str:
        """The words of torch 2.5 and later."""
        bed = self.beds[device]
        allocated = _sum(bed, "allocated_size")
        return (
            f"CUDA out of memory. Tried to allocate {_words(size)}. GPU {device} has a total capacity of "
            f"{_words(bed.capacity)} of which {_words(bed.capacity - bed.reserved)} is free. Including non-PyTorch "
            f"memory, this process has {_words(bed.reserved)} memory in use. Of the allocated memory "
            f"{_words(allocated)} is allocated by PyTorch, and {_words(bed.reserved - allocated)} is reserved by "
            "PyTorch but unallocated."
        )

    # -- what the probe asks ------------------------------------------------------------------------------

    def _stats(self, device: int) -> dict[str, Any]:
        if self.backend == "pluggable":
            raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats")
        bed = self.beds[device]
        sizes = {
            "allocated_bytes": _sum(bed, "allocated_size"),
            "reserved_bytes": bed.reserved,
            "active_bytes": _sum(bed, "active_size"),
            "requested_bytes": _sum(bed, "requested_size"),
            "inactive_split_bytes": bed.reserved - _sum(bed, "active_size"),
        }
        if self.backend != "native":
            sizes = {name: size if name in ("allocated_bytes", "reserved_bytes") else 0 for name, size in sizes.items()}
        stats: dict[str, Any] = {
            name: {
                pool: {"current": part, "peak": part, "allocated": part, "freed": 0}
                for pool, part in (("all", size), ("small_pool", 0), ("large_pool", size))
            }
            for name, size in sizes.items()
        }
        return stats | {
            "num_alloc_retries": self.retries,
            "num_ooms": self.ooms,
            "num_device_alloc": len(bed.segments),
            "num_device_free": 0,
            "max_split_size": -1,
        }

    def _snapshot(self, asked: tuple[int, int, bool] | None) -> dict[str, Any]:
        traces = asked is None or asked[2]
        self.walks.append(traces)
        found = [bed.snapshot() for bed in self.beds]
        return found[0] | {
            "segments": [segment for each in found for segment in each["segments"]],
            "device_traces": [bed.trace if traces and self.recording else [] for bed in self.beds],
        }

    def _with_flag(self, mempool_id: Any = None, include_traces: bool = True) -> list[Any]:
        segments: list[Any] = self._snapshot((0, 0, include_traces))["segments"]
        return segments

    def _without_flag(self) -> list[Any]:
        segments: list[Any] = self._snapshot(None)["segments"]
        return segments

    def _attach(self, observer: _OBSERVER) -> None:
        self.observers.append(observer)

    def _record(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = 2**63 - 1,
    ) -> None:
        self.recording = enabled is not None
        if self.recording:
            self.recorded_with = {"context": context, "stacks": stacks, "max_entries": max_entries}
            for bed in self.beds:
                bed.trace.clear()


def _sum(bed: AllocatorBed, key: str) -> int:
    return sum(segment[key] for segment in bed.snapshot()["segments"])


def _words(size: int) -> str:
    return f"{size / 2**20:.2f} MiB" if size < GIB else f"{size / GIB:.2f} GiB"
