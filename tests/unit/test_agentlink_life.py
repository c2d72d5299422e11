"""The engine's end of the link once it stands: orders, a peer that does not read, coming back, forks, the end."""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine_hooks import wire
from engine_hooks.auth import Session
from engine_hooks.levers.orders import ActionOrder, ActionResult
from tests.unit.conftest import StartLink
from tests.unit.support import KEY, PATIENCE, Listener, Recorder, eventually

ROOT = Path(__file__).parents[2]


def signed(session: Session, sequence: int, kind: str = "check", action: ActionOrder | None = None) -> wire.SignedOrder:
    payload = wire.encode_order(wire.Order(sequence=sequence, kind=kind, action=action))
    return wire.SignedOrder(payload=payload, mac=session.sign_order(payload))


def test_orders_that_come_too_fast_are_turned_away_and_said_to_be(listener: Listener, start_link: StartLink) -> None:
    recorder = Recorder()
    start_link(recorder)
    peer = listener.accept()
    session, _ = peer.shake_hands()
    last = 60
    for number in range(1, last + 1):  # sent in a few milliseconds: each would wake the engine
        action = ActionOrder(action=f"a{number}", lever="watermark", op="renew", instance="i")
        peer.send(signed(session, number, wire.LEVER, action) if number % 2 else signed(session, number))
    answers: list[wire.Message] = []
    while len(answers) + recorder.orders.qsize() < last:
        answers.append(peer.receive())
    obeyed = [recorder.orders.get_nowait().sequence for _ in range(recorder.orders.qsize())]
    assert obeyed[:20] == list(range(1, 21))
    results = [answer for answer in answers if isinstance(answer, ActionResult)]
    assert {(each.ok, each.code, each.op) for each in results} == {(False, "busy", "renew")}
    told = {int(each.action[1:]) for each in results}
    told |= {each.sequence for each in answers if isinstance(each, wire.OrderResult) and not each.ok}
    assert sorted([*obeyed, *told]) == list(range(1, last + 1))
    peer.send(signed(session, last, wire.LEVER, action))  # one that was turned away is not new
    peer.sock.close()
    listener.accept()  # it has come back, so it has read all that was sent
    assert recorder.orders.empty()


def test_only_signed_and_new_orders_are_delivered_once(listener: Listener, start_link: StartLink) -> None:
    recorder = Recorder()
    start_link(recorder)
    peer = listener.accept()
    session, _ = peer.shake_hands()
    good = signed(session, 3)
    stranger = Session(b"x" * 32, session.agent_nonce, session.engine_nonce)
    other_session = Session(KEY, session.agent_nonce, b"\0" * 32)
    junk = wire.SignedOrder(payload=b"junk", mac=session.sign_order(b"junk"))
    for message in (
        wire.SignedOrder(payload=good.payload, mac=b"\0" * 32),
        signed(stranger, 1),
        signed(other_session, 2),
        junk,
        wire.Heartbeat(silent_seconds=1.0),  # not for us to hear
        good,
        good,
        signed(session, 3, "other"),
        signed(session, 2),
        signed(session, 4),
    ):
        peer.send(message)
    peer.sock.send(b"\xc1 garbage")
    peer.sock.send(b"\0" * 70_000)
    peer.send(signed(session, 9, "last"))
    orders = [recorder.orders.get(timeout=PATIENCE) for _ in range(3)]
    assert [(order.sequence, order.kind) for order in orders] == [(3, "check"), (4, "check"), (9, "last")]
    with pytest.raises(queue.Empty):
        recorder.orders.get_nowait()


def test_an_order_of_the_session_before_is_refused_and_numbers_begin_anew(
    listener: Listener, start_link: StartLink
) -> None:
    recorder = Recorder()
    start_link(recorder)
    peer = listener.accept()
    old, _ = peer.shake_hands()
    peer.send(signed(old, 7))
    assert recorder.orders.get(timeout=PATIENCE).sequence == 7
    peer.sock.close()
    peer = listener.accept()
    new, _ = peer.shake_hands()
    peer.send(signed(old, 8))
    peer.send(signed(new, 1))
    assert recorder.orders.get(timeout=PATIENCE).sequence == 1
    assert recorder.orders.empty()


@pytest.mark.timeout(60)  # 1000 sends that waited for room, be it a quarter of a second each, would take minutes
def test_a_listener_that_never_reads_costs_drops_and_no_waiting(listener: Listener, start_link: StartLink) -> None:
    recorder = Recorder()
    link = start_link(recorder)
    peer = listener.accept()
    peer.shake_hands()
    eventually(lambda: link.up)
    for number in range(2000):
        link.send(wire.Heartbeat(silent_seconds=float(number)))
    assert link.up
    dropped = link.dropped
    assert 1000 < dropped < 2000
    peer.sock.setblocking(False)
    arrived = []
    with contextlib.suppress(BlockingIOError):
        while True:
            arrived.append(peer.receive())
    assert arrived == [wire.Heartbeat(silent_seconds=float(number)) for number in range(2000 - dropped)]
    link.send(wire.Heartbeat(silent_seconds=-1.0))
    assert peer.receive() == wire.Heartbeat(silent_seconds=-1.0)
    assert link.dropped == dropped


