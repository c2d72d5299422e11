"""Half an hour of what takes five hours elsewhere, on a real engine and a real agent: does anything grow?

``python -m tests.bed.soak --minutes 30`` (``make soak``) serves without a pause: streams of sixty tenants, a
third of them cut. Meanwhile the agent is asked for its pages and its state ten times as often as is usual, engines
beside the real one come and go twice a second, the policy is loaded again every three seconds, and levers are pulled
and let go.
Before that half hour there is another, the warm-up: so long the agent's signals fill what they keep (what is usual for
each tenant, half an hour of its sessions). Then every two seconds it is looked at what the agent and the engine's
processes hold. At the end the agent is killed and started again and
again. It ends with 1 when something has grown.

``--twin``: what the hooks hold is not traced, for tracing takes memory, too. Instead an engine without hooks has the
same load beside it, and what grows in the core must grow in that one's as well.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.cli.control import ControlClient
from agent.errors import KvtideError
from tests.bed import net
from tests.bed.acting import LEVERS, Node, sending
from tests.bed.agent import AgentProcess
from tests.bed.engine import EngineServer
from tests.bed.hook_memory import CEILING_MIB
from tests.bed.load import LoadPlan, Tenant
from tests.bed.passing import Passing
from tests.bed.trend import Trend, trend

BLOCKS = 300
MIB = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
WARM_UP_MINUTES = 31.0
LOOK_SECONDS, SETTLE_SECONDS = 2.0, 5.0
PATIENCE_SECONDS = 60.0  # for an answer: what is measured is memory, and the machine may have much else to do
# Fewer than an engine may name at once (agent/names.py): of more, one a minute would be told by name, up to 256, and
# that is a growth that is meant to be. tests/unit/security/test_label_churn.py sees to that bound.
TENANTS = 60
RESTARTS = 10
POLICY = "actions: {mode: observe}\n"
# What the hooks hold beside their books is to be as large at the end as at the beginning. What moves meanwhile:
# requests that come and go, and tables that double.
BESIDE_KIB = 128.0
APART_MIB = 4.0  # that the core may gain on its twin once its books are full: malloc's own pages
ONE = 0.9  # file or thread that is not given back: what the line through such a step rises by, if not at an end
RESTARTS_KIB = 256.0  # over all restarts of the agent: nothing of them is to be kept


@dataclass(slots=True)
class Seen:
    """What was seen of the agent, of the engine's core and of its twin's: (seconds, value).

    ``hooks_kib``: what the hooks hold in all processes of the engine, ``beside_kib``: that without their books, which
    fill up to a bound. ``apart_mib``: how much more the core has than its twin. Empty: it was not looked at.
    """

    agent_mib: list[tuple[float, float]] = field(default_factory=list)
    agent_files: list[tuple[float, float]] = field(default_factory=list)
    agent_threads: list[tuple[float, float]] = field(default_factory=list)
    core_mib: list[tuple[float, float]] = field(default_factory=list)
    twin_mib: list[tuple[float, float]] = field(default_factory=list)
    apart_mib: list[tuple[float, float]] = field(default_factory=list)
    core_files: list[tuple[float, float]] = field(default_factory=list)
    hooks_kib: list[tuple[float, float]] = field(default_factory=list)
    beside_kib: list[tuple[float, float]] = field(default_factory=list)
    series: list[tuple[float, float]] = field(default_factory=list)


class Often:
    """Does something again and again on a thread; counts how often it was done and how often it failed."""

    def __init__(self, name: str, seconds: float, what: Callable[[], object]) -> None:
        self.name, self.done, self.failed, self.error = name, 0, 0, ""
        self._seconds, self._what = seconds, what
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                self._what()
                self.done += 1
            except (OSError, KvtideError) as error:
                self.failed, self.error = self.failed + 1, repr(error)

    def __enter__(self) -> Often:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class Watched(Node):
    """A node whose engine tells in ``memory`` what the hooks hold; None: it does not, and has a twin without hooks."""

    def __init__(self, folder: Path, memory: Path | None) -> None:
        self.memory = memory
        super().__init__(folder)
        self.twin: EngineServer | None = None
        if memory is None:
            off = {"KVTIDE_DISABLE": "1"}
            self.twin = EngineServer(folder / "twin.log", num_blocks=BLOCKS, env=off)

    def start_engine(self) -> EngineServer:
        """Start an engine whose levers may be pulled."""
        env = {
            "KVTIDE_SOCKET": str(self.folder / "agent.sock"),
            "KVTIDE_LEVERS": LEVERS,
            "KVTIDE_TRUSTED_PROXIES": "127.0.0.0/8",  # tenants are who they say
        }
        if self.memory is not None:
            env["KVTIDE_TEST_MEMORY_DIR"] = str(self.memory)
        return EngineServer(self.folder / "engine.log", num_blocks=BLOCKS, env=env)

    def engines(self) -> list[EngineServer]:
        """Return the engine, and its twin where there is one."""
        return [self.engine] if self.twin is None else [self.engine, self.twin]

    def cores(self) -> list[int]:
        """Return their cores; raises ``RuntimeError`` with the cause, by its log, where one has ended."""
        for engine in self.engines():
            if not engine.core_pids():
                raise RuntimeError(f"an engine has ended; {engine.log}:\n{engine.log_cause()}")
        return [engine.core_pid() for engine in self.engines()]

    def close(self) -> None:
        """End all."""
        super().close()
        if self.twin is not None:
            self.twin.stop()


def resident_mib(pid: int) -> float:
    """Return a process's resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES / MIB


