"""The engine's end of the link: whom it talks to, and how little it says before it knows."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from engine_hooks import link as link_module
from engine_hooks import wire
from tests.unit.conftest import StartLink
from tests.unit.support import KEY, Listener, Recorder, eventually, write_key


def test_a_full_handshake_then_messages(listener: Listener, start_link: StartLink) -> None:
    recorder = Recorder(name="chat")
    link = start_link(recorder)
    peer = listener.accept()
    session, hello = peer.shake_hands()
    assert hello.name == "chat"
    assert hello.mac == session.engine_proof()
    eventually(lambda: recorder.connects == 1)
    assert link.up
    assert link.state == "connected"
    link.send(wire.Heartbeat(silent_seconds=1.5))
    assert peer.receive() == wire.Heartbeat(silent_seconds=1.5)
    assert link.dropped == 0


def test_the_handshake_says_nothing_of_the_engine_but_a_nonce(listener: Listener, start_link: StartLink) -> None:
    recorder = Recorder()
    start_link(recorder)
    peer = listener.accept()
    peer.banner()
    first = peer.receive()
    assert isinstance(first, wire.Challenge)
    assert len(first.nonce) == wire.NONCE_BYTES
    assert recorder.hellos == 0
    peer.sock.close()
    again = listener.accept()
    again.banner()
    second = again.receive()
    assert isinstance(second, wire.Challenge)
    assert second.nonce != first.nonce
    again.sock.close()


def test_a_listener_with_another_key_gets_one_challenge_and_no_hello(listener: Listener, start_link: StartLink) -> None:
    recorder = Recorder()
    link = start_link(recorder)
    peer = listener.accept()
    peer.banner()
    peer.send(wire.Proof(mac=b"\0" * 32))
    frames = [wire.decode(frame) for frame in peer.everything()]
    assert [type(frame) for frame in frames] == [wire.Challenge]
    eventually(lambda: link.state.startswith("refused"))
    assert link.state.endswith("does not have our key")
    assert not link.up
    assert recorder.hellos == recorder.connects == 0


def test_our_own_proof_turned_around_is_no_proof(listener: Listener, start_link: StartLink) -> None:
    recorder = Recorder()
    start_link(recorder)
    peer = listener.accept()
    nonce = peer.banner()
    challenge = peer.receive()
    assert isinstance(challenge, wire.Challenge)
    peer.send(wire.Proof(mac=link_module.Session(KEY, nonce, challenge.nonce).engine_proof()))
    assert peer.everything() == []
    assert recorder.hellos == 0


def test_a_short_nonce_of_the_agent_is_refused_even_with_the_key(listener: Listener, start_link: StartLink) -> None:
    recorder = Recorder()
    start_link(recorder)
    peer = listener.accept()
    peer.send(wire.Banner(nonce=b"short", agent_version="t"))
    challenge = peer.receive()
    assert isinstance(challenge, wire.Challenge)
    peer.send(wire.Proof(mac=link_module.Session(KEY, b"short", challenge.nonce).agent_proof()))
    assert peer.everything() == []
    assert recorder.hellos == 0


def test_a_listener_that_says_nothing_is_sent_nothing(
    listener: Listener, start_link: StartLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "HANDSHAKE_SECONDS", 0.05)
    recorder = Recorder()
    link = start_link(recorder)
    assert listener.accept().everything() == []
    eventually(lambda: link.state == "refused: the listener does not answer")
    assert recorder.hellos == 0


@pytest.mark.parametrize(
    ("frame", "state"),
    [
        (b"SSH-2.0-x\r\n", "refused: the listener does not speak our protocol (malformed)"),
        (b"\0" * 70_000, "refused: the listener does not speak our protocol (oversize)"),
        (wire.encode(wire.Proof(mac=b"\0" * 32)), "refused: the listener speaks out of turn"),
    ],
)
def test_garbage_for_a_banner_is_answered_by_nothing(
    listener: Listener, start_link: StartLink, frame: bytes, state: str
) -> None:
    recorder = Recorder()
    link = start_link(recorder)
    peer = listener.accept()
    peer.sock.send(frame)
    assert peer.everything() == []
    eventually(lambda: link.state == state)
    assert recorder.hellos == 0


def test_a_listener_of_another_user_is_sent_nothing(listener: Listener, start_link: StartLink) -> None:
    recorder = Recorder()
    link = start_link(recorder, 424242)
    peer = listener.accept()
    assert peer.everything() == []
    eventually(lambda: link.state.startswith("refused"))
    assert f"was bound by uid {os.geteuid()}; allowed: [424242] (KVTIDE_AGENT_UIDS)" in link.state
    assert recorder.hellos == 0


@pytest.mark.parametrize(("mode", "word"), [(0o644, "chmod 0640"), (None, "No such file")])
def test_without_a_good_key_nothing_is_sent(
    listener: Listener, start_link: StartLink, tmp_path: Path, mode: int | None, word: str
) -> None:
    path = tmp_path / "other"
    if mode is not None:
        write_key(path).chmod(mode)
    recorder = Recorder()
    link = start_link(recorder, key=path)
    assert listener.accept().everything() == []
    eventually(lambda: word in link.state)
    assert recorder.hellos == 0


def test_a_key_that_is_repaired_is_taken_at_the_next_attempt(
    listener: Listener, start_link: StartLink, tmp_path: Path
) -> None:
    path = tmp_path / "other"
    link = start_link(Recorder(), key=path)
    assert listener.accept().everything() == []
    write_key(path)
    for _ in range(5):  # attempts that were under way hang up, some before we have said a word
        with contextlib.suppress(wire.WireError, BrokenPipeError, ConnectionResetError):
            listener.accept().shake_hands()
            break
    eventually(lambda: link.up)
