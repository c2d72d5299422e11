"""The agent's side of the conversation: the handshake, what may follow it, and the rate."""

from __future__ import annotations

import pytest

from agent.connection import BURST, RATE, Connection, RefusedPeerError
from engine_hooks import wire
from engine_hooks.auth import PeerCredentials, Session
from tests.unit.builders import make_hello, make_report
from tests.unit.support import KEY

NONCE = b"e" * wire.NONCE_BYTES
BEAT = wire.encode(wire.Heartbeat(silent_seconds=1.0))


class Talk:
    """A connection and what it has said."""

    def __init__(self) -> None:
        self.said: list[wire.Message] = []
        self.connection = Connection(KEY, PeerCredentials(1, 2, 3), self.said.append, now=100.0)
        self.connection.open()
        banner = self.said.pop()
        assert isinstance(banner, wire.Banner)
        assert len(banner.nonce) == wire.NONCE_BYTES
        self.session = Session(KEY, banner.nonce, NONCE)

    def hear(self, message: wire.Message | bytes, now: float = 100.0) -> wire.Message | None:
        return self.connection.receive(message if isinstance(message, bytes) else wire.encode(message), now)

    def prove(self) -> Talk:
        self.hear(wire.Challenge(nonce=NONCE))
        self.hear(make_hello(mac=self.session.engine_proof()))
        self.said.clear()
        return self

    def refusal(self, message: wire.Message | bytes) -> str:
        with pytest.raises(RefusedPeerError) as caught:
            self.hear(message)
        return caught.value.reason

    def rejection(self, message: wire.Message | bytes) -> str:
        with pytest.raises(wire.WireError) as caught:
            self.hear(message)
        return caught.value.reason


def test_a_good_handshake() -> None:
    talk = Talk()
    assert talk.hear(wire.Challenge(nonce=NONCE)) is None
    assert talk.said == [wire.Proof(mac=talk.session.agent_proof())]
    assert talk.connection.hello is None
    hello = make_hello(mac=talk.session.engine_proof())
    assert talk.hear(hello) == hello
    assert talk.connection.hello == hello


def test_banners_are_fresh() -> None:
    assert Talk().session.agent_nonce != Talk().session.agent_nonce


@pytest.mark.parametrize(
    "frame",
    [
        make_hello(),
        make_report(),
        wire.Heartbeat(silent_seconds=1.0),
        wire.Challenge(nonce=NONCE[:-1]),
        wire.Challenge(nonce=NONCE + b"e"),
        wire.Challenge(nonce=b""),
        b"GET / HTTP/1.1",
        b"",
        b"\0" * 70_000,
    ],
)
def test_a_first_word_that_is_no_challenge_ends_it_unanswered(frame: wire.Message | bytes) -> None:
    talk = Talk()
    assert talk.refusal(frame) == "handshake"
    assert talk.said == []


@pytest.mark.parametrize("frame", [make_report(), wire.Challenge(nonce=NONCE), b"\xc1", wire.Proof(mac=b"")])
def test_a_second_word_that_is_no_hello_ends_it(frame: wire.Message | bytes) -> None:
    talk = Talk()
    talk.hear(wire.Challenge(nonce=NONCE))
    assert talk.refusal(frame) == "handshake"
    assert talk.connection.hello is None


def test_a_hello_with_a_wrong_proof_is_refused_for_its_key() -> None:
    talk = Talk()
    talk.hear(wire.Challenge(nonce=NONCE))
    for mac in (b"", talk.session.agent_proof(), Session(b"x" * 32, *talk.session[1:]).engine_proof()):
        assert talk.refusal(make_hello(mac=mac)) == "key"
    assert talk.connection.hello is None


def test_what_an_engine_may_say_after_its_hello() -> None:
    talk = Talk().prove()
    for message in (make_report(), wire.Heartbeat(silent_seconds=2.0), wire.OrderResult(sequence=1, ok=True)):
        assert talk.hear(message) == message


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (make_hello(), "order"),
        (wire.Challenge(nonce=NONCE), "order"),
        (wire.Banner(nonce=NONCE, agent_version=""), "order"),
        (wire.SignedOrder(payload=b"", mac=b""), "order"),
        (b"\xc1", "malformed"),
        (b"\0" * 70_000, "oversize"),
        (b"\x93\x02\xa6report\x80", "unknown_version"),
        (b"\x93\x01\xa6gossip\x80", "unknown_kind"),
    ],
)
def test_what_it_may_not_say_is_counted_and_harmless(frame: wire.Message | bytes, reason: str) -> None:
    talk = Talk().prove()
    assert talk.rejection(frame) == reason
    assert talk.hear(make_report()) == make_report()
    assert talk.said == []


def test_the_rate_allows_a_burst_and_then_a_hundred_frames_a_second() -> None:
    assert (BURST, RATE) == (1000.0, 100.0)
    talk = Talk().prove()
    for _ in range(1000):
        talk.hear(BEAT)
    assert talk.rejection(BEAT) == "rate"
    with pytest.raises(wire.WireError, match="rate"):
        talk.hear(BEAT, now=100.0078125)
    talk.hear(BEAT, now=100.015625)  # 1.5625 frames' worth in all, so one
    with pytest.raises(wire.WireError, match="rate"):
        talk.hear(BEAT, now=100.015625)
    for _ in range(100):
        talk.hear(BEAT, now=101.015625)
    with pytest.raises(wire.WireError, match="rate"):
        talk.hear(BEAT, now=101.015625)


def test_a_long_silence_earns_no_more_than_the_burst() -> None:
    talk = Talk().prove()
    talk.hear(BEAT)
    for _ in range(1000):
        talk.hear(BEAT, now=10_000.0)
    with pytest.raises(wire.WireError, match="rate"):
        talk.hear(BEAT, now=10_000.0)


def test_garbage_uses_up_the_rate_too() -> None:
    talk = Talk().prove()
    for _ in range(1000):
        assert talk.rejection(b"\xc1") == "malformed"
    assert talk.rejection(b"\xc1") == "rate"


def test_orders_are_signed_and_numbered() -> None:
    talk = Talk().prove()
    talk.connection.order("check")
    talk.connection.order("check")
    numbers = []
    for message in talk.said:
        assert isinstance(message, wire.SignedOrder)
        assert message.mac == talk.session.sign_order(message.payload)
        numbers.append(wire.decode_order(message.payload))
    assert numbers == [wire.Order(sequence=1, kind="check"), wire.Order(sequence=2, kind="check")]


def test_no_order_goes_to_a_peer_that_has_not_proven_itself() -> None:
    talk = Talk()
    with pytest.raises(RuntimeError):
        talk.connection.order("check")
    talk.hear(wire.Challenge(nonce=NONCE))
    talk.said.clear()
    with pytest.raises(RuntimeError):
        talk.connection.order("check")
    assert talk.said == []
