"""``make demo``: a real engine, a load of three tenants, a leak that nobody knows the size of, and kvtide watching.

Runs in the agent environment; ``DEMO_SECONDS`` (default 60) is how long it lasts once the engine is up. Exit code 0
means that the agent named exactly what had been leaked.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kvtide_chaos.kv_blocks import Planted, arm, leak_env, wait_planted
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agent.cli.client import AgentClient
from agent.errors import KvtideError
from agent.faces.status import render
from agent.state import AgentState, EngineState
from tests.bed.agent import AgentProcess
from tests.bed.engine import EngineDiedError, EngineServer
from tests.bed.load import LoadPlan, LoadReport, Tenant, run_load

BLOCKS = 400
LEAK_AT, LOAD_UNTIL = 0.3, 0.75  # shares of the demo's time
LOOK_SECONDS = 0.1
PLAIN_EVERY = 5.0  # seconds between lines where there is no screen to redraw
TENANTS = (
    Tenant("acme (chat)", weight=3, prompt=(40, 250), output=(20, 80), prefix=32, abort_ratio=0.15),
    Tenant("initech (short)", weight=2, prompt=(20, 80), output=(10, 30)),
    Tenant("umbrella (long)", weight=1, prompt=(600, 1400), output=(60, 200), prefix=128, abort_ratio=0.3),
)


@dataclass(slots=True)
class Story:
    """What has happened so far, for the view and for the summary. Times are monotonic seconds."""

    load: LoadReport = field(default_factory=LoadReport)
    state: AgentState | None = None
    armed: float | None = None
    seen: float | None = None
    seen_running: int | None = None
    confirmed: float | None = None
    most_running: int = 0

    @property
    def engine(self) -> EngineState | None:
        """The engine, once the agent sees it."""
        return self.state.engines[0] if self.state and self.state.engines else None

    def look(self, state: AgentState) -> None:
        """Take in a new state."""
        self.state, now = state, time.monotonic()
        engine = self.engine
        if engine is None or engine.pool is None:
            return
        self.most_running = max(self.most_running, engine.running or 0)
        if engine.pool.orphaned and self.seen is None:
            self.seen, self.seen_running = now, engine.running
        if self.confirmed is None and any(
            verdict.kind == "kv_orphan" and verdict.phase == "confirmed" for verdict in engine.verdicts
        ):
            self.confirmed = now

    def line(self, began: float, seconds: float) -> str:
        """One line on where we are."""
        now = time.monotonic()
        left = max(0.0, began + seconds - now)
        load = f"{self.load.started} requests sent, {self.load.completed} completed, {self.load.aborted} cut by clients"
        if self.armed is None:
            leak = f"A leak will be planted in {max(0.0, began + LEAK_AT * seconds - now):.0f} s"
        elif self.seen is None:
            leak = "A leak is being planted; only the plugin that leaks knows its size"
        else:
            leak = "LEAK SEEN" + (" and confirmed" if self.confirmed else "")
        return f"{load}. {leak}. Ends in {left:.0f} s (Ctrl-C ends it now)."


async def show(story: Story, client: AgentClient, console: Console, began: float, seconds: float) -> None:
    """Redraw the view until the demo's time is over."""

    def picture() -> RenderableType:
        head = Text(story.line(began, seconds), style="bold")
        return Group(head, render(story.state)) if story.state else head

    last_line = 0.0
    with Live(picture(), console=console, auto_refresh=False, transient=True) as live:
        while time.monotonic() < began + seconds:
            with suppress(KvtideError):
                story.look(await asyncio.to_thread(client.state))
            if console.is_terminal:
                live.update(picture(), refresh=True)
            elif time.monotonic() - last_line >= PLAIN_EVERY:
                last_line = time.monotonic()
                console.print(picture())
            await asyncio.sleep(LOOK_SECONDS)


async def play(engine: EngineServer, agent: AgentProcess, leaks: Path, story: Story, seconds: float) -> None:
    """Run load, leak and view side by side; console output goes to the terminal."""
    console, began = Console(), time.monotonic()
    load = LoadPlan(requests=5000, seconds=seconds * LOAD_UNTIL, concurrency=8, tenants=TENANTS, seed=int(time.time()))

    async def plant() -> None:
        await asyncio.sleep(seconds * LEAK_AT)
        arm(leaks, 2, 12)
        story.armed = time.monotonic()

    async with asyncio.TaskGroup() as group:
        group.create_task(run_load(engine.url, load, story.load))
        group.create_task(plant())
        group.create_task(show(story, AgentClient(agent.url), console, began, seconds))


