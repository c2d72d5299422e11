"""A process of the same user takes the agent's path: the engine tells it nothing and does nothing that it says."""

from __future__ import annotations

from pathlib import Path

from engine_hooks import wire
from engine_hooks.auth import Session
from tests.unit.conftest import StartLink
from tests.unit.support import KEY, PATIENCE, Listener, Peer, Recorder


def order(session: Session, sequence: int) -> wire.SignedOrder:
    payload = wire.encode_order(wire.Order(sequence=sequence, kind="check"))
    return wire.SignedOrder(payload=payload, mac=session.sign_order(payload))


def refused(rogue: Peer, captured: wire.SignedOrder) -> None:
    """Play an agent without the key, as far as the engine lets it."""
    nonce = b"n" * wire.NONCE_BYTES
    rogue.send(wire.Banner(nonce=nonce, agent_version="9"))
    challenge = rogue.receive()
    assert isinstance(challenge, wire.Challenge)
    forged = Session(b"f" * 32, nonce, challenge.nonce)
    rogue.send(captured)
    rogue.send(wire.Proof(mac=forged.agent_proof()))
    rogue.send(order(forged, 1))
    rogue.send(captured)


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
    for _ in range(3):
        refused(rogue.accept(), captured)
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
