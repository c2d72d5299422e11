"""The only place that touches torch. Nothing here initialises CUDA, synchronises or allocates on a device.

Everything is probed: a name or an argument that this torch does not have is :class:`UnsupportedError` with the reason.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any

NATIVE = "native"
NOT_HERE = "no CUDA in this process"

Observer = Callable[[int, int, int, int], None]


class UnsupportedError(Exception):
    """This torch can't tell; the text says why."""


class Cuda:
    """torch's CUDA allocator as it is here. Methods other than :meth:`absent` need it to return nothing."""

    def absent(self) -> str:
        """Return why there is nothing to ask, or an empty string. torch is never imported for it."""
        torch = sys.modules.get("torch")
        cuda = getattr(torch, "cuda", None)
        ready = getattr(cuda, "is_initialized", None)
        if torch is None:
            return f"{NOT_HERE}: torch is not loaded"
        if ready is None:  # it is being imported
            return NOT_HERE
        if not hasattr(torch._C, "_cuda_memoryStats"):
            return f"{NOT_HERE}: this torch was built without it"
        return "" if ready() else f"{NOT_HERE}: nothing has used it yet"

    @cached_property
    def _torch(self) -> Any:
        return sys.modules["torch"]

    @cached_property
    def _c(self) -> Any:
        return self._torch._C

    def backend(self) -> str:
        """Return the allocator's name: native, cudaMallocAsync, or pluggable where a program has set its own."""
        ask = getattr(self._c, "_cuda_getAllocatorBackend", None)
        return NATIVE if ask is None else str(ask())

    def devices(self) -> list[int]:
        """Return the devices that this process has a context on."""
        has_context = getattr(self._c, "_cuda_hasPrimaryContext", None)
        every = range(self._torch.cuda.device_count())
        if has_context is not None:
            return [device for device in every if has_context(device)]
        return [device for device in every if self._reserved_peak(device)]

    def _reserved_peak(self, device: int) -> int:
        peak: int = self.stats(device).get("reserved_bytes", {}).get("all", {}).get("peak", 0)
        return peak

    def uuid(self, device: int) -> str:
        """Return the driver's name for a device; empty where this torch does not tell."""
        uuid = getattr(self._torch.cuda.get_device_properties(device), "uuid", None)
        return f"GPU-{uuid}" if uuid else ""

    def stats(self, device: int) -> dict[str, Any]:
        """Return the nested counters of a device."""
        stats: dict[str, Any] = self._c._cuda_memoryStats(device)
        return stats

    def snapshot(self) -> dict[str, Any]:
        """Return the segments (and the allocator's settings, where told) without traces, as torch's snapshot has them.

        Raises :class:`UnsupportedError` where traces would come along: that may take a second, the interpreter held.
        """
        if self.backend() != NATIVE:
            raise UnsupportedError(f"the {self.backend()} allocator has no segments to walk")
        if self._walks_without_traces:
            found: dict[str, Any] = self._c._cuda_memorySnapshot((0, 0, False))
            return found
        if self.recording() is not False:
            raise UnsupportedError("an allocation history is on, and this torch can't leave it out of a walk")
        return {"segments": self._torch.cuda.memory_snapshot()}

    @cached_property
    def _walks_without_traces(self) -> bool:
        return "include_traces" in _parameters_of(self._torch.cuda.memory_snapshot)

    def recording(self) -> bool | None:
        """Return whether a history of allocations is being recorded; None where this torch does not tell."""
        ask = getattr(self._c, "_cuda_isHistoryEnabled", None)
        return None if ask is None else bool(ask())

    def attach_observer(self, observer: Observer) -> None:
        """Have ``observer(device, requested, limit, device_free)`` called at each failure, on the thread that failed.

        There is no way to detach it. ``limit`` is the device's size, or the part of it that this process may take.
        """
        attach = getattr(self._c, "_cuda_attach_out_of_memory_observer", None)
        if attach is None:
            raise UnsupportedError("this torch has no observer of failed allocations")
        if self.backend() != NATIVE:
            raise UnsupportedError(f"the {self.backend()} allocator has no observers")
        attach(observer)

    def record(self, max_entries: int) -> None:
        """Begin to record allocations, the last ``max_entries``, with the Python lines that made them."""
        if self.backend() != NATIVE:
            raise UnsupportedError(f"the {self.backend()} allocator records no history")
        begin = getattr(self._torch.cuda.memory, "_record_memory_history", None)
        if begin is None:
            raise UnsupportedError("this torch records no history")
        if not {"context", "stacks", "max_entries"} <= _parameters_of(begin):
            raise UnsupportedError("this torch can't bound its history")
        begin(enabled="all", context="alloc", stacks="python", max_entries=max_entries)

    def traces(self) -> list[list[dict[str, Any]]]:
        """Return what was recorded, by device."""
        traces: list[list[dict[str, Any]]] = self._torch.cuda.memory._snapshot()["device_traces"]
        return traces

    def stop_recording(self) -> None:
        """End the recording."""
        self._torch.cuda.memory._record_memory_history(enabled=None)


def _parameters_of(function: Callable[..., Any]) -> set[str]:
    """The names of what ``function`` takes; none where it does not say."""
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()
