"""How long it takes from a breach to the lever in an engine: the agent's real parts and an engine's, over a real link.

A breach is the look at which a verdict has stood often enough. From there: the plan, its gates, the intent on the disk,
the order over the link, the engine's side thread and its desk. ``breach_to_lever`` ends where the lever is pulled;
``report_to_lever`` begins at an engine's report that can't wait, and has the look in it that the daemon makes then. The
engine's thread is woken between two steps: see hook_share for what that costs it, and the field notes for how long it
waits in a busy engine.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from agent.actions.actions import Actions
from agent.actions.trigger import PromptTable
from agent.config import LinkConfig
from agent.judge import Judge
from agent.link import LinkServer
from agent.state import AgentState, Judgement
from bench.rows import Row, bootstrap, quantile
from engine_hooks.levers.orders import ActionResult
from tests.unit.actions.rig import Knob, Process, policy, short
from tests.unit.builders import make_pool_report, make_report, make_state
from tests.unit.support import write_key

BUDGET_SECONDS = 0.250
ROUNDS, QUICK_ROUNDS = 60, 15
PATIENCE = 10.0


class Timed(Knob):
    """A lever that notes when it is pulled."""

    def __init__(self) -> None:
        super().__init__("watermark", "blocks")
        self.pulled = threading.Event()
        self.at = 0.0

    def _wanted(self, arguments: object) -> float:
        self.at = time.monotonic()
        self.pulled.set()
        return 1.0


class Bench:
    """An acting agent without its other halves, and one engine."""

    def __init__(self, folder: Path) -> None:
        self.soon = asyncio.Event()
        chosen = policy(cooldown_seconds=0.0, budget_per_hour=1000, breaker_failures=10**6, breaches=1)
        self.table = PromptTable(3.0, self.soon.set, lambda: chosen)
        link = LinkConfig(socket=folder / "s", key_file=write_key(folder / "k"))
        self.server = LinkServer(link, self.table, heard=self._heard)
        self.actions = Actions(folder / "state", chosen, self.server.act)
        self.lever = Timed()
        self.engine = Process(folder / "s", folder / "k", time.monotonic, levers={"watermark": self.lever})
        self.judge = Judge(chosen)
        self.node = make_state()
        self._number = 0

    def _heard(self, instance: str, result: ActionResult) -> None:
        self.actions.heard(instance, result)

    async def start(self) -> None:
        """Bring both up, and wait until they know each other."""
        self.server.start()
        self.actions.start()
        self.engine.link.start()
        await self._until(lambda: self.engine.link.up and self.actions.tasks.idle())

    async def once(self) -> tuple[float, float]:
        """Let one breach happen; return seconds from the breach and from the engine's report to the lever."""
        self.soon.clear()
        self.lever.pulled.clear()
        reported = time.monotonic()
        self.report(970)
        await asyncio.wait_for(self.soon.wait(), PATIENCE)
        state = self.state()
        self.judge.look(state)  # what the daemon's look costs beside
        breach = time.monotonic()
        self.actions.take(replace(state, judgement=Judgement(at=state.at, verdicts=(short(evidence={}),))))
        await asyncio.to_thread(self.lever.pulled.wait, PATIENCE)
        pulled = self.lever.at
        await self._until(self.actions.tasks.idle)
        self.report(300)
        await self.calm()
        return pulled - breach, pulled - reported

    async def calm(self) -> None:
        """Take back what is in force, so that the next round finds nothing."""
        for action in self.actions.book.live():
            await self.actions.executor.undo(action, "the next round")
        await asyncio.sleep(0.15)  # an engine obeys ten orders a second

    def report(self, held: int) -> None:
        """Let the engine report so many held blocks, with requests that wait."""
        self._number += 1
        pool = make_pool_report(held=held)
        report = make_report(
            pool, sequence=self._number, monotonic=time.monotonic(), in_force=self.engine.desk.in_force()
        )
        self.engine.link.send(report)

    def state(self) -> AgentState:
        """Return the node as it is now."""
        now, unix = time.monotonic(), time.time()
        engines = self.table.states(now, unix)
        return replace(self.node, at=unix, monotonic=now, engines=engines, waterfalls=(), judgement=None)

    async def close(self) -> None:
        """End both."""
        await asyncio.to_thread(self.engine.close)
        await self.actions.close()
        self.server.close()

    @staticmethod
    async def _until(check: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not check():
            if time.monotonic() > end:
                raise TimeoutError("it did not come up")
            await asyncio.sleep(0.005)


async def _measure(rounds: int) -> tuple[list[float], list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        await bench.start()
        try:
            found = [await bench.once() for _ in range(rounds)]
        finally:
            await bench.close()
    return [breach for breach, _ in found], [report for _, report in found]


def run(quick: bool) -> list[Row]:
    """Return p99 and median of the way from breach to lever, and of that from a report that can't wait."""
    breaches, reports = asyncio.run(_measure(QUICK_ROUNDS if quick else ROUNDS))

    def row(name: str, sample: list[float], share: float, budget: float | None = None) -> Row:
        def value(values: Sequence[float]) -> float:
            return quantile(sorted(values), share)

        return Row(name, value(sample), "seconds", budget, bootstrap(sample, value))

    return [
        row("breach_to_lever_p99", breaches, 0.99, BUDGET_SECONDS),
        row("breach_to_lever_median", breaches, 0.5),
        row("report_to_lever_p99", reports, 0.99),
    ]
