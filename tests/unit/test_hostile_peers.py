"""Processes of this node that have the key and mean harm: engines and what is known of them stay."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from agent import link as link_module
from agent.engines import EngineTable
from agent.link import LinkServer
from agent.members import EVENTS_AT_ONCE
from agent.oom.log import MAX_FAILURES, MAX_OWN, FailureLog, Who
from agent.oom.message import parse
from agent.waterfall.build import waterfalls
from engine_hooks import wire
from engine_hooks.allocator import TagRow
from engine_hooks.auth import PeerCredentials
from engine_hooks.members import CORE, TORCH, WORKER, MemberReport
from tests.unit.allocators import make_allocator_state, make_event
from tests.unit.builders import make_hello
from tests.unit.support import KEY, RawPeer, eventually_async
from tests.unit.waterfalls import (
    GIB,
    MIB,
    Rank,
    Torch,
    Truth,
    allocator_of,
    check_identity,
    sizes,
    trainer_of,
    worker_of,
)
from tests.unit.waterfalls import engine_of as engine_with

ENGINE = Who(instance="e", engine="tiny", process="", role="worker", rank=0, pid=7)


# -- another process says that it is an engine that is here -----------------------------------------------


@pytest.mark.parametrize("role", [TORCH, CORE])
async def test_another_process_does_not_take_the_place_of_an_engine(
    server: LinkServer, table: EngineTable, socket_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    engine = await RawPeer(socket_path).connect()
    await engine.shake_hands(KEY, instance="same")
    await eventually_async(lambda: server.state().connections == 1)
    monkeypatch.setattr(link_module, "peer_credentials", lambda _sock: PeerCredentials(4711, 0, 0))
    impostor = await RawPeer(socket_path).connect()
    await impostor.shake_hands(KEY, instance="same", role=role)
    assert await impostor.receive() == b""
    assert server.state().refused_peers["handshake"] == 1
    assert server.state().connections == 1
    assert table._engines["same"].link_up, "the end of the impostor is not the engine's"
    assert isinstance(wire.decode(await engine.receive()), wire.SignedOrder)
    engine.sock.close()
    impostor.sock.close()


# -- a flood of failures ----------------------------------------------------------------------------------


def own(number: int) -> Who:
    return Who(instance=f"t{number}", engine="", process=f"train~{number}", role=TORCH, rank=0, pid=9)


def test_processes_of_no_engine_push_no_engines_failure_out() -> None:
    log = FailureLog()
    for number in range(MAX_FAILURES - MAX_OWN):
        log.add(ENGINE, make_event(sequence=number, at=float(number)), 100.0)
    for number in range(1000):
        log.add(own(number), make_event(sequence=number, at=1e9), 100.0)
    kept = log.failures()
    assert sum(failure.engine == "tiny" for failure in kept) == MAX_FAILURES - MAX_OWN
    assert sum(bool(failure.process) for failure in kept) == MAX_OWN


def test_processes_of_no_engine_use_up_no_series_of_engines() -> None:
    log = FailureLog()
    for number in range(1000):
        log.add(own(number), make_event(sequence=number), 100.0)
    log.add(ENGINE, make_event(sequence=1), 100.0)
    counts = log.counts(200.0)
    assert [row.count for row in counts if row.engine == "tiny"] == [1]
    assert sum(row.count for row in counts) == 1001
    assert len(counts) < 50
    assert {row.engine for row in counts} == {"tiny", ""}


def test_a_flood_of_events_of_one_process_is_looked_at_in_part() -> None:
    table = EngineTable(3.0)
    for instance in ("flood", "calm"):
        table.hello(make_hello(instance=instance, role=WORKER, name=instance), 7, 0.0)
    for number in range(500):
        events = tuple(make_event(sequence=6 * number + n) for n in range(6))
        table.member("flood", MemberReport(monotonic=1.0, resident_bytes=None, events=events), 1.0)
    table.member("calm", MemberReport(monotonic=1.0, resident_bytes=None, events=(make_event(sequence=1),)), 1.0)
    told = [failure.engine for failure in table.failures.failures()]
    assert (told.count("flood"), told.count("calm")) == (int(EVENTS_AT_ONCE), 1)
    later = MemberReport(monotonic=9.0, resident_bytes=None, events=(make_event(sequence=9999),))
    table.member("flood", later, 9.0)
    assert len(table.failures.failures()) == EVENTS_AT_ONCE + 2


@pytest.mark.parametrize(
    "message",
    [
        "CUDA out of memory. Tried to allocate " + "9" * 900 + " GiB",
        "Free memory on device (" + "9" * 400 + "/" + "9" * 400 + " GiB) on startup is less than",
        "Error in memory profiling. Initial free memory 1 GiB, current free memory " + "9" * 800 + " GiB",
    ],
)
def test_a_message_with_numbers_without_end_is_judged(message: str) -> None:
    FailureLog().add(ENGINE, make_event(message=message), 1.0)
    assert parse(message) is not None
    fine = parse("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 79.10 GiB of which")
    assert fine is not None
    assert (fine.requested, fine.device) == (20 * MIB, 1)


# -- sizes that can't be ----------------------------------------------------------------------------------


def test_sizes_that_no_gpu_has_are_said_and_make_no_part_negative() -> None:
    huge = 1 << 60
    rank = Rank(weights=huge, kv=huge, torch=Torch(active=huge, inactive=huge, graphs=huge))
    truth = Truth(ranks={101: Rank()})
    (found,) = waterfalls((truth.gpu(),), (engine_with("101", worker_of(101, rank)),), (), host_pids=True)
    check_identity(found)
    assert found.unattributed_bytes is not None
    assert found.unattributed_bytes < 0
    assert any("the remainder is too low by that" in reason for reason in found.reasons)


def test_sleep_mode_that_has_more_on_the_device_than_in_all_takes_nothing_from_other_parts() -> None:
    tag = TagRow(tag="weights", device=0, allocations=1, bytes=0, mapped_bytes=1 << 60, backed_up_bytes=0)
    truth = Truth()
    told = allocator_of(Torch(), Rank(), tags=(tag,))
    (found,) = waterfalls((truth.gpu(),), (engine_with("101", worker_of(101, Rank(), told)),), (), host_pids=True)
    assert sizes(found)["weights", "101"] == Rank().weights
    check_identity(found)


def test_more_in_use_than_reserved_is_said() -> None:
    torch = Torch(active=10 * GIB)
    row = allocator_of(torch)
    lying = msgspec.structs.replace(
        row,
        devices=(msgspec.structs.replace(row.devices[0], reserved_bytes=1 * MIB, private_reserved_bytes=0),),
        walk=None,
    )
    truth = Truth(ranks={}, trainers={300: torch})
    trainer = trainer_of(300, torch, allocator=make_allocator_state(row=lying))
    (found,) = waterfalls((truth.gpu(),), (), (trainer,), host_pids=True)
    check_identity(found)
    assert any("torch/300: what is in use" in reason for reason in found.reasons)
    (honest,) = waterfalls((truth.gpu(),), (), truth.processes(), host_pids=True)
    assert not honest.reasons
