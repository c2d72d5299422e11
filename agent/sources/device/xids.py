"""XIDs: the errors that the driver reports as events, for all GPUs by one event set."""

from __future__ import annotations

import ctypes
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from agent.sources.device.lane import Answer, Call, Key, Lane
from agent.sources.device.names import XIDS
from agent.sources.device.nvml import TIMEOUT, code_of, unsupported, why
from agent.sources.device.state import Xid

if TYPE_CHECKING:
    from agent.sources.device.gpu import Gpu

logger = logging.getLogger("kvtide.agent")

CODES = 32  # of one GPU, each counted; what comes then is counted as OTHER
OTHER = 0
EVENTS = 64  # in one reading; the driver keeps the rest for the next
FIELD = "xid"
KEY = Key("", FIELD)


class XidCounts:
    """The XIDs of one GPU since the agent watches; ``unavailable`` and ``unsupported`` say why they are not heard."""

    def __init__(self) -> None:
        self.unavailable: dict[str, str] = {}
        self.unsupported: dict[str, str] = {}
        self._counts: dict[int, int] = {}
        self._last: dict[int, float] = {}

    def add(self, code: int, at: float) -> bool:
        """Count one event at ``at``, Unix seconds; return whether it is the first of its code."""
        if code not in self._counts and len(self._counts) >= CODES:
            code = OTHER
        first = code not in self._counts
        self._counts[code] = self._counts.get(code, 0) + 1
        self._last[code] = at
        return first

    def heard(self) -> None:
        """Events come."""
        self.unavailable, self.unsupported = {}, {}

    def not_heard(self, reason: str, never: bool) -> None:
        """Events don't come; ``never``: this GPU or driver has none."""
        self.unavailable, self.unsupported = ({}, {FIELD: reason}) if never else ({FIELD: reason}, {})

    def rows(self) -> tuple[Xid, ...] | None:
        """Return what was counted, None where nothing can be heard and nothing was."""
        if not self._counts and (self.unavailable or self.unsupported):
            return None
        return tuple(
            Xid(code=code, count=count, last_at=self._last[code]) for code, count in sorted(self._counts.items())
        )


class Events:
    """Asks without waiting, within a reading. ``wall``: Unix seconds."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._set: Any = None
        self._listening: dict[int, Gpu] = {}
        # A queue, so that what a call that hung has heard is not lost when it returns.
        self._heard: deque[tuple[Gpu, int, float]] = deque(maxlen=1024)

    def forget(self) -> None:
        """The library was shut down: its event set is gone."""
        self._set, self._listening = None, {}

    def call(self, nvml: Any, gpus: Iterable[Gpu]) -> Call:
        """Return the question for new events of ``gpus``."""
        present = [gpu for gpu in gpus if not gpu.lost]
        return Call(KEY, lambda: self._ask(nvml, present))

    def take(self, answer: Answer | None, lane: Lane, gpus: Iterable[Gpu]) -> None:
        """Count what was heard; where nothing can be, say so of ``gpus``."""
        while self._heard:
            gpu, code, at = self._heard.popleft()
            if gpu.xids.add(code, at):
                logger.warning("GPU %s: first XID %d%s", gpu.label, code, f", {XIDS[code]}" if code in XIDS else "")
        if answer is not None and answer.error is None:
            return
        for gpu in gpus:
            if answer is None or answer.error is None:
                gpu.xids.not_heard(lane.why(KEY), never=False)
            else:
                gpu.xids.not_heard(why(answer.error), unsupported(answer.error))

    def _ask(self, nvml: Any, gpus: list[Gpu]) -> None:
        # One that is lost stays in the set: that is when its XIDs come.
        if self._set is None or not all(_address(gpu.handle) in self._listening for gpu in gpus):
            self._listen(nvml, gpus)
        for _ in range(EVENTS):
            try:
                event = nvml.nvmlEventSetWait_v2(self._set, 0)
            except nvml.NVMLError as error:
                if code_of(error) == TIMEOUT:
                    return
                self._drop(nvml)
                raise
            gpu = self._listening.get(_address(event.device))
            if gpu is not None and event.eventType == nvml.nvmlEventTypeXidCriticalError:
                self._heard.append((gpu, int(event.eventData), self._wall()))

    def _listen(self, nvml: Any, gpus: list[Gpu]) -> None:
        self._drop(nvml)
        self._set = nvml.nvmlEventSetCreate()
        for gpu in gpus:
            self._listening[_address(gpu.handle)] = gpu
            try:
                nvml.nvmlDeviceRegisterEvents(gpu.handle, nvml.nvmlEventTypeXidCriticalError, self._set)
                gpu.xids.heard()
            except nvml.NVMLError as error:
                gpu.xids.not_heard(why(error), unsupported(error))

    def _drop(self, nvml: Any) -> None:
        found, self._set, self._listening = self._set, None, {}
        if found is not None:
            nvml.nvmlEventSetFree(found)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
