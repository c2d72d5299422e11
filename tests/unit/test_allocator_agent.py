"""The allocator in the agent: joined to its engine or named as a process of its own, put together, drawn, and kept."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

from rich.console import Console

from agent.engines import EngineTable
from agent.faces import allocator as face
from agent.faces.status import render
from agent.link import LinkServer
from agent.members import MAX_PROCESSES
from agent.oom.judge import judge
from agent.state import AgentState
from engine_hooks import wire
from engine_hooks.allocator import MIB, AllocatorRow, HistoryRow, SiteRow
from engine_hooks.members import MemberReport, WorkerRow
from exporters.collectors import allocator as collector
from tests.unit.allocators import (
    make_allocator,
    make_allocator_state,
    make_device,
    make_event,
    make_failure,
    make_segments,
    make_walk,
)
from tests.unit.builders import make_engine, make_hello, make_report, make_state, make_torch_process, make_worker
from tests.unit.support import KEY, RawPeer, proven


def report(row: AllocatorRow | None = None, **changes: Any) -> MemberReport:
    worker = WorkerRow(tensor_parallel_rank=0, pipeline_parallel_rank=0, device="cuda:0")
    values: dict[str, Any] = {"monotonic": 1.0, "resident_bytes": 7, "worker": worker, "allocator": row}
    return MemberReport(**values | changes)


def table() -> EngineTable:
    found = EngineTable(3.0)
    found.hello(make_hello(instance="core", pid=10), 1010, 100.0)
    found.report("core", make_report(), 100.0)
    found.hello(make_hello(instance="w", role="worker", pid=11, parent_pid=10, rank=1), 1011, 100.0)
    return found


def process(found: EngineTable, instance: str, name: str = "train", now: float = 100.0) -> None:
    hello = make_hello(instance=instance, role="torch", name=name, engine_id=instance, pool=None)
    found.hello(hello, 2000, now)
    found.member(instance, MemberReport(monotonic=1.0, resident_bytes=5, allocator=make_allocator()), now)


def allocator(found: EngineTable, now: float) -> Any:
    (engine,) = found.states(now, 0.0)
    return engine.members[0].allocator


# -- put together -----------------------------------------------------------------------------------------


def test_the_last_walk_stays_between_two_walks_and_not_longer() -> None:
    found = table()
    found.member("w", report(make_allocator()), 100.0)
    for second in range(101, 130):
        found.member("w", report(make_allocator(walk=None)), float(second))
    at = {}
    for now in (100.0, 114.0, 116.0):
        found.member("w", report(make_allocator(walk=None)), now)
        at[now] = allocator(found, now)
    assert (at[114.0].row.walk, at[114.0].walk_age_seconds) == (make_walk(), 14.0)
    assert (at[116.0].row.walk, at[116.0].walk_age_seconds) == (None, None)


def test_a_walk_that_is_told_twice_does_not_grow_young() -> None:
    found = table()
    found.member("w", report(make_allocator()), 100.0)
    found.member("w", report(make_allocator()), 104.0)  # at once, when an allocation had failed
    assert allocator(found, 104.0).walk_age_seconds == 4.0


def test_a_process_that_has_lost_its_device_has_no_walk() -> None:
    found = table()
    found.member("w", report(make_allocator()), 100.0)
    found.member("w", report(AllocatorRow(reason="no CUDA in this process")), 101.0)
    assert allocator(found, 101.0).row.walk is None


def test_a_recordings_outcome_stays() -> None:
    found = table()
    outcome = HistoryRow(sequence=1, started_at=1.0, seconds=5.0)
    found.member("w", report(make_allocator(), history=outcome), 100.0)
    found.member("w", report(make_allocator()), 101.0)
    assert allocator(found, 101.0).history == outcome


def test_a_silent_member_tells_of_no_allocator() -> None:
    found = table()
    found.member("w", report(make_allocator()), 100.0)
    assert allocator(found, 103.0) is not None
    assert allocator(found, 103.5) is None


# -- processes of no engine -------------------------------------------------------------------------------


def test_a_process_of_no_engine_is_itself_and_not_unjoined() -> None:
    found = table()
    process(found, "p")
    (state,) = found.processes(100.0)
    assert (state.process, state.role, state.pid, state.instance, state.up) == ("train", "torch", 2000, "p", True)
    assert found.unjoined(100.0) == 0
    assert [member.role for member in found.states(100.0, 0.0)[0].members] == ["worker"]
    found.hello(make_hello(instance="stray", role="worker", engine_id="other"), 3, 100.0)
    assert found.unjoined(100.0) == 1


def test_names_are_made_unique_and_a_successor_takes_the_name_of_one_that_has_gone() -> None:
    found = table()
    process(found, "p1")
    process(found, "p2")
    assert [state.process for state in found.processes(100.0)] == ["train", "train~2"]
    found.disconnected("p1", 101.0)
    process(found, "p3", now=101.0)
    assert {state.process: state.instance for state in found.processes(101.0)} == {"train": "p3", "train~2": "p2"}


def test_an_engine_and_a_process_of_one_id_are_not_joined() -> None:
    found = table()
    found.hello(make_hello(instance="p", role="torch", name="x", parent_pid=10), 7, 100.0)  # the engine's id
    assert len(found.processes(100.0)) == 1
    assert all(member.role != "torch" for member in found.states(100.0, 0.0)[0].members)


def test_processes_are_bounded() -> None:
    found = table()
    for number in range(MAX_PROCESSES + 10):
        process(found, f"p{number}", name=f"n{number}")
    assert len(found.processes(100.0)) == MAX_PROCESSES


# -- failures ---------------------------------------------------------------------------------------------


def test_what_failed_is_kept_when_its_process_has_gone() -> None:
    found = table()
    found.member("w", report(make_allocator(), events=(make_event(),)), 100.0)
    found.disconnected("w", 100.1)
    found.disconnected("core", 100.1)
    found.tick(200.0)
    assert found.states(200.0, 0.0) == ()
    (failure,) = found.failures.failures()
    assert (failure.engine, failure.role, failure.rank, failure.pid) == ("m", "worker", 1, 1011)
    assert failure.judgement is not None
    assert failure.judgement.cause == "fragmented"


def test_a_worker_that_fails_before_its_core_is_there_is_named_by_its_own_word() -> None:
    found = EngineTable(3.0)
    found.hello(make_hello(instance="w", role="worker", name="llama"), 1011, 100.0)
    found.member("w", report(None, events=(make_event(),)), 100.0)
    (failure,) = found.failures.failures()
    assert failure.engine == "llama"


def test_a_process_of_its_own_fails_under_its_own_name() -> None:
    found = table()
    process(found, "p")
    found.member("p", report(None, events=(make_event(kind="ecc", message="m"),)), 100.0)
    (failure,) = found.failures.failures()
    assert (failure.engine, failure.process, failure.judgement) == ("", "train", None)


# -- series -----------------------------------------------------------------------------------------------


def series(state: AgentState) -> dict[tuple[str, ...], float]:
    found = [
        ((s.metric.name.removeprefix("kvtide_"), *s.labels), s.value)
        for s in (*collector.collect(state), *collector.collect_detail(state))
    ]
    assert len(dict(found)) == len(found), "one label set twice costs the whole scrape"
    return dict(found)


def state_of(row: AllocatorRow) -> AgentState:
    worker = make_worker(allocator=make_allocator_state(row=row))
    return make_state(make_engine(members=(worker,)), processes=(), failures=(), failure_counts=())


def test_the_numbers_of_a_worker() -> None:
    found = series(state_of(make_allocator()))
    where = ("m", "", "worker", "1", "cuda:0")
    expected = {
        "allocated_bytes": 690 * MIB,
        "reserved_bytes": 1000 * MIB,
        "active_bytes": 700 * MIB,
        "requested_bytes": 680 * MIB,
        "inactive_bytes": 300 * MIB,
        "inactive_split_bytes": 200 * MIB,
        "free_bytes": 240 * MIB,
        "largest_free_block_bytes": 100 * MIB,
        "releasable_bytes": 20 * MIB,
        "fragmentation_ratio": 1 - 100 / 240,
        "overcommit_ratio": 1000 / 690,
        "retries_total": 3,
        "ooms_total": 1,
        "streams": 2,
    }
    assert {name: found["allocator_" + name, *where] for name in expected} == expected
    assert found["allocator_free_block_bytes", *where, "16MiB-32MiB"] == 100 * MIB
    assert found["allocator_free_blocks", *where, "16MiB-32MiB"] == 5
    assert found["allocator_private_reserved_bytes", *where, "graphs"] == 60 * MIB
    assert found["allocator_private_reserved_bytes", *where, "sleep"] == 40 * MIB
    assert found["allocator_tag_mapped_bytes", *where, "weights"] == 0
    assert found["allocator_up", *where[:4]] == 1
    assert found["allocator_info", *where, "GPU-1", "native", "false"] == 1
    assert found["allocator_walk_seconds", *where[:4]] == 0.004


def test_a_process_of_its_own_has_its_name_for_a_label() -> None:
    state = make_state(processes=(make_torch_process(),))
    found = series(state)
    assert found["allocator_reserved_bytes", "", "train", "torch", "0", "cuda:0"] == 1000 * MIB
    assert found["torch_process_up", "train"] == 1


def test_without_cuda_there_is_one_series_and_no_zero() -> None:
    assert series(state_of(AllocatorRow(reason="no CUDA in this process"))) == {
        ("allocator_up", "m", "", "worker", "1"): 0
    }


def test_what_is_not_known_makes_no_series() -> None:
    bare = make_device(active_bytes=None, retries_total=None, allocated_bytes=0)
    names = {name for name, *_ in series(state_of(make_allocator(devices=(bare,), walk=None, tags=())))}
    assert not names & {
        "allocator_inactive_bytes",
        "allocator_retries_total",
        "allocator_overcommit_ratio",
        "allocator_free_bytes",
        "allocator_fragmentation_ratio",
    }
    full = make_walk(devices=(make_segments(free_bytes=0, largest_free_bytes=0),))
    names = {name for name, *_ in series(state_of(make_allocator(walk=full)))}
    assert "allocator_fragmentation_ratio" not in names
    assert "allocator_free_bytes" in names


def test_a_peer_that_tells_one_device_twice_does_not_cost_the_scrape() -> None:
    walk = make_walk(devices=(make_segments(), make_segments(free_bytes=1)))
    row = make_allocator(devices=(make_device(), make_device(allocated_bytes=1)), walk=walk)
    twice = make_allocator(devices=row.devices, walk=walk, tags=row.tags * 2)
    assert series(state_of(twice))["allocator_allocated_bytes", "m", "", "worker", "1", "cuda:0"] == 690 * MIB


# -- what a person sees -----------------------------------------------------------------------------------


def drawn(state: AgentState, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(render(state))
    return " ".join(console.file.getvalue().replace("│", " ").split())


def test_a_rank_in_a_line() -> None:
    text = drawn(state_of(make_allocator()))
    assert "rank 1 cuda:0: 1000.0 MiB reserved, 690.0 MiB allocated, 300.0 MiB inactive" in text
    assert "240.0 MiB free, the largest block 100.0 MiB (fragmentation 58%); 60.0 MiB in private pools" in text
    assert "weights: 40.0 MiB, 0 B on the device" in text


def test_ranks_without_a_device_share_a_line() -> None:
    state = make_allocator_state(row=AllocatorRow(reason="no CUDA in this process"))
    members = [make_worker(rank=rank, allocator=state) for rank in range(6)]
    assert [line.text for line in face.lines(members, gpus=True)] == [
        "rank 0, rank 1, rank 2, rank 3, ...: no CUDA in this process"
    ]
    assert list(face.lines(members, gpus=False)) == [], "nobody expects CUDA on a node without a GPU"
    holder = make_worker(rank=0, allocator=make_allocator_state())
    assert any("reserved" in line.text for line in face.lines([holder], gpus=False)), "no driver library for the agent"


def test_the_last_failure_with_its_judgement() -> None:
    text = drawn(make_state(failures=(make_failure(),)))
    assert "rank 1 cuda:0: oom in execute_model. fragmented: 150.0 MiB were asked for" in text
    assert "Nothing is wrong" not in text
    event = make_event(
        kind="illegal_address", message="CUDA error: an illegal [bold]memory access", device=None, count=3
    )
    text = drawn(make_state(failures=(make_failure(engine="gone", event=event, judgement=None),)))
    assert "rank 1: illegal address in execute_model, 3 times. CUDA error: an illegal [bold]memory access" in text


def test_an_old_failure_does_not_make_an_engine_ill() -> None:
    old = make_failure(event=make_event(at=1_700_000_000.0), judgement=judge("", make_event()))
    sound = make_engine(verdicts=(), detail=None)
    assert "Nothing is wrong" in drawn(make_state(sound, failures=(old,)))
    assert "Nothing is wrong" not in drawn(make_state(sound, failures=(make_failure(),)))


def test_a_recording_in_lines() -> None:
    row = HistoryRow(
        sequence=1,
        started_at=1.0,
        seconds=30.0,
        allocations=1000,
        allocated_bytes=500 * MIB,
        short_lived=900,
        short_lived_bytes=400 * MIB,
        sites=(SiteRow(site="a/b.py:3 f", allocations=10, bytes=5 * MIB),),
    )
    text = drawn(make_state(processes=(make_torch_process(allocator=make_allocator_state(history=row)),)))
    assert "train: recorded for 30 s: 1,000 allocations of 500.0 MiB, 900 of them (400.0 MiB) for less than" in text
    assert "5.0 MiB in 10: a/b.py:3 f" in text


# -- orders -----------------------------------------------------------------------------------------------


async def test_a_recording_is_ordered_of_a_member_that_is_here(server: LinkServer, socket_path: Path) -> None:
    peer = await RawPeer(socket_path).connect()
    session = await peer.shake_hands(KEY, instance="w", role="worker")
    await proven(server)
    assert server.order_history("w", 30.0)
    message = wire.decode(await peer.receive())
    assert isinstance(message, wire.SignedOrder)
    assert message.mac == session.sign_order(message.payload)
    assert wire.decode_order(message.payload) == wire.Order(sequence=1, kind="history", seconds=30.0)
    assert not server.order_history("nobody", 30.0)
    peer.sock.close()


async def test_no_recording_is_ordered_of_an_engine_core(server: LinkServer, socket_path: Path) -> None:
    peer = await RawPeer(socket_path).connect()
    await peer.shake_hands(KEY, instance="core")
    await proven(server)
    assert not server.order_history("core", 30.0)
    peer.sock.close()
    await asyncio.sleep(0)
