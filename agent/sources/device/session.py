"""The library between nvmlInit and nvmlShutdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.sources.base import SourceError
from agent.sources.device import nvml as words
from agent.sources.device.lane import Call, Key, Lane

INIT = Key("", "init")
STARTING = "the driver has not answered to nvmlInit yet"


class Session:
    """Begins on the lane, for nvmlInit takes seconds where nothing keeps the driver loaded, and may hang.

    ``number`` grows with each beginning, ``count`` is the driver's number of GPUs then.
    """

    def __init__(self, library: str, lane: Lane) -> None:
        self.nvml: Any = None
        self.number = 0
        self.count = 0
        self.driver: str | None = None
        self.cuda: str | None = None
        self._library = library
        self._lane = lane
        self._open = False
        self._again = True  # set to False last, for a beginning may end long after it was given up

    def ensure(self, budget: float) -> None:
        """Have a session, a new one after ``restart``.

        Raises :class:`SourceError` where there is none, or none yet.
        """
        if not self._again:
            return
        if self.nvml is None:
            self.nvml = words.load(self._library)
        answer = self._lane.make([Call(INIT, self._begin)], budget).get(INIT)
        if answer is not None and answer.error is not None:
            raise SourceError(words.why(answer.error)) from None
        if self._again:
            raise SourceError(STARTING)

    def restart(self) -> None:
        """Shut the library down and begin anew at the next ``ensure``: only so does it see GPUs that came or went."""
        self._again = True

    def close(self) -> None:
        """Shut the library down; waits for nothing."""
        self._lane.close(self._end)

    def _begin(self) -> None:
        self._end()
        self.nvml.nvmlInit()
        self._open = True
        self.count = self.nvml.nvmlDeviceGetCount()
        self.driver = _text(self.nvml.nvmlSystemGetDriverVersion)
        self.cuda = _cuda(self.nvml.nvmlSystemGetCudaDriverVersion)
        self.number += 1
        self._again = False

    def _end(self) -> None:
        if self._open:
            self._open = False
            self.nvml.nvmlShutdown()


def _text(ask: Callable[[], str]) -> str | None:
    try:
        return str(ask())
    except Exception:
        return None


def _cuda(ask: Callable[[], int]) -> str | None:
    try:
        number = int(ask())
    except Exception:
        return None
    return f"{number // 1000}.{number % 1000 // 10}"
