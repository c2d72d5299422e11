"""GPUs, host memory, sources and failures of a node, from its agent's metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, get_args

from msgspec.structs import replace

from agent.backtest.prometheus.moment import Moment
from agent.oom.judge import CAUSES, Cause, Judgement
from agent.oom.log import Failure, FailureCount
from agent.sources.base import SourceState
from agent.sources.device.state import DevicesState, GpuMemory, GpuState, RemappedRows, Xid
from agent.waterfall.state import Part, PartName, Waterfall
from engine_hooks.allocator import MEMORY, OOM, MemoryEvent

_PARTS: tuple[PartName, ...] = get_args(PartName)
_UNATTRIBUTED = "unattributed"
_KEPT_SECONDS = 900.0  # a failure is told for less
_MOST = 64


class Read(NamedTuple):
    """What of a node belongs to no engine."""

    devices: DevicesState | None
    failures: tuple[Failure, ...]
    counts: tuple[FailureCount, ...]


class Node:
    """Makes what belongs to no engine; remembers when counters of errors last rose, for these have times."""

    def __init__(self) -> None:
        self._xids: dict[tuple[str, str], tuple[int, float]] = {}
        self._counts: dict[tuple[str, str, str, str], int] = {}
        self._failures: list[Failure] = []
        self._sequence = 0
        self._first = True

    def of(self, rest: Moment, every: Iterable[Moment], fresh: Iterable[str], at: float) -> Read:
        """Return what the scrape of ``at`` says; ``fresh``: the GPUs in it; ``every``: the node's rows and engines'.

        When the history begins, nothing has failed yet: what was counted before is of a time that nobody knows.
        """
        devices = self._devices(rest, fresh, at)
        counts = tuple(self._counted(every, at))
        self._failures = [each for each in self._failures if at - each.event.at < _KEPT_SECONDS][:_MOST]
        self._first = False
        return Read(devices, tuple(self._failures), counts)

    def _devices(self, rest: Moment, fresh: Iterable[str], at: float) -> DevicesState | None:
        found = [state for gpu in sorted(fresh) if (state := self._gpu(rest, gpu, at)) is not None]
        if not found:
            return None
        parts: dict[str | None, list[GpuState]] = {}
        for state in found:
            parts.setdefault(state.parent, []).append(state)
        whole = [replace(gpu, instances=tuple(parts.get(gpu.gpu, ()))) for gpu in parts.get(None, ())]
        return DevicesState(driver=None, cuda_driver=None, gpus=tuple(whole))

    def _gpu(self, rest: Moment, gpu: str, at: float) -> GpuState | None:
        up = rest.number("kvtide_gpu_up", gpu=gpu)
        if up is None:
            return None
        about = next((row.labels for row in rest.rows("kvtide_gpu_info", gpu=gpu)), {})
        index, _, instance = gpu.partition("/")
        return GpuState(
            gpu=gpu,
            uuid=about.get("uuid") or None,
            name=about.get("name") or None,
            index=int(index) if index.isascii() and index.isdecimal() else None,
            parent=about.get("parent") or (index if instance else None),
            lost="" if up == 1 else "its metrics say that the driver does not answer for it",
            unified=rest.flag("kvtide_gpu_unified_memory", gpu=gpu),
            memory=_memory(rest, gpu),
            remapped_rows=_remapped(rest, gpu),
            xids=tuple(self._errors(rest, gpu, at)),
        )

    def _errors(self, rest: Moment, gpu: str, at: float) -> Iterator[Xid]:
        for code, count in rest.by("xid", "kvtide_gpu_xid_errors_total", gpu=gpu).items():
            before, since = self._xids.get((gpu, code), (0, 0.0))
            # Those that were there when the history began are of a time that nobody knows: long ago.
            since = at if count > before and not self._first else since
            self._xids[gpu, code] = (count, since)
            yield Xid(code=int(code) if code.isascii() and code.isdecimal() else 0, count=count, last_at=since)

    def _counted(self, every: Iterable[Moment], at: float) -> Iterator[FailureCount]:
        for row in (row for moment in every for row in moment.rows("kvtide_memory_failures_total")):
            engine, process, kind, cause = (row.labels.get(name, "") for name in ("engine", "process", "kind", "cause"))
            count = max(0, int(row.value))
            more = count - self._counts.get((engine, process, kind, cause), 0)
            self._counts[engine, process, kind, cause] = count
            if more > 0 and not self._first:
                self._sequence += 1
                event = MemoryEvent(sequence=self._sequence, kind=kind, at=at, count=more)
                self._failures.insert(0, _failure(engine, process, cause, event))
            yield FailureCount(engine=engine, process=process, kind=kind, cause=cause, count=count)


def _failure(engine: str, process: str, cause: str, event: MemoryEvent) -> Failure:
    known: Cause = next((each for each in CAUSES if each == cause), "unknown")
    return Failure(
        engine=engine,
        process=process,
        role="torch" if process else "worker",
        rank=0,
        pid=0,
        event=event,
        judgement=Judgement(
            cause=known, sentence="the metrics have its cause and no numbers.", remedy="See the engine's log."
        )
        if event.kind in (OOM, MEMORY)
        else None,
    )


def _memory(rest: Moment, gpu: str) -> GpuMemory | None:
    sizes = rest.by("kind", "kvtide_gpu_memory_bytes", gpu=gpu)
    if not {"total", "used", "free"} <= sizes.keys():
        return None
    return GpuMemory(total=sizes["total"], used=sizes["used"], free=sizes["free"], reserved=sizes.get("reserved"))


def _remapped(rest: Moment, gpu: str) -> RemappedRows | None:
    rows = rest.by("kind", "kvtide_gpu_remapped_rows", gpu=gpu)
    pending = rest.number("kvtide_gpu_row_remap_pending", gpu=gpu)
    if pending is None:
        return None
    return RemappedRows(
        corrected=rows.get("corrected", 0),
        uncorrected=rows.get("uncorrected", 0),
        pending=pending == 1,
        failed=rest.flag("kvtide_gpu_row_remap_failed", gpu=gpu),
    )


def waterfalls_of(every: Iterable[Moment], devices: DevicesState | None) -> tuple[Waterfall, ...]:
    """Return each GPU's waterfall; ``every``: the node's rows and its engines'."""
    known: dict[str, GpuState] = {}
    for gpu in devices.gpus if devices else ():
        known |= {each.gpu: each for each in (gpu, *gpu.instances)}
    parts: dict[str, list[Part]] = {}
    left: dict[str, tuple[int, int]] = {}
    for moment in every:
        for row in moment.rows("kvtide_waterfall_bytes"):
            label, name, owner = (row.labels.get(each, "") for each in ("gpu", "part", "engine"))
            error = moment.count("kvtide_waterfall_error_bytes", gpu=label, part=name) or 0
            part = next((each for each in _PARTS if each == name), None)
            if name == _UNATTRIBUTED:
                left[label] = int(row.value), error
            elif part is not None and row.value >= 0:
                mine = Part(part=part, bytes=int(row.value), error_bytes=error, owner=owner)
                parts.setdefault(label, []).append(mine)
    return tuple(_fall(label, known.get(label), tuple(mine), left.get(label)) for label, mine in sorted(parts.items()))


def _fall(label: str, gpu: GpuState | None, parts: tuple[Part, ...], left: tuple[int, int] | None) -> Waterfall:
    return Waterfall(
        gpu=label,
        uuid=(gpu.uuid if gpu else None) or "",
        total_bytes=None if left is None else left[0] + sum(part.bytes for part in parts),
        parts=parts,
        unattributed_bytes=None if left is None else left[0],
        error_bytes=left[1] if left else sum(part.error_bytes for part in parts),
    )


def sources_of(rest: Moment) -> tuple[SourceState, ...]:
    """Return the health of the agent's sources."""
    return tuple(
        SourceState(
            source=name,
            up=row.value == 1,
            reason="" if row.value == 1 else "its metrics do not say why",
            reads=rest.count("kvtide_source_reads_total", source=name) or 0,
            failures=rest.count("kvtide_source_failures_total", source=name) or 0,
            read_seconds=None,
            age_seconds=None,
        )
        for row in rest.rows("kvtide_source_up")
        if (name := row.labels.get("source"))
    )
