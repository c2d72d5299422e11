"""A process of the same user takes the agent's path: the engine tells it nothing and does nothing that it says."""

from __future__ import annotations

import contextlib
from pathlib import Path

from engine_hooks import wire
from engine_hooks.auth import Session
from tests.unit.conftest import StartLink
from tests.unit.support import KEY, PATIENCE, Listener, Peer, Recorder


def order(session: Session, sequence: int) -> wire.SignedOrder:
    payload = wire.encode_order(wire.Order(sequence=sequence, kind="check"))
    return wire.SignedOrder(payload=payload, mac=session.sign_order(payload))


def openings(forged: Session, captured: wire.SignedOrder) -> list[list[wire.Message]]:
    """What one without the key can say when it is asked for its proof."""
    proof = wire.Proof(mac=forged.agent_proof())
    return [[captured, proof, order(forged, 1)], [order(forged, 1), captured], [proof, order(forged, 1), captured]]


def refused(rogue: Peer, captured: wire.SignedOrder, opening: int) -> None:
    """Play an agent without the key, as far as the engine lets it: to the end of the connection."""
    nonce = b"n" * wire.NONCE_BYTES
    rogue.send(wire.Banner(nonce=nonce, agent_version="9"))
    challenge = rogue.receive()
    assert isinstance(challenge, wire.Challenge)
    with contextlib.suppress(BrokenPipeError):  # the engine may have hung up at the first word
        for message in openings(Session(b"f" * 32, nonce, challenge.nonce), captured)[opening]:
            rogue.send(message)
    assert rogue.everything() == []


def test_every_order_of_a_rogue_is_refused_and_the_agent_is_known_again(
    socket_path: Path, start_link: StartLink
) -> None:
    recorder = Recorder()
    agent = Listener(socket_path)
    start_link(recorder)
    peer = agent.accept()
    session, _ = peer.shake_hands()
    captured = order(session, 1)
    peer.send(captured)
    assert recorder.orders.get(timeout=PATIENCE).sequence == 1

    socket_path.unlink()
    rogue = Listener(socket_path)
    peer.send(order(session, 2))
    assert recorder.orders.get(timeout=PATIENCE).sequence == 2, "a link that stands is not moved by another's bind"
    peer.sock.close()
    for opening in range(3):
        refused(rogue.accept(), captured, opening)
    rogue.close()

    agent = Listener(socket_path)
    session, _ = agent.accept().shake_hands()
    agent._peers[-1].send(order(session, 1))
    assert recorder.orders.get(timeout=PATIENCE).sequence == 1
    assert recorder.orders.empty()
    assert recorder.hellos == 2, "the rogue heard none"
    agent.close()


def test_with_the_key_it_would_be_obeyed() -> None:
    """The twin: it is the key that makes the difference, as the threat model says."""
    real, same = Session(KEY, b"a" * 32, b"b" * 32), Session(KEY, b"a" * 32, b"b" * 32)
    assert order(real, 1) == order(same, 1)
