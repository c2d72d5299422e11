"""The pool of a real engine is made smaller while it serves: by a command, by the agent itself, and who does it is
killed in mid-move. Every token that a client gets is compared with those of a run without.

One engine for all but the last test, which ends it.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.bed import processes
from tests.bed.acting import PATIENCE_SECONDS, Node
from tests.bed.agent import KVTIDE
from tests.bed.engine import SLOW_STEPS, EngineServer
from tests.bed.greedy import PROMPTS, Tokens, prompts, quiet
from tests.bed.load import LoadPlan, Tenant
from tests.bed.orders import Orders

pytestmark = pytest.mark.timeout(900)  # for the start of the engine on a machine with much else to do

BLOCKS = 8000  # 250 MiB
WHOLE = BLOCKS - 1
LINE = 200  # blocks that are left by a command: streams hold 150 at most, and in a fresh pool most of those above it
STREAMS = 6
LEASE_SECONDS = 8.0
MEMORY = 0.8  # of what has gone out of the pool; a worker takes and gives back some memory for its steps, too
WORKER_TITLE = "VLLM::Worker"
PERSONS = "actions: {{mode: observe, lease_seconds: {lease}}}\n"
# By itself within seconds instead of half an hour, and to a fiftieth of the pool.
ITSELF = """
actions: {mode: enforce, opt_in: [compact], ladder: [compact], breaches: 1, cooldown_seconds: 1}
compaction: {idle_seconds: 3, cooldown_seconds: 600, floor_ratio: 0.02, keep_hit_ratio: 1.0}
growth: {grace_seconds: 2}
"""
# Four of these hold 150 to 200 blocks, for some looks of the agent: it looks once a second.
BURST = LoadPlan(
    requests=60,
    seconds=PATIENCE_SECONDS,
    concurrency=4,
    tenants=(Tenant("acme", prompt=(1500, 1600), output=(40, 60)),),
)


class Movable(Node):
    """A node with an engine that can be held in the middle of a move."""

    @property
    def holds(self) -> Path:
        """Where the engine looks whether it is to be held."""
        return self.folder / "holds"

    def start_engine(self) -> EngineServer:
        """Start an engine with a pool that is worth making smaller."""
        self.holds.mkdir(exist_ok=True)
        env = {
            "KVTIDE_SOCKET": str(self.folder / "agent.sock"),
            "KVTIDE_LEVERS": "compact",
            "KVTIDE_TEST_HOLD_DIR": str(self.holds),
            **SLOW_STEPS,  # requests hold blocks whenever something is ordered
        }
        return EngineServer(self.folder / "engine.log", num_blocks=BLOCKS, env=env)

    def start_agent(self, journal: str, *, found: bool = True) -> None:
        """The same, and the engine has told how compaction stands."""
        super().start_agent(journal, found=found)
        self.agent.wait(lambda: self.agent.engine()["detail"] is not None, PATIENCE_SECONDS)

    def compact(self, *arguments: str) -> dict[str, Any]:
        """What ``kvtide compact`` tells."""
        done = subprocess.run(
            [str(KVTIDE), "compact", "tiny", *arguments, "--json"],
            env={**os.environ, "KVTIDE_SOCKET": str(self.agent.socket)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def row(self) -> dict[str, Any]:
        """How compaction stands, by the agent."""
        found: dict[str, Any] = self.agent.engine()["detail"]["compaction"]
        return found

    def capacity(self) -> int:
        return int((self.agent.pool() or {"capacity": 0})["capacity"])

    def resident(self) -> int:
        """Bytes of the worker, which has the cache, by the kernel."""
        (pid,) = (each for each in self.engine.pids() if processes.title(each).startswith(WORKER_TITLE))
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Rss:")) * 1024

    def at_rest(self) -> None:
        """Wait until nothing is left of what a test before has ordered."""
        self.agent.wait(lambda: self.row()["state"] == "idle" and not self.agent.engine()["in_force"], PATIENCE_SECONDS)

    def halfway(self) -> str:
        """Order a smaller pool, and hold the engine when it has copied half of what requests hold; the action's id."""
        (self.holds / "hold").touch()
        done = self.order("compact", to_blocks=LINE)
        assert done["phase"] == "in_force", done
        self.agent.wait((self.holds / "held").exists, PATIENCE_SECONDS)
        return str(done["id"])

    def go_on(self) -> None:
        """Hold the engine no longer."""
        (self.holds / "hold").unlink(missing_ok=True)
        (self.holds / "held").unlink(missing_ok=True)


