"""Which GPUs there are: each keeps its label by its uuid as long as the agent runs, whatever is removed or returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from agent.sources.device.gpu import Gpu
from agent.sources.device.lane import Answer, Call, Key, Lane
from agent.sources.device.nvml import NO_PERMISSION, code_of, why

KNOWN = 64  # GPUs that are remembered, with those that are gone
GONE = "the driver no longer lists this GPU"


class Identity(NamedTuple):
    """What names a GPU of this session."""

    uuid: str
    name: str
    handle: Any


class Inventory:
    """``gpus``: all that were seen, by label, the gone ones too."""

    def __init__(self) -> None:
        self.gpus: dict[str, Gpu] = {}
        self._unnamed: dict[int, Gpu | None] = {}  # by index; where a row had to be made up, that row

    def begin(self, count: int) -> None:
        """Begin a session in which the driver counts ``count`` GPUs; all handles of before are worth nothing."""
        for gpu in self.gpus.values():
            gpu.handle = None
            gpu.lose(GONE)
        self._unnamed = dict.fromkeys(range(min(count, KNOWN)))
        for label in [label for label, gpu in self.gpus.items() if gpu.uuid is None]:
            del self.gpus[label]

    def calls(self, nvml: Any) -> Iterator[Call]:
        """Yield the question for the name of each GPU that has none yet in this session."""
        for index in self._unnamed:
            yield Call(Key(f"index {index}", "identity"), partial(_identify, nvml, index))

    def take(self, answers: Mapping[Key, Answer], lane: Lane) -> None:
        """Bind those that gave their name, show the others without."""
        failed: dict[int, tuple[str, bool]] = {}
        for index in list(self._unnamed):
            key = Key(f"index {index}", "identity")
            answer = answers.get(key)
            if answer is None:
                failed[index] = lane.why(key), False
            elif answer.error is not None:
                failed[index] = why(answer.error), code_of(answer.error) != NO_PERMISSION
            else:
                self._bind(index, answer.value)
        for index, (reason, lost) in failed.items():
            self._show(index, reason, lost)

    def missing(self) -> bool:
        """Whether any GPU is lost."""
        return any(gpu.lost for gpu in self.gpus.values())

    def _bind(self, index: int, identity: Any) -> None:
        made_up = self._unnamed.pop(index)
        if made_up is not None and made_up.uuid is None:
            del self.gpus[made_up.label]
        free = (gpu for gpu in self.gpus.values() if gpu.handle is None)  # two with one uuid are still two
        gpu = next((gpu for gpu in free if gpu.uuid == identity.uuid), None)
        if gpu is None:
            gpu = self._add(index, identity.uuid, identity.name)
        gpu.bind(identity.handle, index)

    def _show(self, index: int, reason: str, lost: bool) -> None:
        """Give a GPU that has no handle the row that it had, or one of its own."""
        gpu = self._unnamed[index]
        if gpu is None:
            known = self.gpus.get(str(index))
            gpu = known if known is not None and known.handle is None else self._add(index, None, None)
            self._unnamed[index] = gpu
        (gpu.lose if lost else gpu.hush)(f"no access: {reason}")
        gpu.index = index

    def _add(self, index: int, uuid: str | None, name: str | None) -> Gpu:
        if len(self.gpus) >= KNOWN:
            gone = next((label for label, gpu in self.gpus.items() if gpu.handle is None), None)
            if gone is not None:
                del self.gpus[gone]
        number = index
        while str(number) in self.gpus:
            number += 1
        gpu = self.gpus[str(number)] = Gpu(str(number), uuid, name)
        return gpu


def _identify(nvml: Any, index: int) -> Identity:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return Identity(nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle), handle)
