"""A real engine that obeys every lever, and real agents that act on it, one after another and by any policy.

Runs in the agent environment. The engine outlives the agents, as it does in earnest.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
from kvtide_chaos.kv_blocks import arm, leak_env, wait_planted

from agent.actions.journal import FILE
from agent.actions.journal_file import Refused, look_up
from agent.actions.types import Action
from agent.cli.control import ControlClient
from tests.bed.agent import KVTIDE, AgentProcess
from tests.bed.engine import SLOW_STEPS, EngineServer
from tests.bed.load import LoadPlan, LoadReport, Tenant, run_load

BLOCKS = 300
LEVERS = (
    "watermark,active_cap,batch_tokens,evict_idle,hold_hot,reclaim_orphans,compact,preempt,pause,enforce_admission,"
    "admission"
)
PATIENCE_SECONDS = 120.0


class Node:
    """``folder``: where socket, journals and logs are; its path must be short. ``engine`` starts at once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.leaks = folder / "leak"
        self.policy = folder / "policy.yaml"
        self.agent: AgentProcess
        self.engine = self.start_engine()
        self.client = httpx2.Client(trust_env=False, timeout=120.0, limits=httpx2.Limits(max_keepalive_connections=0))

    def start_engine(self) -> EngineServer:
        """Start an engine that will find the agents here."""
        env = {
            **leak_env(self.leaks),
            "KVTIDE_SOCKET": str(self.folder / "agent.sock"),
            "KVTIDE_LEVERS": LEVERS,
            "KVTIDE_TRUSTED_PROXIES": "127.0.0.0/8",  # tenants are who they say
            **SLOW_STEPS,
        }
        return EngineServer(self.folder / "engine.log", num_blocks=BLOCKS, env=env)

    @contextmanager
    def acting(self, journal: str, policy: str) -> Iterator[AgentProcess]:
        """An agent with a journal of this name that acts by ``policy`` (YAML); whoever is there at the end is ended."""
        self.policy.write_text(policy)
        self.start_agent(journal)
        try:
            yield self.agent
        finally:
            self.agent.stop()

    def start_agent(self, journal: str, *, found: bool = True) -> None:
        """Start an agent; ``self.agent`` must have ended. ``found``: wait until it has found the only engine."""
        kept = self.folder / journal
        env = {"KVTIDE_STATE_DIRECTORY": str(kept)}
        self.agent = AgentProcess(self.folder, args=["--policy", str(self.policy)], env=env)
        self.agent.kept = kept
        if not found:
            return
        self.agent.wait_live(PATIENCE_SECONDS)
        self.agent.wait(self._looked, PATIENCE_SECONDS)

    def _looked(self) -> bool:
        """Whether the agent has looked at the whole engine once: orders are about what it saw then, and its API server
        may come later than its core.
        """
        state, engine = self.agent.state(), self.agent.engine()
        rows = [row for process in (engine, *engine["members"]) for row in process["levers"] or ()]
        judgement = state["judgement"]
        looked = judgement is not None and bool(judgement["signals"]["engines"])
        return looked and {row["lever"] for row in rows} >= set(LEVERS.split(","))

    def adopt(self, policy: str) -> None:
        """Have the agent act by another policy from now on."""
        self.policy.write_text(policy)
        ControlClient(self.agent.socket).post("/-/reload")

    # -- the agent --------------------------------------------------------------------------------------------------

    def order(self, lever: str, *, attempt: bool = False, **arguments: Any) -> dict[str, Any]:
        """Have the agent pull a lever of the only engine, as a person does; return the action."""
        body = {
            "lever": lever,
            "engine": "tiny",
            "arguments": arguments,
            "attempt": attempt,
            "minutes": None,
            "why": "",
        }
        answer: dict[str, Any] = ControlClient(self.agent.socket).post("/api/v1/orders", body)
        return answer

    def kvtide(self, *arguments: str, code: int = 0) -> str:
        """Return what ``kvtide actions ...`` prints, or complains about."""
        env = {"KVTIDE_SOCKET": str(self.agent.socket), "KVTIDE_STATE_DIRECTORY": str(self.agent.kept)}
        done = subprocess.run(
            [str(KVTIDE), "actions", *arguments],
            env={**os.environ, **env, "COLUMNS": "400"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != code:
            raise RuntimeError(f"kvtide actions {arguments} ended with {done.returncode}: {done.stderr}")
        return done.stdout if code == 0 else done.stderr

    def journal(self) -> tuple[tuple[Action, ...], tuple[Refused, ...]]:
        """Return the actions and the refusals on the disk, newest first."""
        if not (self.agent.kept / FILE).exists():
            return (), ()
        actions, _, refused = look_up(self.agent.kept / FILE, 1000)
        return actions, refused

    def phases(self, action: str) -> list[str]:
        """Return the phases that an action went through, by the journal; each once where it came again."""
        _, steps, _ = look_up(self.agent.kept / FILE, 0, action)
        found = [step.phase for step in steps]
        return [phase for number, phase in enumerate(found) if not number or found[number - 1] != phase]

    # -- the engine -------------------------------------------------------------------------------------------------

    def ask(self, tenant: str = "globex", prompt: int = 20, tokens: int = 8) -> httpx2.Response:
        """Send one greedy request of a tenant; return the answer."""
        body = {
            "model": "tiny",
            "prompt": [5 + number % 400 for number in range(prompt)],
            "max_tokens": tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "user": tenant,
        }
        return self.client.post(f"{self.engine.url}/v1/completions", json=body)

    def texts(self) -> list[str]:
        """Return what the engine generates for some prompts, greedily."""
        return [self.ask(prompt=length, tokens=24).json()["choices"][0]["text"] for length in (10, 60, 200)]

    def leak(self, blocks: int) -> None:
        """Have so many blocks leak. An agent that may give them back may have done so when this returns."""
        arm(self.leaks, blocks, blocks)
        # One request has as many blocks: all leak in the same moment, and are old enough in the same.
        leaker = Tenant("leaker", prompt=(200, 300), output=(8, 16))
        plan = LoadPlan(requests=4, seconds=PATIENCE_SECONDS, concurrency=1, tenants=(leaker,))
        asyncio.run(run_load(self.engine.url, plan))
        wait_planted(self.leaks, PATIENCE_SECONDS)

    def orphaned(self) -> int | None:
        """Return the leaked blocks; None where they can't be seen now."""
        pool = self.agent.pool()
        return None if pool is None else pool["orphaned"]

    def load(self, plan: LoadPlan) -> AbstractContextManager[LoadReport]:
        """Have this load sent meanwhile; what runs of it at the end is cut."""
        return sending(self.engine.url, plan)

    def close(self) -> None:
        """End the engine."""
        self.client.close()
        self.engine.stop()


@contextmanager
def sending(url: str, plan: LoadPlan) -> Iterator[LoadReport]:
    """Have a load sent to a server meanwhile; what runs of it at the end is cut."""
    report, loop = LoadReport(), asyncio.new_event_loop()
    task = loop.create_task(run_load(url, plan, report))

    def send() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield report
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()
