"""One GPU, or one MIG instance, between readings: its handle, its instances, whether it is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent.sources.device.fields import Fields
from agent.sources.device.lane import Answer, Call, Key, Lane
from agent.sources.device.processes import joined
from agent.sources.device.readings import MIG, READINGS
from agent.sources.device.slices import Slice
from agent.sources.device.state import FIELDS, GpuProcesses, GpuState
from agent.sources.device.xids import XidCounts

NO_RESERVED = "this driver tells no reserved memory: used includes it"
SILENT = "several calls into the driver for this GPU hang"
_KINDS = {"processes": "C", "graphics_processes": "G", "mps_processes": "M"}
_PLAIN = ("memory", "bar1", "utilisation", "throttle", "ecc", "remapped_rows", "retired_pages", "compute_mode")


class Gpu:
    """``label`` and ``uuid`` are for good; ``bind`` gives it the handle of this session, until then it is not read."""

    def __init__(self, label: str, uuid: str | None, name: str | None, parent: str | None = None) -> None:
        self.label = label
        self.uuid = uuid
        self.name = name
        self.index: int | None = None
        self.handle: Any = None
        self.lost = ""
        self.silent = ""
        self.xids = XidCounts()
        self._parent = parent
        self._compute_instances: tuple[str, ...] = ()
        self._instances: dict[str, Gpu] = {}
        self._forget()

    def bind(self, handle: Any, index: int) -> None:
        """Use ``handle`` from now on."""
        self.handle, self.index, self.lost, self.silent = handle, index, "", ""
        self._forget()

    def lose(self, reason: str) -> None:
        """The GPU is gone: what it said is worth nothing now."""
        self.lost, self.silent = reason, ""
        self._forget()

    def hush(self, reason: str) -> None:
        """The GPU may be there, but there is no way to it."""
        self.lost, self.silent = "", reason
        self._forget()

    def slice_calls(self, nvml: Any, now: float) -> Iterator[Call]:
        """Yield the question for its MIG instances when it is due."""
        if self.handle is not None and not self.lost:
            yield from self._mig.calls(nvml, self.handle, now)

    def take_slices(self, answers: Mapping[Key, Answer], lane: Lane, now: float) -> None:
        """Keep what was answered to ``slice_calls``."""
        if self.handle is None or self.lost:
            return
        if reason := self._mig.take(answers, lane, now):
            self.lose(reason)
        elif "mig" in self._mig.values:
            self._cut(self._mig.values["mig"] or ())

    def calls(self, nvml: Any, now: float) -> Iterator[Call]:
        """Yield what is due at ``now``, instances included; a lost GPU is asked everything, for it may be back."""
        if self.handle is None:
            return
        yield from self._fields.calls(nvml, self.handle, now)
        for instance in self._instances.values():
            yield from instance.calls(nvml, now)

    def take(self, answers: Mapping[Key, Answer], lane: Lane, now: float) -> None:
        """Keep what was answered to ``calls``."""
        if self.handle is None:
            return
        if reason := self._fields.take(answers, lane, now):
            self.lose(reason)
        elif self._fields.values:  # no answer, or any other error, does not mean that it is back
            self.lost = ""
        for instance in self._instances.values():
            instance.take(answers, lane, now)
            if instance.lost or instance._fields.unavailable:
                self._mig.hasten()  # cut anew?

    def state(self, lane: Lane) -> GpuState:
        """Return what is known now."""
        identity: dict[str, Any] = {
            "gpu": self.label,
            "uuid": self.uuid,
            "name": self.name,
            "index": self.index,
            "parent": self._parent,
            "compute_instances": self._compute_instances,
            "xids": None if self._parent else self.xids.rows(),
        }
        if self.lost:
            return GpuState(**identity, lost=self.lost)
        if self.silent:
            return GpuState(**identity, silent=self.silent, unavailable=dict.fromkeys(FIELDS, self.silent))
        fields, mig = self._fields, self._mig
        unavailable = {**fields.unavailable, **mig.unavailable}
        unsupported = {**fields.unsupported, **mig.unsupported}
        if self._parent is None:
            unavailable |= self.xids.unavailable
            unsupported |= self.xids.unsupported
        memory = fields.values.get("memory")
        if memory is not None and memory.reserved is None:
            unsupported["memory_reserved"] = NO_RESERVED
        plain: dict[str, Any] = {field: fields.values.get(field) for field in _PLAIN}
        return GpuState(
            **identity,
            **plain,
            silent=SILENT if lane.silent(Key(self.label, "").card) else "",
            unified=self._parent is None and "memory" in fields.absent,
            processes=self._processes(),
            mig=mig.values["mig"] is not None if "mig" in mig.values else None,
            instances=tuple(instance.state(lane) for instance in self._instances.values()),
            unavailable=unavailable,
            unsupported=unsupported,
        )

    def _processes(self) -> GpuProcesses | None:
        values = self._fields.values
        if "processes" not in values:
            return None
        return joined((kind, values[field]) for field, kind in _KINDS.items() if field in values)

    def _cut(self, slices: tuple[Slice, ...]) -> None:
        """Keep one row per GPU instance, with the values of those that are as before."""
        before = self._instances
        self._instances = {}
        for each in slices:
            label = f"{self.label}/{each.gpu_instance}"
            if label in self._instances:  # another compute instance in the same memory
                self._instances[label]._compute_instances += (each.uuid,)
                continue
            known = before.get(label)
            if known is None or known.uuid != each.uuid:
                known = Gpu(label, each.uuid, each.name, parent=self.label)
            known.handle, known.index, known.lost = each.handle, self.index, ""
            known._compute_instances = (each.uuid,)
            self._instances[label] = known

    def _forget(self) -> None:
        self._instances = {}
        self._mig = Fields(self.label, () if self._parent else (MIG,))
        readings = [reading for reading in READINGS if self._parent is None or reading.instances]
        self._fields = Fields(self.label, readings)
