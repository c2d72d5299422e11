"""The host's and the driver calls' metrics, and their part of ``kvtide status``."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from agent.faces.host import panel
from agent.sources.driver_calls.state import DriverCallsState
from agent.sources.host.pages import NOT_YET
from agent.sources.host.state import HostState, Place
from agent.state import AgentState
from exporters.collectors import driver_calls, host
from tests.unit.builders import MIB, make_silent, make_state
from tests.unit.node_builders import (
    make_call,
    make_cgroup,
    make_driver_calls,
    make_host,
    make_killed,
    make_process,
    make_source,
)


def metrics(state: AgentState) -> dict[tuple[str, tuple[str, ...]], object]:
    samples = [*host.collect(state), *host.collect_detail(state), *driver_calls.collect(state)]
    found = {(sample.metric.name, sample.labels): sample.value for sample in samples}
    assert len(found) == len(samples), "no series twice"
    return found


def drawn(state: AgentState, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(panel(state))
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    return " ".join(text.replace("│", " ").split())


def test_numbers_come_out_as_they_went_in() -> None:
    found, m = metrics(make_state()), ("m", "core", "0")
    expected = {
        ("kvtide_process_resident_bytes", m): 5000 * MIB,
        ("kvtide_process_proportional_bytes", m): 4500 * MIB,
        ("kvtide_process_unique_bytes", m): 4200 * MIB,
        ("kvtide_process_swap_bytes", m): 3 * MIB,
        ("kvtide_process_locked_bytes", m): 5 * MIB,
        ("kvtide_process_pinned_bytes", m): 7 * MIB,
        ("kvtide_process_threads", m): 90,
        ("kvtide_process_open_files", m): 210,
        ("kvtide_process_major_faults_total", m): 17,
        ("kvtide_process_info", (*m, "containerd", "c" * 64, "u-1")): 1,
        ("kvtide_process_children", ("m",)): 2,
        ("kvtide_process_children_resident_bytes", ("m",)): 150 * MIB,
        ("kvtide_engine_shm_bytes", ("m", "size")): 64 * MIB,
        ("kvtide_engine_shm_bytes", ("m", "used")): 9 * MIB,
        ("kvtide_cgroup_memory_current_bytes", m): 6000 * MIB,
        ("kvtide_cgroup_memory_working_set_bytes", m): 5500 * MIB,
        ("kvtide_cgroup_memory_limit_bytes", m): 8000 * MIB,
        ("kvtide_cgroup_memory_limit_current_bytes", m): 7000 * MIB,
        ("kvtide_cgroup_memory_high_bytes", m): 7900 * MIB,
        ("kvtide_cgroup_memory_swap_bytes", m): 2 * MIB,
        ("kvtide_cgroup_memory_bytes", (*m, "anon")): 5100 * MIB,
        ("kvtide_cgroup_memory_events_total", (*m, "high")): 4,
        ("kvtide_cgroup_memory_events_total", (*m, "max")): 3,
        ("kvtide_cgroup_memory_events_total", (*m, "oom")): 2,
        ("kvtide_cgroup_memory_events_total", (*m, "oom_kill")): 1,
        ("kvtide_cgroup_memory_pressure_ratio", (*m, "some")): 0.25,
        ("kvtide_cgroup_memory_stalled_seconds_total", (*m, "full")): 6.25,
        ("kvtide_host_memory_bytes", ("available",)): 20000 * MIB,
        ("kvtide_host_memory_bytes", ("swap_total",)): 0,
        ("kvtide_host_shm_bytes", ("used",)): 10 * MIB,
        ("kvtide_host_oom_kills_total", ()): 1,
        ("kvtide_engine_restarts", ("m",)): 2,
        ("kvtide_engine_oom_kills_total", ("m",)): 1,
        ("kvtide_engine_oom_kills_total", ("n",)): 0,
        ("kvtide_dead_process_memory_bytes", ("0",)): 5120 * MIB,
        ("kvtide_dead_process_memory_bytes", ("1",)): 0,
        ("kvtide_driver_call_failures_total", ("m", "cuMemCreate")): 1,
        ("kvtide_driver_call_seconds", ("m", "cuMemCreate")): make_call().seconds,
    }
    assert {key: found[key] for key in expected} == expected


def test_what_is_not_known_makes_no_sample() -> None:
    empty = HostState(processes=(make_process(resident_bytes=None, pinned_bytes=0),))
    found = metrics(make_state(host=empty, driver_calls=None))
    assert ("kvtide_process_resident_bytes", ("m", "core", "0")) not in found
    assert found["kvtide_process_pinned_bytes", ("m", "core", "0")] == 0
    assert not [name for name, _ in found if name.startswith(("kvtide_host", "kvtide_dead", "kvtide_cgroup"))]
    assert metrics(make_state(host=None, driver_calls=None)) == {}


def test_two_processes_that_call_themselves_the_same_cost_no_scrape() -> None:
    rows = (make_process(), make_process(pid=5))
    metrics(make_state(host=make_host(processes=rows, cgroups=(make_cgroup(), make_cgroup(path="/b")))))


@pytest.mark.parametrize("width", [80, 120])
def test_the_panel_says_what_there_is(width: int) -> None:
    text = drawn(make_state(), width)
    for words in (
        "19.5 GiB of 62.5 GiB available, /dev/shm 10.0 MiB of 31.2 GiB, 1 OOM kill since boot",
        "1 process, 4.4 GiB RAM, 3.0 MiB swapped, 2 children with 150.0 MiB, /dev/shm 9.0 MiB of 64.0 MiB",
        "containerd cccccccccccc in pod u-1",
        "the limit is that of /kubepods.slice/pod.slice: 6.8 GiB of 7.8 GiB; 1 process was killed for memory",
        "m worker 1 (pid 88) was killed for memory before",
        "m started again 2 times in 45 min",
        "GPU 0: 5.0 GiB are booked on process 99, which is gone",
        "m cuMemCreate: 10 calls in 5 min, half within 1 ms, 99% within 500 ms, 1 failed since tracing began",
    ):
        assert words in text


def test_a_sound_host_says_little_and_nothing_of_harm() -> None:
    sound = make_host(
        processes=(make_process(swap_bytes=0, place=Place(unit="vllm.service")),),
        cgroups=(make_cgroup(limit_of=make_cgroup().path, events={"oom_kill": 0}),),
        children=(),
        restarts=(),
        killed=(),
        dead=(),
        oom_kills_total=0,
    )
    text = drawn(make_state(host=sound, driver_calls=None))
    assert "cgroup holds 5.9 GiB (5.4 GiB without idle cache) of 7.8 GiB" in text
    for word in ("killed", "OOM", "gone", "again", "not known", "swapped", "children", "driver"):
        assert word not in text


def test_what_is_everywhere_the_same_is_not_said() -> None:
    shared = make_process(shm_size_bytes=32000 * MIB)
    text = drawn(make_state(host=make_host(processes=(shared,)), driver_calls=None))
    assert text.count("shm") == 1, "the engine's is the host's"
    assert "locked" not in text
    memory = make_host().memory | {"locked": 700 * MIB}
    assert "700.0 MiB locked" in drawn(make_state(host=make_host(memory=memory), driver_calls=None))


def test_what_could_not_be_read_is_said_once_per_reason() -> None:
    why = {"open_files": "no permission: x", "shm": "no permission: x"}
    rows = (make_process(unavailable=why, proportional_bytes=None), make_process(rank=1, pid=5, unavailable=why))
    state = make_host(processes=rows, unavailable={"host_pids": "other pids", "cgroups": "v1", "dead": "no GPUs"})
    text = drawn(make_state(host=state, driver_calls=DriverCallsState(reason="bpftrace is attaching")))
    assert text.count("no permission: x") == 1
    assert "not known: open files, shm: no permission: x" in text
    assert "2 processes, 9.8 GiB RAM, shared pages counted in each" in text
    assert "host pids: other pids" in text
    assert "no GPUs" not in text
    assert "not timed: bpftrace is attaching" in text


def test_many_rows_are_cut_and_names_are_text() -> None:
    calls = tuple(make_call(call=f"c{n}", recent_p99_seconds=float(n)) for n in range(9))
    dead = tuple(make_host().dead[0].__class__(gpu="0", pid=n, used_bytes=1024 * MIB) for n in range(9))
    rows = (make_process(engine="[red]x[/red]"),)
    text = drawn(make_state(host=make_host(processes=rows, dead=dead), driver_calls=make_driver_calls(*calls)))
    assert "c8" in text
    assert "c4" not in text
    assert "5.0 GiB of 5 more" in text
    assert "[red]x[/red]" in text


def test_a_kill_that_may_have_hit_another_is_told_as_such() -> None:
    rows = (make_killed(certain=False, counted_by="/pod"), make_killed(certain=False, counted_by=""))
    text = drawn(make_state(host=make_host(killed=rows)))
    assert "and in /pod one was killed for memory" in text
    assert "and on this host one was killed for memory" in text
    assert "was killed for memory before" not in text


def test_a_source_that_is_down_says_why() -> None:
    down = make_source(source="driver_calls", up=False, reason="bpftrace was ended by signal 9")
    text = drawn(make_state(sources=(down, make_source(source="host")), driver_calls=None))
    assert "driver calls not read: bpftrace was ended by signal 9" in text
    assert text.count("not read") == 1


def test_without_engines_there_is_no_word_of_what_only_they_need() -> None:
    text = drawn(make_state(host=make_host(processes=(), unavailable={"cgroups": "v1", "host_pids": "other pids"})))
    assert "not known" not in text


def test_there_is_no_panel_without_a_source() -> None:
    assert panel(make_state(make_silent(), host=None, driver_calls=None)) is None


def test_whose_turn_is_still_to_come_is_no_news_of_a_young_agent() -> None:
    rows = (make_process(proportional_bytes=None, unavailable={"proportional": NOT_YET.reason}),)

    def after(seconds: float) -> str:
        state = make_state(host=make_host(processes=rows), driver_calls=None)
        return drawn(msgspec.structs.replace(state, started_at=state.at - seconds))

    assert "turn" not in after(119)
    assert "not known" not in after(119)
    assert "PSS not read yet (processes take turns)" in after(121)
    assert "others come first" not in after(121)
