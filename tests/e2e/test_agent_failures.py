"""The engine is exactly as alive with a dead, stopped, restarted or false agent as without one."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from engine_hooks.auth import Session, read_key
from engine_hooks.wire import MAX_FRAME_BYTES, Challenge, Hello, Proof, decode, encode
from tests.bed.agent import AgentProcess
from tests.bed.load import LoadPlan, Tenant, run_load
from tests.e2e.conftest import Rig

STEADY = (Tenant("acme", prompt=(40, 200), output=(20, 80), prefix=32),)
PATIENCE_SECONDS = 60.0
ROGUE_SECONDS = 6.0  # and until an engine has come


def plan(requests: int, seed: int) -> LoadPlan:
    return LoadPlan(requests=requests, seconds=900, concurrency=8, tenants=STEADY, seed=seed)


async def test_agent_killed_under_load_and_restarted(rig: Rig) -> None:
    load = asyncio.create_task(run_load(rig.engine.url, plan(120, 11)))
    await asyncio.sleep(1.0)
    instance = rig.agent.engine()["instance"]
    rig.agent.kill()
    await asyncio.sleep(1.0)
    rig.agent = await asyncio.to_thread(AgentProcess, rig.folder)
    await asyncio.to_thread(rig.agent.wait_live)
    assert rig.agent.engine()["instance"] == instance
    report = await load
    assert report.failed == 0, report.errors
    assert report.completed == report.started == 120
    assert rig.agent.engine()["hooks"]["errors"] == {}


async def test_agent_stopped_for_20_seconds_under_load(rig: Rig) -> None:
    before = rig.agent.engine()
    load = asyncio.create_task(run_load(rig.engine.url, plan(400, 12)))
    await asyncio.sleep(0.5)
    rig.agent.signal(signal.SIGSTOP)
    try:
        steps = await asyncio.to_thread(own_steps, rig)
        await asyncio.sleep(20.0)
        assert await asyncio.to_thread(own_steps, rig) > steps
    finally:
        rig.agent.signal(signal.SIGCONT)
    await asyncio.to_thread(
        rig.agent.wait,
        lambda: rig.agent.engine()["phase"] == "live" and rig.agent.engine()["steps"] > before["steps"],
    )
    report = await load
    assert report.failed == 0, report.errors
    after = rig.agent.engine()
    assert after["instance"] == before["instance"]
    assert after["hooks"]["errors"] == {}


def own_steps(rig: Rig) -> float:
    """Tokens that the engine itself says to have generated: it goes on."""
    return rig.engine.metrics()["vllm:generation_tokens_total"]


def test_agent_restarted_in_order(rig: Rig) -> None:
    assert rig.agent.stop() == 0
    assert not rig.agent.socket.exists()
    rig.agent = AgentProcess(rig.folder)
    rig.agent.wait_live()


# -- hostile peers ----------------------------------------------------------------------------------------


def connect(rig: Rig) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(PATIENCE_SECONDS)
    sock.connect(str(rig.agent.socket))
    return sock


def rejected(rig: Rig) -> dict[str, int]:
    return rig.agent.state()["link"]["rejected_frames"]


def refused(rig: Rig, reason: str) -> int:
    return rig.agent.state()["link"]["refused_peers"][reason]


def test_garbage_from_a_stranger_is_counted_and_nothing_else(rig: Rig) -> None:
    before = refused(rig, "handshake")
    for garbage in (b"\x00", os.urandom(300), b"\xff" * (MAX_FRAME_BYTES + 5000), b"\x91" * 50_000):
        with connect(rig) as sock:
            sock.recv(MAX_FRAME_BYTES)  # the banner
            sock.send(garbage)
            assert sock.recv(10) == b"", "a stranger who talks garbage is hung up on"
    assert refused(rig, "handshake") == before + 4
    rig.agent.wait_live()
    assert rig.agent.metrics()["kvtide_link_up"] == 1


def test_garbage_from_a_proven_peer_is_counted_by_reason(rig: Rig) -> None:
    before = rejected(rig)
    with connect(rig) as sock:
        nonce = decode(sock.recv(MAX_FRAME_BYTES)).nonce
        session = Session(read_key(rig.agent.socket.with_name("agent.key")), nonce, os.urandom(32))
        sock.send(encode(Challenge(nonce=session.engine_nonce)))
        assert isinstance(decode(sock.recv(MAX_FRAME_BYTES)), Proof)
        sock.send(encode(false_hello(session)))
        for garbage in (os.urandom(200), b"\xff" * (MAX_FRAME_BYTES + 5000), b"\x91" * 50_000, b"\x93\x63\xa1x\xc0"):
            sock.send(garbage)
        sock.send(encode(Challenge(nonce=b"again")))
        rig.agent.wait(lambda: sum(rejected(rig).values()) == sum(before.values()) + 5)
    now = rejected(rig)
    assert {reason: now[reason] - before[reason] for reason in now if now[reason] != before[reason]} == {
        "malformed": 2,
        "oversize": 1,
        "unknown_version": 1,
        "order": 1,
    }
    rig.agent.wait_live()  # the false engine is gone, the true one is still there


def false_hello(session: Session) -> Hello:
    from tests.unit.builders import make_hello

    return make_hello(name="false", instance="f" * 16, mac=session.engine_proof())


ROGUE = """
import os, socket, struct, sys, time
path, seconds, patience = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(path)
listener.listen(16)
listener.settimeout(0.2)
print("bound", flush=True)
began, sizes, peers, spoke = time.monotonic(), [], [], 0
while time.monotonic() - began < (seconds if spoke else patience):
    try:
        peer, _ = listener.accept()
    except TimeoutError:
        continue
    peers.append(peer)
    peer.settimeout(patience)
    said = len(sizes)
    try:  # one that has waited for long may have hung up
        peer.send(bytes.fromhex(sys.argv[4]))
        while data := peer.recv(1 << 20):
            sizes.append(len(data))
            peer.send(bytes.fromhex(sys.argv[5]))
    except OSError:
        pass
    spoke += len(sizes) > said
