"""Memory that grows and is given to nobody: on the host, or on a device through torch."""

from __future__ import annotations

import mmap
from typing import Any

from kvtide_chaos import quantities
from kvtide_chaos.injector import Injector

# Smaller steps would be rounded up to pages by the system and counted as less than they cost.
LEAST_STEP_BYTES = 64 * 1024


class MemoryLeakInjector(Injector):
    """Holds ``rate`` more memory each second, up to ``limit``, and all of it until the end.

    ``where`` is ``host`` or a torch device such as ``cuda:0``; torch must be installed for the latter, and then the
    memory belongs to this process, as a neighbour's would. What is taken is written to, so it is truly resident.
    """

    def __init__(
        self, rate: str = "10MB/s", *, limit: str | int = "1GiB", where: str = "host", duration: str | float = "10m"
    ) -> None:
        super().__init__(duration)
        self.bytes_per_second = quantities.bytes_per_second(rate)
        self.limit_bytes = quantities.byte_count(limit)
        self.where = where
        self._held: list[Any] = []
        self._leaked_bytes = 0
        self._torch: Any = None

    @property
    def leaked_bytes(self) -> int:
        """Bytes that are held at this moment."""
        return self._leaked_bytes

    def _begin(self) -> None:
        if self.where == "host":
            return
        try:
            import torch
        except ImportError as error:
            raise RuntimeError(f"memory of {self.where} is taken through torch, which is not installed here") from error
        torch.empty(1, device=self.where)  # an unknown device is the caller's mistake: said at once, here
        self._torch = torch

    def _step(self, elapsed: float) -> None:
        due = min(self.limit_bytes, int(elapsed * self.bytes_per_second)) - self._leaked_bytes
        at_the_end = self._leaked_bytes + due == self.limit_bytes
        if due >= LEAST_STEP_BYTES or (at_the_end and due > 0):
            self._held.append(self._take(due))
            self._leaked_bytes += due

    def _take(self, count: int) -> Any:
        if self._torch is not None:
            return self._torch.empty(count, dtype=self._torch.uint8, device=self.where).fill_(1)
        taken = mmap.mmap(-1, count)
        for page in range(0, count, mmap.PAGESIZE):
            taken[page] = 1
        return taken

    def _take_back(self) -> None:
        for piece in self._held:
            if isinstance(piece, mmap.mmap):
                piece.close()
        self._held.clear()
        self._leaked_bytes = 0
        if self._torch is not None and self.where.startswith("cuda"):
            self._torch.cuda.empty_cache()
