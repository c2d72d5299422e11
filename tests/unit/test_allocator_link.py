"""The probe on a member's link: what a listener hears of it, and when."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_hooks import link, member_link, wire
from engine_hooks.allocator import MIB
from engine_hooks.identity import Identity
from engine_hooks.member_link import MemberLink
from engine_hooks.members import MemberReport
from engine_hooks.settings import Settings
from engine_hooks.torch import attach, process
from engine_hooks.torch import probe as probe_module
from engine_hooks.torch.probe import Probe
from engine_hooks.worker import failures
from tests.bed.fake_torch import FakeTorch, OutOfMemoryError
from tests.bed.snapshots import AllocatorBed
from tests.unit.support import KEY, Listener, Peer, eventually, settings_for


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    found = FakeTorch(AllocatorBed(capacity=1024 * MIB))
    monkeypatch.setitem(sys.modules, "torch", found)
    monkeypatch.setattr(link, "ORDERS_AT_ONCE", 1e9)
    monkeypatch.setattr(probe_module, "_probes", [])
    monkeypatch.setattr(process, "_attachments", [])
    return found


@pytest.fixture
def settings(listener: Listener, key_file: Path, socket_path: Path) -> Settings:
    return settings_for(socket_path, key_file)


Start = Any


class Owner:
    """Somebody whose life is watched."""


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a member of a probe; all are closed after the test."""
    started: list[MemberLink] = []

    def start(settings: Settings, probe: Probe | None, role: str = "worker") -> MemberLink:
        identity = Identity.of_member(None, settings, role, 0, 0)
        owner = Owner()
        member = MemberLink(owner, identity, settings, lambda: None, probe)
        owners.append(owner)
        member.start()
        started.append(member)
        return member

    owners: list[Any] = []
    yield start
    for member in started:
        member.close()
    for member in started:
        eventually(lambda member=member: not member._link._thread.is_alive())


def hear(peer: Peer, kind: type[Any] = MemberReport) -> Any:
    while True:
        message = peer.receive()
        if isinstance(message, kind):
            return message


def order(peer: Peer, session: Any, number: int, **what: Any) -> wire.OrderResult:
    payload = wire.encode_order(wire.Order(sequence=number, **what))
    peer.send(wire.SignedOrder(payload=payload, mac=session.sign_order(payload)))
    result: wire.OrderResult = hear(peer, wire.OrderResult)
    return result


def test_the_first_word_has_counters_and_a_walk(
    listener: Listener, settings: Settings, torch: FakeTorch, start: Start
) -> None:
    torch.empty(30 * MIB)
    start(settings, Probe(settings))
    peer = listener.accept()
    peer.shake_hands()
    report = hear(peer)
    assert report.worker is None, "it has taken no device yet"
    assert report.allocator.devices[0].allocated_bytes == 30 * MIB
    assert report.allocator.walk.devices[0].reserved_bytes == 30 * MIB
    assert hear(peer).allocator.walk is None


def test_a_failed_allocation_is_on_the_wire_before_the_program_hears_of_it(
    listener: Listener, settings: Settings, torch: FakeTorch, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_link, "PERIOD_SECONDS", 3600.0)
    start(settings, Probe(settings))
    peer = listener.accept()
    peer.shake_hands()
    hear(peer)  # and nothing more by itself for an hour
    heard: list[Any] = []

    def program() -> None:
        try:
            torch.empty(2048 * MIB)
        except OutOfMemoryError:
            heard.append(peer.receive())  # the process may be gone in the next moment

    thread = threading.Thread(target=program)
    thread.start()
    thread.join(10.0)
    (report,) = heard
    assert [(event.kind, event.requested_bytes) for event in report.events] == [("oom", 2048 * MIB)]
    assert report.allocator.devices, "it stands for all that was told before"


def test_an_agent_that_comes_later_hears_of_it(
    listener: Listener, settings: Settings, torch: FakeTorch, start: Start
) -> None:
    probe = Probe(settings)
    start(settings, probe)
    first = listener.accept()
    first.shake_hands()
    hear(first)
    with pytest.raises(OutOfMemoryError):
        torch.empty(2048 * MIB)
    assert hear(first).events
    first.sock.close()
    second = listener.accept()
    second.shake_hands()
    assert [event.count for event in hear(second).events] == [1]
    assert hear(second).events == ()


def test_of_two_members_of_a_process_one_tells(
    listener: Listener, settings: Settings, torch: FakeTorch, start: Start
) -> None:
    torch.empty(MIB)
    probe = Probe(settings)
    members = [start(settings, probe) for _ in range(2)]
    peers = [listener.accept() for _ in range(2)]
    for peer in peers:
        peer.shake_hands()
    reasons = sorted(hear(peer).allocator.reason for peer in peers)
    assert reasons == ["", "another member of this process tells of it"]
    speaking = next(m for m in members if probe.claim(m))
    speaking.close()
    (silent,) = [m for m in members if m is not speaking]
    eventually(lambda: probe.claim(silent))


