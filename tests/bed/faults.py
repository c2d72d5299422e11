"""What breaks, broken at random beside a real engine that serves: no token may differ, and all must be well again.

``python -m tests.bed.faults --seconds 300 --seed 0`` (the last part of ``make chaos``) plays for so long: agents are
killed, stopped, slowed down and started again, processes of the engine are stopped for a moment, the socket and the key
are removed, policies can't be read, 64 engines come at once, strangers send garbage. At the end the hooks themselves
raise at random. It ends with 1 when a token differs, a request fails, or an engine or an agent does not come back.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from engine_hooks.wire import KEY_NAME, MAX_FRAME_BYTES
from tests.bed import processes
from tests.bed.acting import BLOCKS, LEVERS, Node
from tests.bed.engine import CORE_TITLE, EngineServer
from tests.bed.greedy import PROMPTS, Answer, Tokens, quiet, serve_all
from tests.bed.passing import PassingEngine

POLICY = "actions: {mode: observe}\n"
WORKER_TITLE = "VLLM::Worker"
PATIENCE_SECONDS = 60.0
CROWD = 64
SLOW_BEAT, SLOW_SHARE = 0.1, 0.1  # seconds; of which it runs: ten times as slow
RAISE_SHARE = 0.05

Fault = Callable[["FaultNode", random.Random], None]


@dataclass(slots=True)
class Played:
    """How it went: what was served, what was not as it should be, and how often each fault was."""

    served: int = 0
    differ: list[int] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def well(self) -> bool:
        """Whether nobody has noticed anything."""
        return self.served > 0 and not self.differ and not self.failed


class FaultNode(Node):
    """A node whose hooks can be made to raise, and whose engine can be spoiled for the control."""

    def start_engine(self) -> EngineServer:
        """Start an engine whose levers may be pulled."""
        for name in ("raise", "corrupt"):
            (self.folder / name).mkdir(exist_ok=True)
        env = {
            "KVTIDE_SOCKET": str(self.folder / "agent.sock"),
            "KVTIDE_LEVERS": LEVERS,
            "KVTIDE_TEST_RAISE_DIR": str(self.folder / "raise"),
            "KVTIDE_TEST_CORRUPT_DIR": str(self.folder / "corrupt"),
        }
        return EngineServer(self.folder / "engine.log", num_blocks=BLOCKS, env=env)

    def titled(self, title: str) -> int:
        """Return the pid of the engine's only process with this title."""
        (pid,) = [pid for pid in self.engine.pids() if processes.title(pid).startswith(title)]
        return pid

    def again(self) -> None:
        """Start an agent in the place of the one that has ended, and wait until the engine has found it."""
        self.start_agent("kept")

    def hooks_raise(self, share: float) -> None:
        """Have each function of the hooks raise in this share of its calls; 0: no more."""
        partial = self.folder / "raise" / ".new"
        partial.write_text(str(share))
        partial.replace(self.folder / "raise" / "raise")


# -- the faults -----------------------------------------------------------------------------------------------------


def agent_killed(node: FaultNode, draw: random.Random) -> None:
    """SIGKILL; another agent a moment later."""
    node.agent.kill()
    time.sleep(draw.uniform(0.0, 1.5))
    node.again()


def agent_restarted(node: FaultNode, _draw: random.Random) -> None:
    """In order, as an upgrade does it."""
    node.agent.stop()
    node.again()


def agent_stopped(node: FaultNode, draw: random.Random) -> None:
    """SIGSTOP for longer than the socket can hold what is sent meanwhile."""
    with stopped(node.agent.process.pid):
        time.sleep(draw.uniform(1.0, 4.0))
    node.agent.wait_live(PATIENCE_SECONDS)


def agent_slow(node: FaultNode, draw: random.Random) -> None:
    """It runs for a tenth of the time."""
    until = time.monotonic() + draw.uniform(2.0, 5.0)
    while time.monotonic() < until:
        with stopped(node.agent.process.pid):
            time.sleep(SLOW_BEAT * (1 - SLOW_SHARE))
        time.sleep(SLOW_BEAT * SLOW_SHARE)
    node.agent.wait_live(PATIENCE_SECONDS)


