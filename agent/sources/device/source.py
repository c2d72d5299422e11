"""The source: one reading of all GPUs through NVML."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from agent.sources.base import SourceError
from agent.sources.config import DeviceConfig
from agent.sources.device.inventory import Inventory
from agent.sources.device.lane import Lane
from agent.sources.device.session import STARTING, Session
from agent.sources.device.state import DevicesState, GpuState
from agent.sources.device.xids import KEY, Events

logger = logging.getLogger("kvtide.agent")

READING_SECONDS = 2.0  # a reading takes about so long at most, whatever hangs
NO_DRIVER_SECONDS = 30.0  # from one look for a driver to the next where there is none that works
AGAIN_SECONDS = 10.0  # after a loss the library begins anew, then ever more seldom
AGAIN_AT_MOST_SECONDS = 300.0


class DeviceSource:
    """Reads GPUs; ``clock``: monotonic seconds."""

    NAME = "device"
    timeout = 3 * READING_SECONDS

    def __init__(self, config: DeviceConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.period = self._period = config.period_seconds
        self._clock = clock
        self._lane = Lane(config.call_timeout_seconds)
        self._session = Session(config.library, self._lane)
        self._inventory = Inventory()
        self._events = Events()
        self._number = 0
        self._wrong: dict[str, str] = {}
        self._again_at: float | None = None
        self._wait = AGAIN_SECONDS

    def read(self) -> DevicesState:
        """Return the GPUs as they are now. Raises :class:`SourceError` where no driver is there or answers."""
        now, lane, session = self._clock(), self._lane, self._session
        try:
            session.ensure(READING_SECONDS)
        except SourceError as error:
            if str(error) != STARTING:
                self.period = max(self._period, NO_DRIVER_SECONDS)
            raise
        self.period = self._period
        nvml, inventory = session.nvml, self._inventory
        if session.number != self._number:
            self._number = session.number
            self._events.forget()
            inventory.begin(session.count)
        end = now + READING_SECONDS
        inventory.take(lane.make(list(inventory.calls(nvml)), end - self._clock()), lane)
        gpus = list(inventory.gpus.values())
        answers = lane.make([call for gpu in gpus for call in gpu.slice_calls(nvml, now)], end - self._clock())
        for gpu in gpus:
            gpu.take_slices(answers, lane, now)
        calls = [call for gpu in gpus for call in gpu.calls(nvml, now)]
        answers = lane.make([*calls, self._events.call(nvml, gpus)], end - self._clock())
        for gpu in gpus:
            gpu.take(answers, lane, now)
        self._events.take(answers.get(KEY), lane, gpus)
        self._look_again(now)
        states = tuple(gpu.state(lane) for gpu in sorted(gpus, key=lambda gpu: int(gpu.label)))
        self._tell(states)
        return DevicesState(driver=session.driver, cuda_driver=session.cuda, gpus=states)

    def close(self) -> None:
        """Give the driver back; what hangs is left behind."""
        self._session.close()

    def _tell(self, gpus: tuple[GpuState, ...]) -> None:
        """Log what begins and what ends."""
        wrong = {gpu.gpu: gpu.lost or gpu.silent for gpu in gpus if not gpu.up}
        for gpu in wrong.keys() - self._wrong.keys():
            logger.warning("GPU %s is not read: %s", gpu, wrong[gpu])
        for gpu in self._wrong.keys() - wrong.keys():
            logger.info("GPU %s is read again", gpu)
        self._wrong = wrong

    def _look_again(self, now: float) -> None:
        """Begin anew from time to time while a GPU is lost, or none is there: a driver that was asked once keeps its
        list for ever.
        """
        if self._inventory.gpus and not self._inventory.missing():
            self._again_at, self._wait = None, AGAIN_SECONDS
        elif self._again_at is None:
            self._again_at = now + self._wait
        elif now >= self._again_at and not self._lane.hanging():  # a call under way would lose its ground
            self._session.restart()
            self._wait = min(2 * self._wait, AGAIN_AT_MOST_SECONDS)
            self._again_at = now + self._wait
