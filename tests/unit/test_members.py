"""Members: how they are joined to their engines, what of them is shown, and when they are gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.connection import Connection
from agent.engines import EngineTable
from agent.faces import status
from agent.members import MAX_MEMBERS
from agent.names import WORDS
from agent.state import EngineState, MemberState
from engine_hooks.auth import PeerCredentials, Session
from engine_hooks.levers.orders import LeverRow
from engine_hooks.members import FrontendRow, MemberReport, WorkerRow
from engine_hooks.wire import Banner, Challenge, Heartbeat, WireError, decode, encode
from engine_hooks.wire_types import Message
from exporters.collectors import members as collector
from tests.unit.builders import MIB, make_hello, make_report, make_silent, make_state

KEY = bytes(32)
GONE_AFTER = 3.0  # periods of a second


def worker_report(**changes: Any) -> MemberReport:
    row = {"tensor_parallel_rank": 0, "pipeline_parallel_rank": 0, "device": "cpu", "kv_bytes": 64 * MIB}
    return MemberReport(monotonic=1.0, resident_bytes=7 * MIB, worker=WorkerRow(**row | changes))


def server_report(count: int = 2, requests: int = 3) -> MemberReport:
    return MemberReport(monotonic=1.0, resident_bytes=9 * MIB, frontend=FrontendRow(count=count, requests=requests))


class Node:
    """A table with helpers; time stands at 100 s unless said otherwise."""

    def __init__(self) -> None:
        self.table = EngineTable(GONE_AFTER)

    def core(self, instance: str = "core", now: float = 100.0, **hello: Any) -> None:
        values = {"pid": 10, "parent_pid": 5, "world_size": 2, "local_world_size": 2, **hello}
        self.table.hello(make_hello(instance=instance, **values), values["pid"] + 1000, now)
        self.table.report(instance, make_report(), now)

    def worker(self, instance: str, rank: int = 0, now: float = 100.0, **hello: Any) -> None:
        values = {"role": "worker", "pid": 20 + rank, "parent_pid": 10, **hello}
        self.table.hello(make_hello(instance=instance, rank=rank, **values), values["pid"] + 1000, now)
        self.table.member(instance, worker_report(tensor_parallel_rank=max(0, rank)), now)

    def server(self, instance: str, rank: int = 0, now: float = 100.0, **hello: Any) -> None:
        values = {"role": "frontend", "pid": 6 + rank, "parent_pid": 5, **hello}
        self.table.hello(make_hello(instance=instance, rank=rank, **values), values["pid"] + 1000, now)
        self.table.member(instance, server_report(), now)

    def engines(self, now: float = 100.0) -> dict[str, EngineState]:
        return {state.instance: state for state in self.table.states(now, 0.0)}

    def seats(self, now: float = 100.0) -> dict[str, list[tuple[str, int]]]:
        return {key: [(m.role, m.rank) for m in state.members] for key, state in self.engines(now).items()}


@pytest.fixture
def node() -> Node:
    return Node()


def test_members_make_no_engines(node: Node) -> None:
    node.worker("w0")
    node.server("s0")
    assert node.engines() == {}
    assert node.table.unjoined(100.0) == 2


def test_members_are_joined_in_whatever_order_they_come(node: Node) -> None:
    node.worker("w1", 1)
    node.server("s1", 1)
    node.core()
    node.server("s0")
    node.worker("w0")
    (engine,) = node.engines().values()
    assert node.seats() == {"core": [("worker", 0), ("worker", 1), ("frontend", 0), ("frontend", 1)]}
    assert node.table.unjoined(100.0) == 0
    assert (engine.world_size, engine.workers_expected, engine.frontends_expected) == (2, 2, 2)
    assert (engine.up("worker"), engine.up("frontend")) == (2, 2)


def test_what_a_member_says_is_shown_beside_what_the_kernel_says(node: Node) -> None:
    node.core()
    node.worker("w0", pid=3, pid_namespace=77)
    (member,) = node.engines()["core"].members
    assert isinstance(member, MemberState)
    assert (member.pid, member.own_pid, member.pid_namespace) == (1003, 3, 77)
    assert member.worker is not None
    assert (member.worker.kv_bytes, member.worker.device, member.resident_bytes) == (64 * MIB, "cpu", 7 * MIB)
    assert (node.engines()["core"].pid, node.engines()["core"].own_pid) == (1010, 10)


def test_each_rank_has_its_own_workers_and_the_first_the_servers(node: Node) -> None:
    for index in (1, 0):
        node.core(f"core{index}", index=index, data_parallel_size=2)
        node.worker(f"w{index}", index=index)
    node.server("s0")
    assert node.seats() == {"core0": [("worker", 0), ("frontend", 0)], "core1": [("worker", 0)]}


def test_another_engines_members_are_not_taken(node: Node) -> None:
    node.core()
    node.worker("w0", engine_id="other")
    node.worker("w1", index=1)
    assert node.seats() == {"core": []}
    assert node.table.unjoined(100.0) == 2


def test_two_engines_of_one_process_are_told_apart_by_kinship(node: Node) -> None:
    node.core("a", pid=10)
    node.core("b", pid=11)
    node.worker("wa", parent_pid=10)
    node.worker("wb", parent_pid=11)
    node.worker("inside", rank=1, pid=11, parent_pid=5)
    assert node.seats() == {"a": [("worker", 0)], "b": [("worker", 0), ("worker", 1)]}


def test_pids_of_different_namespaces_are_not_compared(node: Node) -> None:
    """Two containers with a fixed engine id: the same numbers mean nothing."""
    node.core("old", pid=10, pid_namespace=1, started_at=1.0)
    node.core("new", pid=99, pid_namespace=2, started_at=2.0)
    node.worker("w", parent_pid=10, pid_namespace=3)
    assert node.seats() == {"old": [], "new": [("worker", 0)]}  # the younger, for want of kin


def test_a_successor_takes_over_from_a_lost_core(node: Node) -> None:
    node.core("old", started_at=2.0)
    node.table.disconnected("old", 100.0)
    node.core("new", pid=12, started_at=1.0)
    node.worker("w", parent_pid=99)
    assert node.engines()["new"].up("worker") == 1


def test_of_two_in_one_seat_the_one_that_is_there_counts(node: Node) -> None:
    """Otherwise one series would have two values, and the whole scrape would fail."""
    node.core()
    node.worker("old", started_at=1.0)
    node.worker("new", started_at=2.0, pid=30)
    (member,) = node.engines()["core"].members
    assert (member.own_pid, node.table.unjoined(100.0)) == (30, 1)
    node.table.disconnected("new", 100.0)
    (member,) = node.engines()["core"].members
    assert (member.own_pid, member.up) == (20, True)


def test_a_lost_member_has_no_values_and_is_gone_within_three_periods(node: Node) -> None:
    node.core()
    node.worker("w0")
    node.worker("w1", 1)
    node.table.disconnected("w1", 100.0)
    engine = node.engines(100.5)["core"]
    lost = engine.members[1]
    assert (lost.up, lost.link_up, lost.worker, lost.resident_bytes) == (False, False, None, None)
    assert (engine.up("worker"), engine.workers_expected) == (1, 2)
    node.table.tick(102.0)
    assert node.seats(102.0) == {"core": [("worker", 0), ("worker", 1)]}
    node.table.tick(102.01)
    assert node.seats(102.01) == {"core": [("worker", 0)]}


def test_the_last_member_that_leaves_changes_the_state(node: Node) -> None:
    """Nobody is left to age, but what is shown still has it: a new state must be drawn."""
    node.worker("w0")
    node.table.disconnected("w0", 100.0)
    assert node.table.unjoined(101.0) == 1
    before = node.table.version
    node.table.tick(102.01)
    assert node.table.unjoined(102.01) == 0
    assert node.table.version > before


def test_a_silent_member_stays_and_has_no_values(node: Node) -> None:
    node.core()
    node.worker("w0")
    assert node.engines(100.0 + GONE_AFTER)["core"].up("worker") == 1
    (member,) = node.engines(100.1 + GONE_AFTER)["core"].members
    assert (member.up, member.link_up, member.worker) == (False, True, None)
    node.table.tick(1_000.0)
    assert node.seats(1_000.0) == {"core": [("worker", 0)]}


def test_a_member_that_has_not_reported_is_not_up(node: Node) -> None:
    node.core()
    node.table.hello(make_hello(instance="w0", role="worker"), 7, 100.0)
    (member,) = node.engines()["core"].members
    assert (member.up, member.link_up) == (False, True)


def test_a_member_that_comes_back_is_the_same(node: Node) -> None:
    node.core()
    node.worker("w0")
    node.table.disconnected("w0", 101.0)
    node.worker("w0", now=102.0)
    assert node.engines(102.0)["core"].up("worker") == 1


def test_an_unknown_role_is_another(node: Node) -> None:
    node.core()
    node.worker("x", role='new"role')
    assert node.seats() == {"core": [("other", 0)]}


def test_one_instance_is_one_process(node: Node) -> None:
    node.core("same")
    node.worker("same")
    assert node.engines() == {}
    node.core("same")
    assert node.seats() == {"same": []}
    node.table.disconnected("same", 100.0)
    assert not node.engines()["same"].link_up


def test_members_are_bounded(node: Node) -> None:
    node.core()
    node.worker("stays")
    for i in range(MAX_MEMBERS + 50):
        node.worker(f"gone{i}", i + 1, now=100.0)
        node.table.disconnected(f"gone{i}", 100.0)
    members = node.engines()["core"].members
    assert len(members) + node.table.unjoined(100.0) == MAX_MEMBERS
    assert len(members) <= WORDS[0], "ranks are labels"
    assert members[0].up


def samples(node: Node, now: float = 100.0) -> dict[tuple[str, tuple[str, ...]], float]:
    state = make_state(*node.table.states(now, 0.0), unjoined_members=node.table.unjoined(now))
    made = (*collector.collect(state), *collector.collect_detail(state))
    found = [((sample.metric.name, sample.labels), sample.value) for sample in made]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_series_of_members(node: Node) -> None:
    node.core()
    node.worker("w0")
    node.worker("w1", 1)
    node.server("s0")
    node.worker("stranger", engine_id="other")
    assert samples(node) == {
        ("kvtide_members_unjoined", ()): 1,
        ("kvtide_members_expected", ("m", "worker")): 2,
        ("kvtide_members_expected", ("m", "frontend")): 2,
        ("kvtide_member_up", ("m", "worker", "0")): True,
        ("kvtide_member_up", ("m", "worker", "1")): True,
        ("kvtide_member_up", ("m", "frontend", "0")): True,
        ("kvtide_member_kv_bytes", ("m", "worker", "0")): 64 * MIB,
        ("kvtide_member_kv_bytes", ("m", "worker", "1")): 64 * MIB,
        ("kvtide_member_resident_bytes", ("m", "worker", "0")): 7 * MIB,
        ("kvtide_member_resident_bytes", ("m", "worker", "1")): 7 * MIB,
        ("kvtide_member_resident_bytes", ("m", "frontend", "0")): 9 * MIB,
        ("kvtide_member_requests", ("m", "frontend", "0")): 3,
    }
    node.table.disconnected("w1", 100.0)
    lost = samples(node)
    assert lost["kvtide_member_up", ("m", "worker", "1")] == 0
    assert ("kvtide_member_kv_bytes", ("m", "worker", "1")) not in lost
    assert lost["kvtide_members_expected", ("m", "worker")] == 2


def test_where_ray_places_workers_none_are_expected(node: Node) -> None:
    node.core(world_size=16, local_world_size=0)
    node.worker("w0")
    assert ("kvtide_members_expected", ("m", "worker")) not in samples(node)
    (engine,) = node.engines().values()
    assert status._members(engine) == "ranks 1 here, 16 on all nodes"


def test_the_status_line_counts(node: Node) -> None:
    node.core()
    node.worker("w0")
    node.server("s1", 1)
    (engine,) = node.engines().values()
    assert status._members(engine) == "ranks 1/2, api servers 1/2"
    assert status._members(make_silent()) == ""


class Talk:
    """A proven connection of ``role``."""

    def __init__(self, role: str) -> None:
        self.sent: list[Message] = []
        self.connection = Connection(KEY, PeerCredentials(1, 0, 0), self.sent.append, 0.0)
        self.connection.open()
        banner = self.sent[0]
        assert isinstance(banner, Banner)
        session = Session(KEY, banner.nonce, b"e" * 32)
        self.receive(Challenge(nonce=session.engine_nonce))
        self.receive(make_hello(role=role, mac=session.engine_proof()))

    def receive(self, message: Message) -> object:
        return self.connection.receive(encode(message), 0.0)


@pytest.mark.parametrize("role", ["worker", "frontend", "newer"])
def test_a_member_may_only_speak_as_one(role: str) -> None:
    talk = Talk(role)
    assert talk.receive(worker_report()) == worker_report()
    for message in (make_report(), Heartbeat(silent_seconds=1.0)):
        with pytest.raises(WireError, match="order"):
            talk.receive(message)


def test_a_core_may_not_speak_as_a_member() -> None:
    talk = Talk("core")
    assert talk.receive(make_report()) == make_report()
    with pytest.raises(WireError, match="order"):
        talk.receive(worker_report())


def test_a_hello_without_a_role_is_a_cores() -> None:
    hello = make_hello()
    assert (hello.role, hello.world_size, hello.parent_pid) == ("core", 0, 0)
    assert decode(encode(hello)) == hello


NAMESPACED = """
import os, socket, sys
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(sys.argv[1])
sock.send(str(os.getpid()).encode())
sock.recv(1)
"""


def test_the_kernel_tells_the_agents_view_of_a_pid(tmp_path: Path) -> None:
    """A process in a pid namespace of its own is pid 1 or 2 to itself, and somebody else to us."""
    import socket

    from engine_hooks.auth import peer_credentials

    unshare = ["unshare", "--pid", "--fork", "--kill-child"]
    if os.geteuid() or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine permits no pid namespace")
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(1)
        listener.settimeout(20.0)
        child = subprocess.Popen([*unshare, sys.executable, "-c", NAMESPACED, str(path)])
        try:
            peer, _ = listener.accept()
            with peer:
                own = int(peer.recv(16))
                seen = peer_credentials(peer).pid
                assert own == 1
                assert seen > 1
                assert b"sock.connect" in Path(f"/proc/{seen}/cmdline").read_bytes()
                peer.send(b"x")
        finally:
            child.wait(20.0)


def test_an_engine_without_a_python_api_server_says_that_nobody_has_its_lever() -> None:
    node, rows = Node(), (LeverRow(lever="enforce_admission", ok=True),)
    node.core(levers=rows)
    node.core("second", index=1, pid=11, levers=rows)  # API servers are joined to the first rank
    node.core("other", engine_id="e2", pid=12)  # one that obeys nobody
    found = {name: {row.lever: row.ok for row in engine.levers} for name, engine in node.engines().items()}
    assert found == {
        "core": {"enforce_admission": True, "admission": False},
        "second": {"enforce_admission": True},
        "other": {},
    }
    assert "enforce_admission" in node.engines()["core"].levers[-1].reason
    node.server("api")
    assert node.engines()["core"].levers == rows
