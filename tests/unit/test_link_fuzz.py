"""Ten thousand random frames, to the agent and to an engine: each is counted or ignored, and the next word is heard."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from agent.config import LinkConfig
from agent.engines import EngineTable
from agent.link import LinkServer
from agent.state import AgentState
from engine_hooks import wire
from engine_hooks.auth import Session
from engine_hooks.levers.orders import ActionOrder, ActionResult
from engine_hooks.link import ORDERS_AT_ONCE
from tests.unit.builders import make_hello, make_report, make_state
from tests.unit.conftest import StartLink
from tests.unit.details import make_detail
from tests.unit.support import KEY, Clock, Listener, RawPeer, Recorder, eventually, eventually_async

FRAMES = 10_000
# The same on a machine that tests others' changes, another each time on a desk: it is told where it fails.
SEED = 1 if os.environ.get("CI") else int.from_bytes(os.urandom(4))


def spoiled(draw: random.Random, frame: bytes) -> bytes:
    """Return a frame that is a little, or much, not what it was; now and then it is as good as before."""
    data = bytearray(frame)
    for _ in range(draw.choice((0, 1, 1, 2, 8))):
        place = draw.randrange(len(data) + 1)
        match draw.randrange(5):
            case 0:
                data[place:place] = draw.randbytes(draw.randint(1, 8))
            case 1:
                del data[place : place + draw.randint(1, 40)]
            case 2:
                data[place : place + 1] = draw.randbytes(1)
            case 3:
                data[place:] = data[:place]  # a piece again
            case _:
                data[place : place + 4] = draw.choice(
                    (b"\xc0", b"\xcb\x7f\xf8" + bytes(6), b"\xdf\xff\xff\xff\xff", b"\xcf" + b"\xff" * 8)
                )
    return bytes(data) or b"\x00"


def noise(draw: random.Random) -> bytes:
    """Return what was never a frame."""
    return draw.choice((b"", b"\x93\x01", b"\x91" * 40)) + draw.randbytes(draw.choice((1, 7, 60, 3000)))


async def test_the_agent_counts_each_and_hears_the_next_word(
    link_config: LinkConfig, socket_path: Path, start_link: StartLink
) -> None:
    draw, clock, table = random.Random(SEED), Clock(), EngineTable(3.0)
    server = LinkServer(link_config, table, clock=clock)
    server.start()
    words = [wire.encode(word) for word in (make_report(), make_detail(), wire.Heartbeat(silent_seconds=1.0))]
    words.append(wire.encode(ActionResult(action="a", lever="pause", op="apply", ok=True, code="done")))
    words += [wire.encode(make_hello(mac=bytes(32))), wire.encode(wire.Challenge(nonce=bytes(32)))]
    lives = sent = 0
    peer: RawPeer | None = None
    while sent < FRAMES:
        if peer is None:
            lives += 1
            peer = await RawPeer(socket_path).connect()
            await peer.shake_hands(KEY, instance=f"i{lives}", name=f"m{lives % 8}")
        clock.now += 1.0  # there is a limit to how much is said at once, and this is no test of it
        frame = noise(draw) if draw.random() < 0.2 else spoiled(draw, draw.choice(words))
        try:
            await peer.send(frame)
            sent += 1
        except (BrokenPipeError, ConnectionResetError):
            peer.sock.close()
            peer = None
    good = start_link(Recorder(instance="good", name="good"))
    await eventually_async(lambda: good.up)
    await eventually_async(lambda: "good" in {state.instance for state in table.states(clock.now, 0.0)})
    good.send(make_report(steps=77))
    await eventually_async(lambda: table._engines["good"].report is not None)
    told = server.state()
    assert told.frames >= sent, SEED
    assert sum(told.rejected_frames.values()) > FRAMES / 3, (SEED, told)
    assert told.rejected_frames["malformed"] > 0
    assert told.rejected_frames["rate"] == 0
    # Whatever was taken as good can be looked at.
    state = msgspec.structs.replace(make_state(), engines=table.states(clock.now, 0.0), link=told)
    assert msgspec.json.decode(msgspec.json.encode(state), type=AgentState).link == told
    if peer is not None:
        peer.sock.close()
    server.close()


Said = tuple[bytes, wire.Order | None]


def orders(draw: random.Random, session: Session) -> Callable[[int], Said]:
    """Return what makes the frame of a number, with the order that it is where an engine must hear it."""

    def signed(order: wire.Order) -> bytes:
        payload = wire.encode_order(order)
        return wire.encode(wire.SignedOrder(payload=payload, mac=session.sign_order(payload)))

    def make(number: int) -> Said:
        action = ActionOrder(
            action=f"a{number}", lever="pause", op="apply", instance="i", lease_seconds=1.0, valid_seconds=1.0
        )
        order = wire.Order(sequence=number, kind=draw.choice(("check", "lever", "gossip")), action=action)
        payload = wire.encode_order(order)
        match draw.randrange(6):
            case 0:
                return noise(draw), None
            case 1:
                return spoiled(draw, wire.encode(wire.Challenge(nonce=bytes(32)))), None
            case 2:  # the signature is of something else
                mac = session.sign_order(payload + b"x")
                return wire.encode(wire.SignedOrder(payload=payload, mac=mac)), None
            case 3:  # signed, and no order
                junk = b"\xc1" + draw.randbytes(50)
                return wire.encode(wire.SignedOrder(payload=junk, mac=session.sign_order(junk))), None
            case 4:  # signed, and old
                return signed(msgspec.structs.replace(order, sequence=draw.randint(-5, 0))), None
            case _:
                return signed(order), order

    return make


def test_an_engine_hears_orders_that_are_signed_and_new_and_nothing_else(
    listener: Listener, start_link: StartLink
) -> None:
    draw, recorder = random.Random(SEED), Recorder()
    link = start_link(recorder)
    peer = listener.accept()
    session, _ = peer.shake_hands()
    make, meant = orders(draw, session), []
    for number in range(1, FRAMES + 1):
        frame, order = make(number)
        peer.sock.send(frame)
        if order is not None:
            meant.append(order)
    last = wire.Order(sequence=FRAMES + 1, kind="check")
    payload = wire.encode_order(last)
    peer.sock.send(wire.encode(wire.SignedOrder(payload=payload, mac=session.sign_order(payload))))
    eventually(lambda: link._last_order == last.sequence)
    heard = [recorder.orders.get() for _ in range(recorder.orders.qsize())]
    assert ORDERS_AT_ONCE <= len(heard) < len(meant), SEED
    assert all(order in meant or order == last for order in heard), SEED
    assert Counter(order.sequence for order in heard).most_common(1)[0][1] == 1
    before = recorder.ticks
    eventually(lambda: recorder.ticks > before)
    assert link.up
    assert recorder.connects == 1
