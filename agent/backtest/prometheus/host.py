"""Host memory of engines' processes and cgroups, from their agent's metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.backtest.prometheus.moment import Moment
from agent.sources.host.state import CgroupState, HostState, Place, PressureState, ProcessState, RestartState


def host_of(rest: Moment, engines: Mapping[str, Moment]) -> HostState | None:
    """Return the host's part of a state; None where the metrics have none."""
    memory = rest.by("kind", "kvtide_host_memory_bytes")
    processes = tuple(each for name, moment in engines.items() for each in _processes(name, moment))
    cgroups = tuple(each for name, moment in engines.items() for each in _cgroups(name, moment))
    kills = {
        name: count
        for name, moment in engines.items()
        if (count := moment.count("kvtide_engine_oom_kills_total")) is not None
    }
    if not (memory or processes or cgroups or kills):
        return None
    dead = rest.by("gpu", "kvtide_dead_process_memory_bytes")
    return HostState(
        processes=processes,
        cgroups=cgroups,
        restarts=tuple(
            RestartState(engine=name, restarts=count)
            for name, moment in engines.items()
            if (count := moment.count("kvtide_engine_restarts")) is not None
        ),
        kills_total=kills,
        dead_bytes=dead or None,
        memory=memory or None,
        oom_kills_total=rest.count("kvtide_host_oom_kills_total"),
        host_pids=bool(dead),
    )


def _ranks(moment: Moment, name: str) -> Iterator[dict[str, str]]:
    for row in moment.rows(name):
        role, rank = row.labels.get("role", ""), row.labels.get("rank", "")
        if rank.isascii() and rank.isdecimal():
            yield {"role": role, "rank": rank}


def _processes(engine: str, moment: Moment) -> Iterator[ProcessState]:
    for labels in _ranks(moment, "kvtide_process_resident_bytes"):
        about = next((row.labels for row in moment.rows("kvtide_process_info", **labels)), {})
        yield ProcessState(
            engine=engine,
            role=labels["role"],
            rank=int(labels["rank"]),
            pid=0,
            resident_bytes=moment.count("kvtide_process_resident_bytes", **labels),
            swap_bytes=moment.count("kvtide_process_swap_bytes", **labels),
            proportional_bytes=moment.count("kvtide_process_proportional_bytes", **labels),
            unique_bytes=moment.count("kvtide_process_unique_bytes", **labels),
            place=Place(**{name: about.get(name, "") for name in ("runtime", "container", "pod")}),
        )


def _cgroups(engine: str, moment: Moment) -> Iterator[CgroupState]:
    for labels in _ranks(moment, "kvtide_cgroup_memory_current_bytes"):

        def size(name: str, labels: dict[str, str] = labels) -> int | None:
            return moment.count(f"kvtide_cgroup_memory_{name}_bytes", **labels)

        yield CgroupState(
            engine=engine,
            role=labels["role"],
            rank=int(labels["rank"]),
            path="",
            current_bytes=size("current"),
            working_set_bytes=size("working_set"),
            swap_bytes=size("swap"),
            limit_bytes=size("limit"),
            limit_current_bytes=size("limit_current"),
            high_bytes=size("high"),
            events=moment.by("event", "kvtide_cgroup_memory_events_total", **labels) or None,
            pressure=_pressure(moment, labels),
        )


def _pressure(moment: Moment, labels: dict[str, str]) -> PressureState | None:
    ratios = [moment.number("kvtide_cgroup_memory_pressure_ratio", kind=kind, **labels) for kind in ("some", "full")]
    seconds = [
        moment.number("kvtide_cgroup_memory_stalled_seconds_total", kind=kind, **labels) for kind in ("some", "full")
    ]
    some, full, some_seconds, full_seconds = (*ratios, *seconds)
    if some is None or full is None or some_seconds is None or full_seconds is None:
        return None
    return PressureState(some_ratio=some, full_ratio=full, some_seconds=some_seconds, full_seconds=full_seconds)