def files_of(pid: int) -> int:
    """Return how many files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads_of(pid: int) -> int:
    """Return how many threads a process has."""
    return len(os.listdir(f"/proc/{pid}/task"))


def series_of(agent: AgentProcess) -> int:
    """Return how many series both pages have."""
    pages = (agent.get("/metrics", PATIENCE_SECONDS), agent.get("/metrics/detail", PATIENCE_SECONDS))
    return sum(1 for page in pages for line in page.splitlines() if line and not line.startswith("#"))


def hooks_kib(memory: Path) -> tuple[float, float] | None:
    """Return what the hooks hold in all processes of the engine, and that beside their books; None: not yet."""
    told = [json.loads(path.read_text()) for path in memory.glob("[0-9]*.json")]
    if not told:
        return None
    held = sum(each["bytes"] for each in told)
    return held / 1024, (held - sum(each["books"] for each in told)) / 1024


def beside(memory: Path) -> float:
    """Return what the hooks hold beside their books, KiB; raises ValueError where nobody has told it."""
    held = hooks_kib(memory)
    if held is None:
        raise ValueError(f"no process of the engine has told its memory in {memory}")
    return held[1]


def look(seen: Seen, agent: AgentProcess, node: Watched) -> None:
    """Look once."""
    now = time.monotonic()
    core, *twins = node.cores()
    seen.agent_mib.append((now, resident_mib(agent.process.pid)))
    seen.agent_files.append((now, files_of(agent.process.pid)))
    seen.agent_threads.append((now, threads_of(agent.process.pid)))
    core_mib = resident_mib(core)
    seen.core_mib.append((now, core_mib))
    seen.core_files.append((now, files_of(core)))
    seen.series.append((now, series_of(agent)))
    for twin in twins:
        twin_mib = resident_mib(twin)
        seen.twin_mib.append((now, twin_mib))
        seen.apart_mib.append((now, core_mib - twin_mib))
    held = None if node.memory is None else hooks_kib(node.memory)
    if held is not None:
        seen.hooks_kib.append((now, held[0]))
        seen.beside_kib.append((now, held[1]))


def pull(control: ControlClient) -> None:
    """Pull a lever of the real engine, and let it go."""
    body = {"lever": "watermark", "engine": "tiny", "arguments": {"ratio": 0.05}, "minutes": 1.0, "why": "soak"}
    action = control.post("/api/v1/orders", body)
    control.post(f"/api/v1/actions/{action['id']}/undo")


def plan(seconds: float) -> LoadPlan:
    """Return a load without an end: many tenants, a third of the streams cut."""
    like = Tenant("", prompt=(16, 300), output=(8, 40), prefix=8, abort_ratio=0.33)
    tenants = tuple(replace(like, name=f"t{number}") for number in range(TENANTS))
    return LoadPlan(requests=10**9, seconds=seconds + 600, concurrency=16, tenants=tenants, seed=1)


def soak(node: Watched, warm_up: float, seconds: float) -> tuple[Seen, list[Often], Passing]:
    """Play for so long, and before that for the seconds of ``warm_up``; return what was seen and what was done."""
    seen = Seen()
    with node.acting("kept", POLICY) as agent, ExitStack() as stack:
        control = ControlClient(agent.socket)
        loads = [stack.enter_context(sending(engine.url, plan(warm_up + seconds))) for engine in node.engines()]
        busy = [
            Often("pages", 0.1, lambda: agent.get("/metrics")),
            Often("details", 1.0, lambda: agent.get("/metrics/detail")),
            Often("state", 0.25, lambda: net.get(agent.url + "/api/v1/state")),
            Often("reload", 3.0, lambda: agent.signal(signal.SIGHUP)),
            Often("lever", 0.1, lambda: pull(control)),
        ]
        for each in busy:
            stack.enter_context(each)
        passing = stack.enter_context(Passing(agent.socket))
        began = time.monotonic()
        time.sleep(warm_up)
        while time.monotonic() - began < warm_up + seconds:
            look(seen, agent, node)
            time.sleep(LOOK_SECONDS)
        for name, load in zip(("engine", "twin"), loads, strict=False):
            told = f"{load.started} requests, {load.completed} whole, {load.aborted} cut, {load.failed} failed"
            print(f"[soak] {name}: {told}")
            for text in load.errors:
                print(f"[soak]   {text}", flush=True)
    return seen, busy, passing


def restarts(node: Watched, memory: Path) -> float:
    """Return what the hooks hold more of, in KiB, once agents have been killed and started again and again."""
    before = beside(memory)
    for _ in range(RESTARTS):
        with node.acting("kept", POLICY) as agent:
            time.sleep(1.0)
            agent.kill()
    with node.acting("kept", POLICY):
        time.sleep(SETTLE_SECONDS + 40.0)  # the plugin tells it every 20 s
        return beside(memory) - before


def judged(seen: Seen, restarts_kib: float | None) -> list[str]:
    """Print the trends; return what has grown. None: not looked at."""
    found: dict[str, Trend] = {name: trend(values) for name in Seen.__slots__ if (values := getattr(seen, name))}
    for name, each in found.items():
        print(f"[soak] {name}: {each}")
    hours = (seen.agent_mib[-1][0] - seen.agent_mib[0][0]) / 3600
    # By name: what it may have gained at the end, in its unit.
    room = {
        "agent_mib": ("the agent's memory", 0.0),
        "agent_files": ("agent_files", ONE),
        "agent_threads": ("agent_threads", ONE),
        "core_files": ("core_files", ONE),
        "beside_kib": ("the hooks' memory beside their books", BESIDE_KIB),
        "apart_mib": ("the core's memory beside its twin's", APART_MIB),
        "series": ("the series", 0.05 * found["series"].level * hours),
    }
    grown = [
        f"{told}: {found[name]}"
        for name, (told, most) in room.items()
        if name in found and found[name].grows and found[name].slope * hours > most
    ]
    if seen.hooks_kib and (most := max(value for _, value in seen.hooks_kib)) > 1024 * CEILING_MIB:
        grown.append(f"the hooks' memory: {most / 1024:.1f} MiB, and full books are {CEILING_MIB:g}")
    if restarts_kib is not None:
        print(f"[soak] hooks over {RESTARTS} restarts of the agent: {restarts_kib:+.1f} KiB")
        if restarts_kib > RESTARTS_KIB:
            grown.append(f"the hooks' memory over restarts of the agent: {restarts_kib:.0f} KiB")
    return grown


def main() -> int:
    """Play, tell what has grown, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bed.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long it is looked at")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_MINUTES, help="minutes before that")
    parser.add_argument("--twin", action="store_true", help="nothing is traced; an engine without hooks is beside it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        place = Path(name)
        memory = None if options.twin else place / "memory"
        if memory is not None:
            memory.mkdir()
        with suppress(KeyboardInterrupt):
            node = Watched(place / "n", memory)
            try:
                for engine in node.engines():
                    engine.wait_ready(600.0)
                seen, busy, passing = soak(node, options.warm_up * 60, options.minutes * 60)
                over = None if memory is None else restarts(node, memory)
            finally:
                node.close()
            print(f"[soak] {passing.lives} lives of engines beside the real one")
            for each in busy:
                print(f"[soak] {each.name}: {each.done} done, {each.failed} failed {each.error}")
            grown = judged(seen, over)
            for line in grown:
                print(f"[soak] GROWN: {line}")
            return int(bool(grown))
    return 130


if __name__ == "__main__":
    sys.exit(main())