class Streams:
    """Greedy requests, streamed to their end one after another, for as long as the ``with`` lasts.

    ``got``: what each gave: the prompt's number, its tokens, and whether it came to its end. ``errors``: what else.
    """

    def __init__(self, url: str) -> None:
        self._url, self._prompts, self._stop = url, prompts(), threading.Event()
        self._numbers = itertools.cycle(range(PROMPTS))
        self.got: list[tuple[int, tuple[int, ...], bool]] = []
        self.errors: list[str] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(STREAMS)]

    def _run(self) -> None:
        with httpx2.Client(base_url=self._url, trust_env=False, timeout=PATIENCE_SECONDS) as client:
            while not self._stop.is_set():
                number, tokens, ended = next(self._numbers), list[int](), False
                try:
                    ended = self._read(client, number, tokens)
                except (httpx2.HTTPError, RuntimeError) as error:
                    self.errors.append(f"{number}: {error!r}")
                    return
                finally:
                    self.got.append((number, tuple(tokens), ended))

    def _read(self, client: httpx2.Client, number: int, tokens: list[int]) -> bool:
        """Take one answer in; return whether it came to its end. Raises where the server says that something failed."""
        prompt, most = self._prompts[number]
        body = {"model": "tiny", "prompt": prompt, "max_tokens": most, "temperature": 0.0, "ignore_eos": True}
        with client.stream("POST", "/v1/completions", json=body | {"stream": True, "return_token_ids": True}) as answer:
            if answer.status_code != httpx2.codes.OK:
                raise RuntimeError(f"status {answer.status_code}")
            for line in answer.iter_lines():
                if self._stop.is_set():
                    return False
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                told = json.loads(line.removeprefix("data: "))
                if "error" in told:
                    raise RuntimeError(str(told["error"]))
                tokens.extend(told["choices"][0]["token_ids"] or ())
        if len(tokens) != most:
            raise RuntimeError(f"{len(tokens)} of {most} tokens came")
        return True

    def ended(self) -> int:
        """How many came to their end."""
        return sum(ended for _, _, ended in self.got)

    def wrong(self, expected: Tokens) -> list[int]:
        """The prompts of which a token differs, also of those whose answers were cut off."""
        whole = [(number, tokens, expected[number][: len(tokens)]) for number, tokens, _ in self.got]
        return [number for number, tokens, right in whole if tokens != right]

    def __enter__(self) -> Streams:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[Movable]:
    node = Movable(folder / "compact")
    try:
        node.engine.wait_ready(600.0)
        yield node
    finally:
        node.go_on()
        node.close()


@pytest.fixture(scope="module")
def expected(node: Movable) -> Tokens:
    """The tokens of all prompts without any move."""
    found = quiet(node.engine.url)
    assert len(set(found.values())) == PROMPTS  # else a comparison would say little
    return found


def serving(node: Movable, streams: Streams, more: int) -> None:
    """Wait until so many more requests have come to their end."""
    before = streams.ended()
    node.agent.wait(lambda: streams.ended() >= before + more or bool(streams.errors), PATIENCE_SECONDS)


def test_a_command_makes_it_smaller_and_tells_how_it_ended(node: Movable, expected: Tokens) -> None:
    with node.acting("command", PERSONS.format(lease=30.0)) as agent:
        tried = node.compact("--to", str(LINE), "--dry-run")
        assert (tried["phase"], "end" in tried) == ("would", False)
        effect = tried["outcomes"][0]["effect"]
        assert (effect["before_blocks"], effect["after_blocks"], effect["offline_blocks"]) == (
            WHOLE,
            LINE,
            WHOLE - LINE,
        )
        assert effect["release_bytes"] == (WHOLE - LINE) * effect["block_bytes"]
        assert node.capacity() == WHOLE
        gone = MEMORY * effect["release_bytes"]
        with Streams(node.engine.url) as streams:
            serving(node, streams, STREAMS)
            before = node.resident()
            done = node.compact("--to", str(LINE))
            small, end = node.resident(), done["end"]
            assert (done["phase"], end["state"], end["offline_blocks"]) == ("in_force", "reached", WHOLE - LINE)
            assert end["moved_blocks"] > 0
            assert end["released_bytes"] >= gone
            assert before - small >= gone
            assert node.capacity() == LINE
            assert node.row()["moved_total"] > 0, "blocks that requests held were moved"
            serving(node, streams, STREAMS)
            assert "undone" in node.kvtide("undo", done["id"])
            agent.wait(lambda: node.capacity() == WHOLE and node.row()["offline"] == 0, PATIENCE_SECONDS)
            assert node.resident() - small >= gone
        assert (streams.wrong(expected), streams.errors) == ([], [])


