"""An agent's acting half in a process of its own, to be killed: ``python -m tests.unit.actions.victim FOLDER MODE``.

``act``: a verdict comes and goes, all the time. ``settle``: none comes; it ends once nothing is left in force.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from agent.actions.actions import Actions
from agent.config import LinkConfig
from agent.engines import EngineTable
from agent.link import LinkServer
from agent.state import Judgement
from engine_hooks.levers.orders import ActionResult
from tests.unit.actions.rig import policy, short
from tests.unit.builders import make_state

POLICY = policy(
    cooldown_seconds=0.2,
    calm_seconds=0.2,
    undo_step_seconds=0.05,
    verify_seconds=0.1,
    lease_seconds=3.0,
    answer_seconds=1.0,
    budget_per_hour=1000,
    breaker_failures=10**6,
    ladder=["watermark", "active_cap"],
)


async def main(folder: Path, mode: str) -> None:
    table = EngineTable(3.0)

    def heard(instance: str, result: ActionResult) -> None:
        actions.heard(instance, result)

    server = LinkServer(LinkConfig(socket=folder / "s", key_file=folder / "k"), table, heard=heard)
    actions = Actions(folder / "state", POLICY, server.act)
    server.start()
    actions.start()
    node, verdict = make_state(), short(evidence={})
    standing = True
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        now, unix = time.monotonic(), time.time()
        if mode == "act" and random.random() < 0.2:
            standing = not standing
        verdicts = (verdict,) if standing and mode == "act" else ()
        engines = table.states(now, unix)
        actions.tick()
        actions.take(
            replace(
                node,
                at=unix,
                monotonic=now,
                engines=engines,
                judgement=Judgement(at=unix, verdicts=verdicts),
                waterfalls=(),
                balancer=None,
            )
        )
        print("looked", flush=True)
        if mode == "settle" and actions._opened and engines and not actions.book.live() and actions.tasks.idle():
            break
        await asyncio.sleep(0.1)
    await actions.close()
    server.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