def engine_process_stopped(node: FaultNode, draw: random.Random) -> None:
    """One of the core and its worker is stopped: the agent says so, and takes it back when it goes on."""
    instance = node.agent.engine()["instance"]
    with stopped(node.titled(draw.choice((CORE_TITLE, WORKER_TITLE)))):
        node.agent.wait(lambda: node.agent.engine()["phase"] == "silent", PATIENCE_SECONDS)
    node.agent.wait_live(PATIENCE_SECONDS)
    if node.agent.engine()["instance"] != instance:
        raise RuntimeError("the engine that was stopped has come back as another one")


def socket_removed(node: FaultNode, _draw: random.Random) -> None:
    """The agent binds it again, and stays ready; who is connected stays connected."""
    node.agent.socket.unlink()
    node.agent.wait(node.agent.socket.exists, PATIENCE_SECONDS)
    node.agent.wait_live(PATIENCE_SECONDS)
    node.agent.get("/-/ready")


def key_removed(node: FaultNode, _draw: random.Random) -> None:
    """The agent is not ready, and says why; the next one makes a new key, and the engine goes by that."""
    node.agent.socket.with_name(KEY_NAME).unlink()
    node.agent.wait(lambda: not node.agent.state()["ready"], PATIENCE_SECONDS)
    if "was removed" not in node.agent.state()["not_ready_reason"]:
        raise RuntimeError(node.agent.state()["not_ready_reason"])
    agent_restarted(node, _draw)


def policy_spoiled(node: FaultNode, draw: random.Random) -> None:
    """A policy that is none is not taken, and the agent says so."""
    node.policy.write_text(draw.choice(("actions: [", "actions: {mode: obey}\n", "\0")))
    node.agent.signal(signal.SIGHUP)
    node.agent.wait(lambda: bool(node.agent.state()["policy"]["problem"]), PATIENCE_SECONDS)
    node.policy.write_text(POLICY)
    node.agent.signal(signal.SIGHUP)
    node.agent.wait(lambda: not node.agent.state()["policy"]["problem"], PATIENCE_SECONDS)


def crowd(node: FaultNode, _draw: random.Random) -> None:
    """64 engines come at once, lose their agent, and all come back to the next one."""
    engines = [PassingEngine(node.agent.socket, f"crowd-{number}", f"crowd-{number}") for number in range(CROWD)]

    def all_live() -> bool:
        phases = Counter(engine["phase"] for engine in node.agent.engines())
        return phases == {"live": CROWD + 1}

    try:
        node.agent.wait(all_live, PATIENCE_SECONDS)
        node.agent.kill()
        node.start_agent("kept", found=False)
        node.agent.wait(all_live, PATIENCE_SECONDS)
        refused = node.agent.state()["link"]["refused_peers"]
        if any(refused.values()):
            raise RuntimeError(f"engines were turned away: {refused}")
    finally:
        for engine in engines:
            engine.close()
    node.agent.wait(lambda: len(node.agent.engines()) == 1, PATIENCE_SECONDS)
    node.agent.wait_live(PATIENCE_SECONDS)


def garbage(node: FaultNode, draw: random.Random) -> None:
    """Strangers connect, and send anything or nothing."""
    for _ in range(40):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger, suppress(OSError):
            stranger.settimeout(1.0)
            stranger.connect(str(node.agent.socket))
            for _ in range(draw.randint(0, 4)):
                stranger.send(draw.randbytes(draw.choice((0, 1, 40, 3000, MAX_FRAME_BYTES + 1))))
    node.agent.wait_live(PATIENCE_SECONDS)


FAULTS: dict[str, Fault] = {
    each.__name__: each
    for each in (
        agent_killed,
        agent_restarted,
        agent_stopped,
        agent_slow,
        engine_process_stopped,
        socket_removed,
        key_removed,
        policy_spoiled,
        crowd,
        garbage,
    )
}


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Have a process stand still."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# -- the play -------------------------------------------------------------------------------------------------------