def test_a_recording_is_ordered_runs_and_is_told(
    listener: Listener, settings: Settings, torch: FakeTorch, start: Start
) -> None:
    start(settings, Probe(dataclasses.replace(settings, history=True)))
    peer = listener.accept()
    session, _ = peer.shake_hands()
    hear(peer)
    assert order(peer, session, 1, kind="history", seconds=0.2).ok
    assert torch.recording
    refused = order(peer, session, 2, kind="history", seconds=0.2)
    assert (refused.ok, "one is running" in refused.detail) == (False, True)
    report = hear(peer)
    while report.history is None:
        report = hear(peer)
    assert report.history.seconds >= 0.2
    assert not torch.recording


def test_a_recording_ends_although_the_agent_has_gone(
    listener: Listener, settings: Settings, torch: FakeTorch, start: Start
) -> None:
    start(settings, Probe(dataclasses.replace(settings, history=True)))
    peer = listener.accept()
    session, _ = peer.shake_hands()
    assert order(peer, session, 1, kind="history", seconds=0.3).ok
    peer.sock.close()
    listener.close()
    eventually(lambda: not torch.recording)


def test_without_leave_no_recording_and_other_orders_are_unknown(
    listener: Listener, settings: Settings, torch: FakeTorch, start: Start
) -> None:
    start(settings, Probe(settings))
    peer = listener.accept()
    session, _ = peer.shake_hands()
    refused = order(peer, session, 1, kind="history", seconds=5.0)
    assert (refused.ok, refused.detail) == (False, "KVTIDE_HISTORY is not set in this process's environment")
    assert order(peer, session, 2, kind="check").detail == "no such order: check"
    assert not torch.recording


# -- attach() ---------------------------------------------------------------------------------------------


def environment(monkeypatch: pytest.MonkeyPatch, path: Path, key: Path, **more: str) -> None:
    for name, value in {"KVTIDE_SOCKET": str(path), "KVTIDE_KEY_FILE": str(key), **more}.items():
        monkeypatch.setenv(name, value)


def test_any_process_attaches_by_one_call_and_once(
    listener: Listener, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, socket_path: Path, key_file: Path
) -> None:
    environment(monkeypatch, socket_path, key_file, KVTIDE_ENGINE_ID="of an engine that started it")
    handle = attach("train job")
    assert attach("again") is handle
    peer = listener.accept()
    _, hello = peer.shake_hands(KEY)
    assert (hello.role, hello.name, hello.engine_version) == ("torch", "train_job", "2.13.0")
    assert hello.engine_id == hello.instance, "it belongs to no engine, whoever started it"
    assert hear(peer).allocator.reason == ""
    handle.close()
    handle.close()
    peer.everything()  # to the end: there is one
    other = attach("other")
    assert other is not handle
    other.close()
    eventually(lambda: not other._link._link._thread.is_alive())


def test_switched_off_it_does_nothing(
    listener: Listener, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, socket_path: Path, key_file: Path
) -> None:
    environment(monkeypatch, socket_path, key_file, KVTIDE_DISABLE="1")
    before = threading.active_count()
    handle = attach()
    assert (handle.open, threading.active_count()) == (False, before)
    handle.close()


def test_attaching_never_raises(torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(_settings: Settings) -> Probe:
        raise RuntimeError("planted")

    environment(monkeypatch, tmp_path / "s", tmp_path / "k")
    monkeypatch.setattr(process, "of_process", broken)
    handle = attach("x")
    assert not handle.open
    handle.close()


# -- a worker's calls -------------------------------------------------------------------------------------


def test_what_a_call_raises_is_noted_and_raised_on_untouched(torch: FakeTorch, settings: Settings) -> None:
    error = RuntimeError("CUDA error: an illegal memory access was encountered")

    class Worker:
        def execute_model(self, number: int) -> int:
            """Theirs."""
            if number < 0:
                raise error
            return number + 1

    class Broken:
        def execute_model(self) -> None:
            raise ValueError("a bad request")

    for kind in (Worker, Broken):
        failures._watch(kind, "execute_model", settings)
        failures._watch(kind, "execute_model", settings)  # once is enough
    assert Worker().execute_model(1) == 2
    assert Worker.execute_model.__doc__ == "Theirs."
    with pytest.raises(RuntimeError) as caught:
        Worker().execute_model(-1)
    assert caught.value is error
    assert len([frame for frame in caught.traceback if frame.path.name == "failures.py"]) == 1
    with pytest.raises(ValueError, match="a bad request"):
        Broken().execute_model()
    events = probe_module.of_process(settings).events.all()
    assert [(event.kind, event.where, event.count) for event in events] == [("illegal_address", "execute_model", 1)]