def test_it_comes_back_after_the_listener_went_away(
    listener: Listener, start_link: StartLink, socket_path: Path
) -> None:
    recorder = Recorder()
    link = start_link(recorder)
    listener.accept().shake_hands()
    eventually(lambda: link.up)
    listener.close()
    eventually(lambda: link.state.startswith("no agent at"))
    assert not link.up
    link.send(wire.Heartbeat(silent_seconds=1.0))  # nobody there: lost, but not a drop
    assert link.dropped == 0
    second = Listener(socket_path)
    try:
        peer = second.accept()
        peer.shake_hands()
        eventually(lambda: recorder.connects == 2)
        link.send(wire.Heartbeat(silent_seconds=2.0))
        assert peer.receive() == wire.Heartbeat(silent_seconds=2.0)
    finally:
        second.close()


def test_the_side_thread_ticks_with_and_without_an_agent(start_link: StartLink, socket_path: Path) -> None:
    recorder = Recorder()
    start_link(recorder)
    eventually(lambda: recorder.ticks >= 2)
    recorder.beat = wire.Heartbeat(silent_seconds=5.0)
    listener = Listener(socket_path)
    try:
        peer = listener.accept()
        peer.shake_hands()
        assert peer.receive() == recorder.beat
    finally:
        listener.close()


def test_a_bad_callback_does_not_end_the_link(listener: Listener, start_link: StartLink) -> None:
    recorder = Recorder(no_such_field=1)  # building the Hello raises
    link = start_link(recorder)
    peer = listener.accept()
    with pytest.raises((wire.WireError, ConnectionResetError)):
        peer.shake_hands()
    eventually(lambda: link.state.startswith("error"))
    recorder._hello = {}
    for _ in range(5):  # an attempt with the bad Hello may be under way
        with contextlib.suppress(wire.WireError, ConnectionResetError):
            listener.accept().shake_hands()
            break
    eventually(lambda: link.up)


ENGINE = """
import os, signal, sys
from pathlib import Path
from engine_hooks.link import AgentLink
from tests.unit.support import Recorder, eventually, settings_for

link = AgentLink(settings_for(Path(sys.argv[1]), Path(sys.argv[2])), Recorder().callbacks)
link.start()
eventually(lambda: link.up)
if os.fork() == 0:  # lives until the test closes the pipe
    os.read(0, 1)
    os.write(1, b"closed" if not link.up else b"open")
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_agent_sees_an_engine_die_although_its_forked_child_lives(
    listener: Listener, socket_path: Path, key_file: Path
) -> None:
    command = [sys.executable, "-c", ENGINE, str(socket_path), str(key_file)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as engine:
        try:
            peer = listener.accept()
            peer.shake_hands()
            assert peer.receive_raw() == b""
        finally:
            assert engine.communicate(timeout=PATIENCE)[0] == b"closed"
    assert engine.returncode == -signal.SIGKILL


def test_close_ends_the_thread_and_the_connection(listener: Listener, start_link: StartLink) -> None:
    link = start_link(Recorder())
    peer = listener.accept()
    peer.shake_hands()
    eventually(lambda: link.up)
    link.close()
    assert not link.up
    assert peer.receive_raw() == b""
    eventually(lambda: not link._thread.is_alive())
    link.send(wire.Heartbeat(silent_seconds=1.0))
    assert link.dropped == 0


def test_a_tick_that_raises_ends_neither_the_thread_nor_the_connection(
    socket_path: Path, start_link: StartLink, caplog: pytest.LogCaptureFixture
) -> None:
    class Raising(Recorder):
        def _tick(self) -> wire.Message | None:
            super()._tick()
            raise ValueError("planted")

    recorder = Raising()
    start_link(recorder)
    eventually(lambda: recorder.ticks >= 2)  # nobody listens yet
    listener = Listener(socket_path)
    try:
        peer = listener.accept()
        session, _ = peer.shake_hands()
        before = recorder.ticks
        eventually(lambda: recorder.ticks >= before + 2)
        peer.send(signed(session, 1))
        assert recorder.orders.get(timeout=PATIENCE).sequence == 1
        assert recorder.connects == 1
    finally:
        listener.close()
    assert len([text for text in caplog.messages if "planted" in text]) == 1