print(spoke, *sizes, flush=True)
os.unlink(path)
"""


@contextmanager
def rogue(rig: Rig, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A process of the same user that binds the agent's path, greets as the agent does, and sends an order."""
    from engine_hooks.wire import Banner, Order, SignedOrder, encode_order

    banner = encode(Banner(nonce=os.urandom(32), agent_version="9"))
    order = encode(SignedOrder(payload=encode_order(Order(sequence=99, kind="check")), mac=os.urandom(32)))
    arguments = [str(rig.agent.socket), str(seconds), str(PATIENCE_SECONDS), banner.hex(), order.hex()]
    process = subprocess.Popen([sys.executable, "-c", ROGUE, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "bound\n"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def test_a_rogue_that_binds_the_path_is_told_nothing_and_obeyed_in_nothing(rig: Rig) -> None:
    rig.agent.stop()
    load = asyncio.create_task(run_load(rig.engine.url, plan(40, 13)))
    with rogue(rig, ROGUE_SECONDS) as process:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
    spoke, *sizes = (int(word) for word in line.split())
    challenge = len(encode(Challenge(nonce=bytes(32))))
    assert spoke > 0, "the engine never came"
    assert set(sizes) == {challenge}, "an engine sends an unproven listener its random challenge and nothing else"
    assert len(sizes) == spoke
    rig.agent = await asyncio.to_thread(AgentProcess, rig.folder)
    await asyncio.to_thread(rig.agent.wait_live)
    report = await load
    assert report.failed == 0, report.errors
    assert rig.agent.engine()["hooks"]["errors"] == {}


def test_the_agent_knows_the_engines_pid_from_the_kernel(rig: Rig) -> None:
    assert rig.agent.engine()["pid"] == rig.engine.core_pid()


def test_the_agent_does_not_preempt_the_engine(rig: Rig) -> None:
    assert os.sched_getscheduler(rig.agent.process.pid) == os.SCHED_BATCH
