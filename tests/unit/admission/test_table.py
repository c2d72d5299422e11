"""The table that API servers share: quotas hold in total, nothing is given back twice, and the dead hold nothing."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine_hooks.frontend.admission import table as tables
from engine_hooks.frontend.admission.judge import InFlight, Refusal, Use
from engine_hooks.frontend.admission.shared import SharedTable
from engine_hooks.frontend.admission.table import OTHERS, SERVERS, TENANTS, Process, Table, TableError, Ticket
from tests.unit.support import Clock

QUOTA = 20
PARENT = Process.of(os.getppid())
assert PARENT is not None


def within(flight: InFlight, need: int, quota: int = QUOTA) -> Refusal | None:
    return Refusal("quota", 429, "") if flight.use.blocks + need > quota else None


def enter(table: Table, tenant: str, blocks: int) -> Ticket | None:
    assert table.try_lock()
    try:
        found = table.enter(tenant, Use(blocks, 1, 0), lambda flight: within(flight, blocks))
    finally:
        table.unlock()
    return found if isinstance(found, Ticket) else None


def open_table(folder: Path, clock: Clock | None = None, **kept: Any) -> SharedTable:
    assert PARENT is not None
    return SharedTable(folder, "engine", PARENT, 0, clock=clock or Clock(), **kept)


class Servers(RuleBasedStateMachine):
    """Two API servers and one that comes back; any of them may be killed at any moment, its memory of tickets lost."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name) / "own"
        self.clock = Clock()
        self.dead: set[int] = set()
        self.starts = 0
        self.servers: list[SharedTable | None] = [None, None]
        self.ids = [0, 0]
        self.tickets: list[list[tuple[str, int, Ticket]]] = [[], []]
        for which in (0, 1):
            self.start(which)

    def alive(self, pid: int) -> Process | None:
        if PARENT is not None and pid == PARENT.pid:
            return PARENT
        return None if pid in self.dead else Process(pid, 1)

    def start(self, which: int) -> None:
        self.starts += 1
        self.ids[which] = 1000 + self.starts
        own = self.ids[which]

        def process_of(pid: int) -> Process | None:
            return Process(own, 1) if pid == os.getpid() else self.alive(pid)

        self.servers[which] = open_table(self.folder, self.clock, process_of=process_of)

    @rule(which=st.sampled_from([0, 1]), tenant=st.sampled_from(["acme", "umbrella"]), blocks=st.integers(1, 12))
    def ask(self, which: int, tenant: str, blocks: int) -> None:
        server = self.servers[which]
        if server is None:
            return
        before = self.held(tenant)
        ticket = enter(server.table, tenant, blocks)
        if ticket is not None:
            self.tickets[which].append((tenant, blocks, ticket))
        elif not self.dead:  # those of a dead server count until somebody has looked
            assert before + blocks > QUOTA

    @rule(which=st.sampled_from([0, 1]), again=st.booleans())
    def finish(self, which: int, again: bool) -> None:
        server = self.servers[which]
        if server is not None and self.tickets[which]:
            _, _, ticket = self.tickets[which].pop()
            server.table.leave(ticket)
            if again:
                server.table.leave(ticket)

    @precondition(lambda self: all(self.servers))
    @rule(which=st.sampled_from([0, 1]))
    def kill(self, which: int) -> None:
        server = self.servers[which]
        assert server is not None
        self.dead.add(self.ids[which])
        os.close(server._file)  # as the kernel does; the memory is not touched
        self.servers[which] = None
        self.tickets[which] = []

    @rule(which=st.sampled_from([0, 1]))
    def restart(self, which: int) -> None:
        if self.servers[which] is None:
            self.start(which)

    @rule(seconds=st.sampled_from([0.05, 0.2, 2.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    def held(self, tenant: str) -> int:
        return sum(blocks for tickets in self.tickets for name, blocks, _ in tickets if name == tenant)

    @invariant()
    def no_quota_is_exceeded(self) -> None:
        for tenant in ("acme", "umbrella"):
            assert self.held(tenant) <= QUOTA

    @invariant()
    def what_lives_is_counted_and_the_dead_are_dropped(self) -> None:
        for server in filter(None, self.servers):
            server.table.others()
            for tenant in ("acme", "umbrella"):
                assert server.table.use_of(tenant).blocks == self.held(tenant)
            assert server.table.total().blocks == self.held("acme") + self.held("umbrella")

    def teardown(self) -> None:
        for server in filter(None, self.servers):
            server.close()
        self._folder.cleanup()


Servers.TestCase.settings = hypothesis_settings(max_examples=30, stateful_step_count=25, deadline=None)
TestServers = Servers.TestCase


def test_separate_tables_would_exceed_the_quota(tmp_path: Path) -> None:
    first, second = (open_table(tmp_path / name) for name in ("a", "b"))
    assert enter(first.table, "acme", 15)
    assert enter(second.table, "acme", 15)  # what a shared one refuses
    for server in (first, second):
        server.close()
    first, second = (open_table(tmp_path / "a") for _ in range(2))
    assert enter(first.table, "acme", 15)
    assert enter(second.table, "acme", 15) is None
    for server in (first, second):
        server.close()


CHILD = textwrap.dedent(
    """
    import os, sys, time
    from pathlib import Path
    from engine_hooks.frontend.admission.judge import Use
    from engine_hooks.frontend.admission.shared import SharedTable
    from engine_hooks.frontend.admission.table import Process
    folder, pid, start = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    shared = SharedTable(folder, "engine", Process(pid, start), 1)
    assert shared.table.try_lock()
    shared.table.enter("acme", Use(15, 1, 1), lambda flight: None)
    if sys.argv[4] != "locked":
        shared.table.unlock()
    print("held", flush=True)
    time.sleep(60)
    """
)


def child(folder: Path, how: str) -> subprocess.Popen[str]:
    assert PARENT is not None
    arguments = [str(folder), str(PARENT.pid), str(PARENT.start), how]
    process = subprocess.Popen([sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("how", ["unlocked", "locked"])
def test_a_server_that_is_killed_holds_nothing_and_no_lock(tmp_path: Path, how: str) -> None:
    clock = Clock()
    shared = open_table(tmp_path / "own", clock)
    process = child(tmp_path / "own", how)
    try:
        assert shared.table.use_of("acme") == Use(15, 1, 1)
        if how == "locked":
            assert not shared.table.try_lock()
        else:
            assert enter(shared.table, "acme", 15) is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
    clock.now += 1.0
    assert enter(shared.table, "acme", 15)
    assert shared.table.use_of("acme") == Use(15, 1, 0)
    path = shared.path
    shared.close()
    assert not path.exists()


def test_a_stopped_holder_is_not_waited_for(tmp_path: Path) -> None:
    shared = open_table(tmp_path / "own")
    process = child(tmp_path / "own", "locked")
    process.send_signal(signal.SIGSTOP)
    try:
        assert not shared.table.try_lock()  # and returns: it doesn't block
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
        shared.close()


def test_the_last_one_removes_the_file_and_a_later_one_sweeps_what_the_killed_left(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    first, second = open_table(folder), open_table(folder)
    first.close()
    assert second.path.exists()
    second.close()
    assert not second.path.exists()
    left = folder / "admission-gone-999999999-5"
    kept = folder / "something-else"
    left.touch()
    kept.touch()
    third = open_table(folder)
    assert {path.name for path in folder.iterdir()} == {third.path.name, kept.name}
    third.close()


@pytest.mark.parametrize("how", ["open", "link", "file"])
def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "own"
    if how == "open":
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
    elif how == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "real")
    else:
        folder.touch()
    with pytest.raises(TableError, match="own"):
        open_table(folder)


def test_a_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    path = open_table(tmp_path / "own").path
    path.write_bytes(b"x" * 100)
    with pytest.raises(TableError, match="another kvtide"):
        open_table(tmp_path / "own")
    assert path.read_bytes() == b"x" * 100


def test_more_servers_than_there_are_places_are_told(tmp_path: Path) -> None:
    servers = [open_table(tmp_path / "own") for _ in range(SERVERS)]
    with pytest.raises(TableError, match="more than"):
        open_table(tmp_path / "own")
    servers[3].close()
    servers[3] = open_table(tmp_path / "own")
    for server in servers:
        server.close()


def test_tenants_come_and_go_and_too_many_at_once_are_let_in() -> None:
    table = Table(None, Clock())
    room = TENANTS - OTHERS - 1
    tickets = [enter(table, f"t{number}", 1) for number in range(room)]
    assert all(tickets)
    extra = [enter(table, f"late{number}", QUOTA) for number in range(3)]
    assert all(extra)  # they share a place, and none is blamed for the others
    assert table.total().blocks == room + 3 * QUOTA
    for ticket in (*tickets, *extra):
        assert ticket is not None
        table.leave(ticket)
    assert table.total() == Use()
    assert enter(table, "late0", QUOTA)
    assert enter(table, "late0", 1) is None
    table.close()


def test_names_that_lie_in_one_another_are_told_apart() -> None:
    table = Table(None, Clock())
    for number, name in enumerate(["ab", "b", "a" * 64, "", "a"], 1):
        assert enter(table, name, number)
    assert [table.use_of(name).blocks for name in ("ab", "b", "a" * 64, "", "a")] == [1, 2, 3, 4, 5]
    table.close()


def test_a_decision_takes_two_system_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock and its release; the rest is memory. Whether others live is looked for once a second."""
    shared = open_table(tmp_path / "own")
    other = open_table(tmp_path / "own")
    first = enter(shared.table, "acme", 1)
    calls: list[str] = []
    flock = fcntl.flock
    monkeypatch.setattr(tables.fcntl, "flock", lambda file, how: (calls.append("flock"), flock(file, how))[1])
    shared.table._process_of = lambda pid: calls.append("look")  # type: ignore[func-returns-value]
    ticket = enter(shared.table, "acme", 1)
    assert calls == ["flock", "flock"]
    assert ticket is not None
    shared.table.leave(ticket)
    assert calls == ["flock", "flock"]
    assert first is not None
    monkeypatch.undo()
    for server in (other, shared):
        server.table._process_of = Process.of
        server.close()
