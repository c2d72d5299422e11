"""kill -9 at any moment: no order is lost, none is given twice, and what is in force is in the journal."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from agent.actions.journal import FILE
from agent.actions.journal_file import look_up
from agent.actions.types import LIVE_PHASES
from engine_hooks.wire import PoolReport
from tests.unit.actions.rig import Process
from tests.unit.builders import make_pool_report, make_report
from tests.unit.support import eventually, write_key

ROOT = Path(__file__).parents[3]
KILLS = 10


class Engine(Process):
    """Reports as an engine does, and remembers by which action each lever was pulled."""

    def __init__(self, socket: Path, key: Path) -> None:
        super().__init__(socket, key, time.monotonic)
        self.applied: Counter[str] = Counter()
        self._stop = threading.Event()
        self._number = 0
        self._reporter = threading.Thread(target=self._report, daemon=True)

    def _order(self, order: object) -> None:
        action = order.action  # type: ignore[attr-defined]
        before = {row.lever: row.action for row in self.desk.in_force()}
        super()._order(order)  # type: ignore[arg-type]
        if action is not None and action.op == "apply":
            after = {row.lever: row.action for row in self.desk.in_force()}
            if after.get(action.lever) == action.action != before.get(action.lever):
                self.applied[action.action] += 1

    def pool(self) -> PoolReport:
        """What it says of its pool."""
        return make_pool_report(held=970)

    def _report(self) -> None:
        while not self._stop.wait(0.05):
            self._tick()
            self._number += 1
            self.link.send(
                make_report(
                    self.pool(), sequence=self._number, monotonic=time.monotonic(), in_force=self.desk.in_force()
                )
            )

    def start(self) -> None:
        self.link.start()
        self._reporter.start()

    def close(self) -> None:
        self._stop.set()
        self._reporter.join()
        super().close()


def victim(folder: Path, mode: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.unit.actions.victim", str(folder), mode]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def test_killed_at_any_moment(tmp_path: Path) -> None:
    draw = random.Random(7)
    engine = Engine(tmp_path / "s", write_key(tmp_path / "k"))
    engine.start()
    try:
        for number in range(KILLS):
            process = victim(tmp_path, "act")
            assert process.stdout is not None
            before = engine.applied.total()
            # Half of them amid the looks, in which intents are written; half just after an order was obeyed.
            for _ in range(draw.randint(1, 8)):
                assert process.stdout.readline() == b"looked\n"
            while number % 2 and engine.applied.total() == before:
                assert process.stdout.readline() == b"looked\n"
            time.sleep(draw.uniform(0.0, 0.05))
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
        known = {each.id: each for each in look_up(tmp_path / "state" / FILE, 1000)[0]}
        assert set(engine.applied) <= set(known), "an order without its intent"
        assert max(engine.applied.values()) == 1, "an order was obeyed twice"
        assert {row.action for row in engine.desk.in_force()} <= {
            each.id for each in known.values() if each.phase in LIVE_PHASES
        }
        last = victim(tmp_path, "settle")
        assert last.stdout is not None
        last.stdout.read()
        assert last.wait() == 0
        last.stdout.close()
        ended = look_up(tmp_path / "state" / FILE, 1000)[0]
        assert not [each for each in ended if each.phase in LIVE_PHASES]
        by_id = {each.id: each for each in ended}
        # What did not answer in time is said to end by its lease, and does.
        assert {by_id[row.action].phase for row in engine.desk.in_force()} <= {"expired"}
        eventually(lambda: not engine.desk.in_force())
        assert not any(lever.value for lever in engine.levers.values())
        assert len(engine.applied) >= KILLS // 2
        handed = [each for each in ended if each.id in engine.applied]
        assert {each.phase for each in handed} <= {"undone", "expired", "lost", "failed"}
    finally:
        engine.close()