def play(node: FaultNode, expected: Tokens, seconds: float, seed: int, faults: dict[str, Fault] = FAULTS) -> Played:
    """Serve while ``faults`` come one after another, all of them once and then at random, for ``seconds`` or as long as
    once takes; return how it went. An agent must run.
    """
    played, over = Played(), threading.Event()
    draw = random.Random(seed)

    def run() -> None:
        names, until = draw.sample(sorted(faults), len(faults)), time.monotonic() + seconds
        try:
            while names or time.monotonic() < until:
                name = names.pop() if names else draw.choice(sorted(faults))
                faults[name](node, draw)
                played.faults[name] += 1
        except (OSError, RuntimeError, TimeoutError, KeyError) as error:
            log = node.agent.log.read_text(errors="replace")
            played.failed.append(f"{name}: {str(error)[:2000]}\n{log[-2000:]}")
        finally:
            over.set()

    thread = threading.Thread(target=run, name="faults")
    thread.start()
    try:
        serve(node, expected, played, over.is_set, seed)
    finally:
        thread.join()
    return played


def serve(node: FaultNode, expected: Tokens, played: Played, over: Callable[[], bool], seed: int) -> None:
    """Serve prompts at random until ``over``, and note each answer that is not as without faults."""
    draw = random.Random(seed)

    def numbers() -> Iterator[int]:
        while not over():
            yield draw.randrange(PROMPTS)

    def take(number: int, answer: Answer) -> None:
        if answer.tokens is None:
            played.failed.append(f"prompt {number}: {answer.status} {answer.text}")
            return
        played.served += 1
        if answer.tokens != expected[number]:
            played.differ.append(number)

    asyncio.run(serve_all(node.engine.url, numbers(), take))


def at_rest(node: FaultNode) -> bool:
    """Whether nothing runs and nothing is held."""
    engine, pool = node.agent.engine(), node.agent.pool()
    clean = pool is not None and (pool["held"], pool["orphaned"], pool["over_freed"]) == (0, 0, 0)
    return clean and engine["running"] == engine["waiting"] == 0


def raising(node: FaultNode, expected: Tokens, seconds: float, seed: int) -> Played:
    """Serve while the hooks raise at random and go off one after another, and then with what is left of them."""
    played, until = Played(), time.monotonic() + seconds
    node.hooks_raise(RAISE_SHARE)
    serve(node, expected, played, lambda: time.monotonic() > until, seed)
    node.hooks_raise(0.0)
    # Idle, an engine is woken by what is left of us; then it serves as ever.
    time.sleep(2.0)
    once = iter((False,) * PROMPTS)
    serve(node, expected, played, lambda: next(once, True), seed + 1)
    return played


def main() -> int:
    """Play, tell how it went, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bed.faults", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long things break, the hooks apart")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        node = FaultNode(Path(name))
        try:
            node.engine.wait_ready(600.0)
            with node.acting("kept", POLICY):
                expected = quiet(node.engine.url)
                broken = play(node, expected, options.seconds, options.seed)
                try:
                    node.agent.wait(lambda: at_rest(node), PATIENCE_SECONDS)
                except (OSError, TimeoutError) as error:  # what was before it is told, too
                    broken.failed.append(f"not at rest in the end: {str(error)[:2000]}")
                raised = raising(node, expected, options.seconds / 5, options.seed)
        finally:
            node.close()
    for what, played in (("faults", broken), ("hooks that raise", raised)):
        print(f"[chaos] {what}: {played.served} served, {len(played.differ)} with other tokens")
        for fault, count in sorted(played.faults.items()):
            print(f"[chaos]   {fault}: {count}")
        for line in played.failed:
            print(f"[chaos]   failed: {line}")
    return int(not (broken.well and raised.well))


if __name__ == "__main__":
    sys.exit(main())