def test_the_agent_itself_makes_an_idle_pool_smaller_and_a_burst_brings_it_back(
    node: Movable, expected: Tokens
) -> None:
    with node.acting("itself", PERSONS.format(lease=30.0)) as agent:
        node.at_rest()
        before = node.resident()
        node.adopt(ITSELF)

        def own() -> list[dict[str, Any]]:
            return [each for each in agent.state()["actions"]["recent"] if each["by"] == "agent"]

        agent.wait(lambda: bool(own()) and node.row()["state"] == "shrunk", PATIENCE_SECONDS)
        assert [(each["plan"]["kind"], each["phase"]) for each in own()] == [("kv_idle", "in_force")]
        left, offline = node.capacity(), node.row()["offline"]
        assert left + offline == WHOLE
        assert left <= WHOLE // 10
        gone = MEMORY * offline * own()[0]["outcomes"][0]["effect"]["block_bytes"]
        agent.wait(lambda: before - node.resident() >= gone, PATIENCE_SECONDS)
        small = node.resident()
        # The number that it was done for is seen to have moved.
        agent.wait(lambda: own()[0]["verified"] == "helped", PATIENCE_SECONDS)

        with node.load(BURST) as load:
            agent.wait(lambda: node.row()["grown_total"] > 0, PATIENCE_SECONDS)
            agent.wait(lambda: load.completed + load.aborted == BURST.requests, PATIENCE_SECONDS)
        assert load.failed == 0, load.errors
        # As much as was needed at once comes by the engine's own doing, the rest by the agent's.
        agent.wait(lambda: [each["phase"] for each in own()] == ["undone"], PATIENCE_SECONDS)
        assert "its pool is needed" in own()[0]["reason"]
        agent.wait(lambda: node.capacity() == WHOLE and node.row()["state"] == "idle", PATIENCE_SECONDS)
        assert node.resident() - small >= gone
    assert quiet(node.engine.url) == expected


def test_an_agent_killed_in_mid_move_leaves_an_engine_that_grows_back(node: Movable, expected: Tokens) -> None:
    with node.acting("killed", PERSONS.format(lease=LEASE_SECONDS)), Streams(node.engine.url) as streams:
        node.at_rest()
        serving(node, streams, STREAMS)
        moved = node.row()["moved_total"]
        action = node.halfway()
        node.agent.kill()
        node.go_on()
        with Orders(node.folder) as orders:
            orders.wait_live(PATIENCE_SECONDS)

            def row() -> Any:
                detail = orders.engine().detail
                return detail.compaction if detail is not None else None

            # Nobody renews the order: what has moved stays where it is, and the blocks come back.
            orders.wait(lambda: any(each.code == "expired" for _, each in orders.unasked), PATIENCE_SECONDS)
            orders.wait(lambda: row() is not None and (row().state, row().offline) == ("idle", 0), PATIENCE_SECONDS)
            assert [result.action for _, result in orders.unasked if result.code == "expired"] == [action]
            assert row().moved_total > moved
            hooks = orders.engine().hooks
            assert hooks is not None
            assert hooks.errors == {}
        node.start_agent("killed")
        serving(node, streams, STREAMS)
        pool = node.agent.pool()
        assert pool is not None
        assert (pool["orphaned"], pool["over_freed"], pool["capacity"]) == (0, 0, WHOLE)
        node.agent.wait(lambda: node.phases(action)[-1] in ("expired", "lost"), PATIENCE_SECONDS)
    assert (streams.wrong(expected), streams.errors) == ([], [])


def test_an_engine_killed_in_mid_move_tells_no_wrong_token_and_its_next_life_is_whole(
    node: Movable, expected: Tokens
) -> None:
    with node.acting("core", PERSONS.format(lease=30.0)) as agent:
        node.at_rest()
        with Streams(node.engine.url) as streams:
            serving(node, streams, STREAMS)
            action = node.halfway()
            ended = streams.ended()
            os.kill(node.engine.core_pid(), signal.SIGKILL)
            node.go_on()
            agent.wait(lambda: len(streams.errors) == STREAMS, PATIENCE_SECONDS)  # each is told: none hangs, none ends
        assert streams.ended() == ended
        assert streams.wrong(expected) == []
        assert any(tokens for _, tokens, whole in streams.got if not whole), "some were in the middle of their answer"
        agent.wait(lambda: node.phases(action)[-1] == "lost", PATIENCE_SECONDS)

        node.engine.stop()
        node.engine = node.start_engine()
        node.engine.wait_ready(600.0)
        agent.wait(lambda: any(each["phase"] == "live" for each in agent.engines()), PATIENCE_SECONDS)
        assert quiet(node.engine.url) == expected
        agent.wait_live(PATIENCE_SECONDS)
        assert node.capacity() == WHOLE
        assert node.row()["state"] == "idle"
        assert node.phases(action)[-1] == "lost", "nobody orders it again"
