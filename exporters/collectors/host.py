"""Processes, cgroups and the host, as the kernel tells them."""

from __future__ import annotations

from collections.abc import Iterator

from agent.sources.host.state import CgroupState, ProcessState
from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, known
from exporters.collectors.rows import once

_EVENTS = ("high", "max", "oom", "oom_kill")


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield what the host source has read."""
    host = state.host
    if host is None:
        return
    for process in once(host.processes, _key):
        yield from known(c.PROCESS_RESIDENT, _labels_of(process), process.resident_bytes)
    for children in once(host.children, lambda row: row.engine):
        yield Sample(c.CHILDREN_RESIDENT, (children.engine,), children.resident_bytes)
    for cgroup in once(host.cgroups, _key):
        labels = _labels_of(cgroup)
        yield from known(c.CGROUP_CURRENT, labels, cgroup.current_bytes)
        yield from known(c.CGROUP_LIMIT, labels, cgroup.limit_bytes)
        if cgroup.pressure is not None:
            yield Sample(c.CGROUP_STALLED, (*labels, "some"), cgroup.pressure.some_seconds)
            yield Sample(c.CGROUP_STALLED, (*labels, "full"), cgroup.pressure.full_seconds)
    for row in once(host.restarts, lambda row: row.engine):
        yield Sample(c.ENGINE_RESTARTS, (row.engine,), row.restarts)
    for name, kills in host.kills_total.items():
        yield Sample(c.ENGINE_OOM_KILLS, (name,), kills)
    for kind, size in (host.memory or {}).items():
        yield Sample(c.HOST_MEMORY, (kind,), size)
    yield from known(c.HOST_OOM_KILLS, (), host.oom_kills_total)
    for gpu, size in (host.dead_bytes or {}).items():
        yield Sample(c.DEAD_PROCESS_MEMORY, (gpu,), size)


def collect_detail(state: AgentState) -> Iterator[Sample]:
    """Yield what is on the second page of it."""
    host = state.host
    if host is None:
        return
    for process in once(host.processes, _key):
        yield from _process(process)
    for engine in once((row for row in host.processes if row.shm_size_bytes is not None), lambda row: row.engine):
        yield from known(c.ENGINE_SHM, (engine.engine, "size"), engine.shm_size_bytes)
        yield from known(c.ENGINE_SHM, (engine.engine, "used"), engine.shm_used_bytes)
    for children in once(host.children, lambda row: row.engine):
        yield Sample(c.CHILDREN, (children.engine,), children.processes)
    for cgroup in once(host.cgroups, _key):
        yield from _cgroup(cgroup)
    for kind, size in (host.shm or {}).items():
        yield Sample(c.HOST_SHM, (kind,), size)


def _key(row: ProcessState | CgroupState) -> tuple[str, str, int]:
    return row.engine, row.role, row.rank


def _labels_of(row: ProcessState | CgroupState) -> tuple[str, str, str]:
    return row.engine, row.role, str(row.rank)


def _process(row: ProcessState) -> Iterator[Sample]:
    labels = _labels_of(row)
    yield Sample(c.PROCESS_INFO, (*labels, row.place.runtime, row.place.container, row.place.pod), 1)
    yield from known(c.PROCESS_PROPORTIONAL, labels, row.proportional_bytes)
    yield from known(c.PROCESS_UNIQUE, labels, row.unique_bytes)
    yield from known(c.PROCESS_SWAP, labels, row.swap_bytes)
    yield from known(c.PROCESS_PINNED, labels, row.pinned_bytes)
    yield from known(c.PROCESS_LOCKED, labels, row.locked_bytes)
    yield from known(c.PROCESS_THREADS, labels, row.threads)
    yield from known(c.PROCESS_OPEN_FILES, labels, row.open_files)
    yield from known(c.PROCESS_MAJOR_FAULTS, labels, row.major_faults)


def _cgroup(row: CgroupState) -> Iterator[Sample]:
    labels = _labels_of(row)
    yield from known(c.CGROUP_WORKING_SET, labels, row.working_set_bytes)
    yield from known(c.CGROUP_LIMIT_CURRENT, labels, row.limit_current_bytes)
    yield from known(c.CGROUP_HIGH, labels, row.high_bytes)
    yield from known(c.CGROUP_SWAP, labels, row.swap_bytes)
    for kind, size in (row.parts or {}).items():
        yield Sample(c.CGROUP_PARTS, (*labels, kind), size)
    for event in _EVENTS:
        yield from known(c.CGROUP_EVENTS, (*labels, event), (row.events or {}).get(event))
    if row.pressure is not None:
        yield Sample(c.CGROUP_PRESSURE, (*labels, "some"), row.pressure.some_ratio)
        yield Sample(c.CGROUP_PRESSURE, (*labels, "full"), row.pressure.full_ratio)