def summary(story: Story, planted: Planted | None) -> tuple[RenderableType, bool]:
    """Return what happened, and whether the agent's number was right."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column()
    engine, load = story.engine, story.load
    pool = engine.pool if engine else None
    if engine and pool:
        size = f", {pool.capacity} KV blocks of {pool.block_tokens} tokens" if pool.block_tokens else ""
        table.add_row("engine", f"vLLM {engine.engine_version}{size}; up to {story.most_running} requests at a time")
    table.add_row(
        "load",
        f"{load.started} requests: {load.completed} completed, {load.aborted} cut by clients, "
        f"{load.unfinished} still running when the load stopped, {load.failed} failed"
        + "".join(f"\n{error}" for error in load.errors),
    )
    right = False
    if planted is None:
        table.add_row("leak", "none was planted before the end" if story.armed is None else "not complete at the end")
    else:
        table.add_row("leaked", f"{planted.n} blocks, a number that only the leaking plugin knew until now")
        orphaned = pool.orphaned if pool else None
        right = orphaned == planted.n
        if story.seen is None:
            table.add_row("kvtide said", "nothing")
        else:
            after = story.seen - planted.complete_monotonic
            when = f"{after:.1f} s after the last block had leaked" if after > 0 else "while blocks were still leaking"
            busy = f"{story.seen_running} requests running" if story.seen_running else "the engine at rest"
            verb = "which is right" if right else "which is WRONG"
            table.add_row("kvtide said", f"{orphaned} orphaned blocks, {verb}; first seen {when}, with {busy}")
    for verdict in engine.verdicts if engine else ():
        table.add_row("verdict", f"{verdict.kind} {verdict.phase}: {verdict.sentence} {verdict.remedy}")
    if engine and engine.hooks and engine.hooks.step_seconds:
        share = engine.hooks.hook_seconds / engine.hooks.step_seconds
        table.add_row("hooks", f"{share:.2%} of the engine's step time, {sum(engine.hooks.errors.values())} errors")
    return Group(Text("\nSummary", style="bold"), table), right


def hint(agent: AgentProcess) -> str:
    """Return what to type so that ``kvtide`` finds this agent, and not one on the usual port and socket."""
    program = Path(sys.executable).with_name("kvtide")
    return f"export KVTIDE_URL={agent.url} KVTIDE_SOCKET={agent.socket}; {program} top"


def run(seconds: float, folder: Path, console: Console) -> bool:
    """Start everything, play, and end everything; return whether the agent was right."""
    story, leaks, planted, interrupted = Story(), folder / "leak", None, False
    with AgentProcess(folder) as agent:
        console.print(f"\\[kvtide] agent up; its page, for a browser while the demo runs: {agent.url}", highlight=False)
        console.print(
            f"\\[kvtide] in another terminal, for all commands: {hint(agent)}", highlight=False, soft_wrap=True
        )
        # Who calls from this machine is believed when it says whose a request is.
        env = {**agent.engine_env(), **leak_env(leaks), "KVTIDE_TRUSTED_PROXIES": "127.0.0.0/8"}
        with EngineServer(folder / "engine.log", num_blocks=BLOCKS, env=env) as engine:
            try:
                with console.status("\\[kvtide] vLLM is starting on the CPU: half a minute to a minute..."):
                    waited = engine.wait_ready(300)
                console.print(f"\\[kvtide] vLLM up after {waited:.0f} s: {engine.url}", highlight=False)
                asyncio.run(play(engine, agent, leaks, story, seconds))
            except KeyboardInterrupt:
                interrupted = True
            with suppress(TimeoutError, RuntimeError):
                planted = wait_planted(leaks, 0.1)
            text, right = summary(story, planted)
            console.print("\\[kvtide] ending the engine and the agent...", highlight=False)
    console.print(text)
    console.print("Everything that was started has ended.", style="dim")
    return right or interrupted


def main() -> int:
    """Run the demo; 2 for a bad ``DEMO_SECONDS``."""
    text = os.environ.get("DEMO_SECONDS") or "60"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 10 <= seconds <= 3600:
        sys.stderr.write(f"DEMO_SECONDS={text}: must be a number of seconds from 10 to 3600\n")
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        try:
            return 0 if run(seconds, Path(name), console) else 1
        except (EngineDiedError, RuntimeError, TimeoutError) as error:
            sys.stderr.write(f"{error}\n")
            return 1
        except KeyboardInterrupt:
            return 130


if __name__ == "__main__":
    sys.exit(main())
