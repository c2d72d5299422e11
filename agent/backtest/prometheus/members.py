"""Workers, API servers and PyTorch processes with torch's allocator, from an agent's metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agent.backtest.prometheus.moment import Moment
from agent.state import AllocatorState, MemberState
from engine_hooks.allocator import AllocatorRow, DeviceRow, PrivatePoolRow, SegmentsRow, TagRow, WalkRow
from engine_hooks.members import WORKER, WorkerRow
from engine_hooks.own_memory import OwnMemoryRow

_CUDA = "cuda:"
_YES_NO = {"true": True, "false": False}
_KINDS = {"graphs": "", "sleep": "sleep"}  # of private pools: what tells them apart is that sleep mode's have tags


def members_of(engine: Moment) -> tuple[MemberState, ...]:
    """Return the processes around an engine."""
    return tuple(_members(engine))


def processes_of(rest: Moment) -> tuple[MemberState, ...]:
    """Return the PyTorch processes of no engine."""
    return tuple(
        _member(rest, role="torch", rank=0, up=row.value == 1, process=row.labels.get("process", ""))
        for row in rest.rows("kvtide_torch_process_up")
    )


def memory_of(moment: Moment, **labels: str) -> OwnMemoryRow | None:
    """Return what a process of an engine says of its own memory; None where it says nothing."""
    resident, cgroup, limit = (
        moment.count(f"kvtide_member_{what}_bytes", **labels) for what in ("resident", "cgroup", "cgroup_limit")
    )
    if resident is None and cgroup is None and limit is None:
        return None
    return OwnMemoryRow(resident_bytes=resident, cgroup_bytes=cgroup, cgroup_limit_bytes=limit)


def _members(engine: Moment) -> Iterator[MemberState]:
    for row in engine.rows("kvtide_member_up"):
        role, rank = row.labels.get("role", ""), row.labels.get("rank", "")
        if rank.isascii() and rank.isdecimal():
            yield _member(engine, role=role, rank=int(rank), up=row.value == 1, process="")


def _member(moment: Moment, *, role: str, rank: int, up: bool, process: str) -> MemberState:
    labels = {"process": process} if process else {"role": role, "rank": str(rank)}
    resident = "kvtide_torch_process_resident_bytes" if process else "kvtide_member_resident_bytes"
    return MemberState(
        role=role,
        rank=rank,
        pid=0,
        own_pid=0,
        pid_namespace=0,
        host="",
        started_at=0.0,
        up=up,
        link_up=up,
        heard_age_seconds=0.0,
        resident_bytes=moment.count(resident, **labels),
        worker=_worker(moment, labels) if role == WORKER and up else None,
        frontend=None,
        allocator=_allocator(moment, labels) if up else None,
        process=process,
        memory=None if process else memory_of(moment, **labels),
    )


def _worker(moment: Moment, labels: dict[str, str]) -> WorkerRow | None:
    kv, parameters = (moment.count(f"kvtide_member_{what}_bytes", **labels) for what in ("kv", "parameter"))
    if kv is None and parameters is None:
        return None
    uuids = {row.labels.get("uuid", "") for row in moment.rows("kvtide_allocator_info", **labels)}
    return WorkerRow(
        tensor_parallel_rank=0,
        pipeline_parallel_rank=0,
        device="",
        device_uuid=uuids.pop() if len(uuids) == 1 else "",
        kv_bytes=kv,
        parameter_bytes=parameters,
    )


def _allocator(moment: Moment, labels: dict[str, str]) -> AllocatorState | None:
    up = moment.number("kvtide_allocator_up", **labels)
    if up is None:
        return None
    about = [row.labels for row in moment.rows("kvtide_allocator_info", **labels)]
    walked = [walk for each in about if (walk := _segments(moment, labels, each.get("device", ""))) is not None]
    row = AllocatorRow(
        reason="" if up == 1 else "its metrics say that it has none",
        backend=about[0].get("backend", "") if about else "",
        expandable_segments=_YES_NO.get(about[0].get("expandable_segments", "")) if about else None,
        devices=tuple(_devices(moment, labels, about)),
        walk=WalkRow(monotonic=0.0, seconds=0.0, period_seconds=0.0, devices=tuple(walked)) if walked else None,
        tags=tuple(_tags(moment, labels)),
    )
    return AllocatorState(row=row, walk_age_seconds=0.0 if walked else None, history=None)


def _devices(moment: Moment, labels: dict[str, str], about: Iterable[Mapping[str, str]]) -> Iterator[DeviceRow]:
    for each in about:
        device = each.get("device", "")
        where = labels | {"device": device}

        def size(name: str, where: dict[str, str] = where) -> int | None:
            return moment.count(f"kvtide_allocator_{name}", **where)

        private = moment.by("kind", "kvtide_allocator_private_reserved_bytes", **where)
        yield DeviceRow(
            device=_index(device),
            uuid=each.get("uuid", ""),
            allocated_bytes=size("allocated_bytes"),
            reserved_bytes=size("reserved_bytes"),
            active_bytes=size("active_bytes"),
            requested_bytes=size("requested_bytes"),
            inactive_split_bytes=size("inactive_split_bytes"),
            private_reserved_bytes=sum(private.values()) if private else None,
            retries_total=size("retries_total"),
            ooms_total=size("ooms_total"),
            device_allocs_total=size("device_allocs_total"),
            device_frees_total=size("device_frees_total"),
        )


def _segments(moment: Moment, labels: dict[str, str], device: str) -> SegmentsRow | None:
    where = labels | {"device": device}
    free = moment.count("kvtide_allocator_free_bytes", **where)
    largest = moment.count("kvtide_allocator_largest_free_block_bytes", **where)
    if free is None or largest is None:
        return None
    private = moment.by("kind", "kvtide_allocator_private_reserved_bytes", **where)
    return SegmentsRow(
        device=_index(device),
        segments=moment.count("kvtide_allocator_segments", **where) or 0,
        blocks=0,
        reserved_bytes=moment.count("kvtide_allocator_reserved_bytes", **where) or 0,
        active_bytes=moment.count("kvtide_allocator_active_bytes", **where) or 0,
        free_bytes=free,
        largest_free_bytes=largest,
        whole_free_bytes=moment.count("kvtide_allocator_releasable_bytes", **where) or 0,
        band_blocks=(),
        band_bytes=(),
        streams=moment.count("kvtide_allocator_streams", **where) or 0,
        expandable_segments=0,
        expandable_bytes=moment.count("kvtide_allocator_expandable_bytes", **where) or 0,
        pools=(),
        private=tuple(
            PrivatePoolRow(pool=kind, segments=0, reserved_bytes=size, active_bytes=0, tags=_KINDS.get(kind, ""))
            for kind, size in private.items()
        ),
    )


def _tags(moment: Moment, labels: dict[str, str]) -> Iterator[TagRow]:
    for row in moment.rows("kvtide_allocator_tag_bytes", **labels):
        where = labels | {name: row.labels.get(name, "") for name in ("device", "tag")}
        yield TagRow(
            tag=where["tag"],
            device=_index(where["device"]),
            allocations=0,
            bytes=max(0, int(row.value)),
            mapped_bytes=moment.count("kvtide_allocator_tag_mapped_bytes", **where),
            backed_up_bytes=None,
        )


def _index(device: str) -> int:
    number = device.removeprefix(_CUDA)
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 5 else 0
