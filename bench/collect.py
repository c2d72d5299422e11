"""What the agent costs on a node with 8 GPUs and 8 engines: processor time, memory, scrapes; beside nvitop-exporter.

The agent is the real process, the driver's library is scripted (tests/bed/nvml), the engines are processes with real
schedulers and hooks but no model (tests/bed/node.py). Both exporters look once a second at the same driver, and both
are scraped once a second, at the same time: what the machine does to one it does to the other.
"""

from __future__ import annotations

import http.client
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.beside import engines
from bench.neighbour import AbsentError, nvitop
from bench.rows import Row, quantile
from tests.bed import nvml
from tests.bed.agent import AgentProcess
from tests.bed.node import uuid_of
from tests.bed.pages import page, serving

ROOT = Path(__file__).parents[1]
ENGINES = 8
CPU, RESIDENT_MIB, SCRAPE_MS = 0.01, 80.0, 25.0
DETAIL = "/metrics/detail"
SERIES, TENANTS = 5000, 16  # that many tenants in each engine make that many series on the page of details
WARM_UP_SECONDS = 10.0
SCRAPE_GAP_SECONDS = 0.5  # the state has changed by then, and there is time to render it: no answer is the last one's
START_SECONDS = 90.0
MIB = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor seconds per second, and the most memory seen, in MiB."""

    cpu: float
    resident: float


def run(quick: bool) -> list[Row]:
    """Return the rows; ``quick`` leaves out what has no budget, and measures for a fifth of the time."""
    seconds = 12.0 if quick else 60.0
    folder = Path(tempfile.mkdtemp(prefix="kvtide-"))
    try:
        library = nvml.build(folder)
        script = folder / "script"
        _play(script, {})
        sources = f"sources:\n  device:\n    library: {library / nvml.LIBRARY}\n"
        with _agent(folder / "hooked", script, sources) as agent:
            rows = _beside(agent, library, script, folder / "nvitop.log", seconds)
            rows += _scrapes(agent, script, seconds)
            if not quick:
                rows += _others(agent, script, seconds)
        return rows if quick else rows + _hookless(folder, script, sources, seconds)
    finally:
        shutil.rmtree(folder)


def _beside(agent: AgentProcess, library: Path, script: Path, log: Path, seconds: float) -> list[Row]:
    """The agent and nvitop-exporter, each scraped once a second."""
    with _node(agent, script), _neighbour(library, script, log) as other:
        ours, *theirs = _costs([(agent.process.pid, f"{agent.url}/metrics"), *other], seconds)
        rows = [
            Row("collect.cpu", ours.cpu, "cores", CPU),
            Row("collect.resident", ours.resident, "MiB", RESIDENT_MIB),
            Row("collect.series", _series(agent), "series"),
        ]
    for their in theirs:
        rows += [
            Row("collect.cpu_vs_nvitop", ours.cpu / their.cpu, "ratio"),
            Row("collect.resident_vs_nvitop", ours.resident / their.resident, "ratio"),
            Row("collect.nvitop_cpu", their.cpu, "cores"),
            Row("collect.nvitop_resident", their.resident, "MiB"),
        ]
    return rows


def _scrapes(agent: AgentProcess, script: Path, seconds: float) -> list[Row]:
    """How long a scrape of either page takes, of a state that has changed since the last one."""
    with _node(agent, script, "--tenants", str(TENANTS)):
        times = sorted(_scrape_times(f"{agent.url}/metrics", seconds / 2))
        slow = sorted(_scrape_times(agent.url + DETAIL, seconds / 2))
        series, more = _series(agent), _series(agent, DETAIL)
    if more < SERIES:
        raise RuntimeError(f"{more} series are too few to judge a scrape by")
    return [
        Row("collect.scrape_p50", 1e3 * quantile(times, 0.5), "ms"),
        Row("collect.scrape_p99", 1e3 * quantile(times, 0.99), "ms", SCRAPE_MS),
        Row("collect.scrape_series", series, "series"),
        Row("collect.scrape_detail_p50", 1e3 * quantile(slow, 0.5), "ms"),
        Row("collect.scrape_detail_p99", 1e3 * quantile(slow, 0.99), "ms", SCRAPE_MS),
        Row("collect.scrape_detail_series", more, "series"),
    ]


def _others(agent: AgentProcess, script: Path, seconds: float) -> list[Row]:
    """Nobody asks; and engines under load, which report ten times a second."""
    page_of_ours = f"{agent.url}/metrics"
    with _node(agent, script):
        (unasked,) = _costs([(agent.process.pid, "")], seconds)
    with _node(agent, script, "--busy"):
        (busy,) = _costs([(agent.process.pid, page_of_ours)], seconds)
    return [
        Row("collect.cpu_unscraped", unasked.cpu, "cores"),
        Row("collect.cpu_busy", busy.cpu, "cores"),
        Row("collect.resident_busy", busy.resident, "MiB", RESIDENT_MIB),
    ]


def _hookless(folder: Path, script: Path, sources: str, seconds: float) -> list[Row]:
    """As many engines without hooks, whose pages the agent asks for once a second."""
    with serving(page()) as pages:
        sources += "  scrape:\n    engines:\n"
        sources += "".join(f"      - url: {pages.url}/{number}/metrics\n" for number in range(ENGINES))
        with _agent(folder / "hookless", script, sources) as agent:
            agent.wait(lambda: agent.metrics().get("kvtide_scraped_up") == ENGINES, START_SECONDS)
            (cost,) = _costs([(agent.process.pid, f"{agent.url}/metrics")], seconds)
    return [Row("collect.cpu_scraping", cost.cpu, "cores"), Row("collect.resident_scraping", cost.resident, "MiB")]


# -- who is there ---------------------------------------------------------------------------------------------------


@contextmanager
def _agent(folder: Path, script: Path, settings: str) -> Iterator[AgentProcess]:
    folder.mkdir()
    config = folder / "agent.yaml"
    config.write_text(settings)
    env = {nvml.SCRIPT_VARIABLE: str(script)}
    with AgentProcess(folder, args=["--config", str(config)], env=env) as agent:
        yield agent


@contextmanager
def _node(agent: AgentProcess, script: Path, *options: str) -> Iterator[None]:
    """Run the engines until the end of the block; all are live when it begins."""
    try:
        with engines(agent, ENGINES, *options, seconds=START_SECONDS) as told:
            _play(script, told)
            agent.wait(lambda: _all_there(agent.state()), START_SECONDS)
            yield
    finally:
        _play(script, {})
    agent.wait(lambda: not agent.engines(), START_SECONDS)


def _all_there(state: dict[str, Any]) -> bool:
    engines = state["engines"]
    return (
        [engine["phase"] for engine in engines] == ["live"] * ENGINES
        and all(engine["detail"] and [m["up"] for m in engine["members"]] == [True, True] for engine in engines)
        and len(state["waterfalls"]) == ENGINES
    )


def _play(script: Path, pids: dict[str, list[int]]) -> None:
    """Let the driver list each GPU's processes: an engine's three, and one that is not ours."""
    gpus = []
    for number in range(ENGINES):
        found = [nvml.Process(each[number], used=(50 if role == "worker" else 1) << 30) for role, each in pids.items()]
        if pids:
            found.append(nvml.Process(os.getpid()))
        gpus.append(nvml.Gpu(uuid_of(number), memory=nvml.Memory(used=60 << 30), processes=tuple(found)))
    nvml.Script(gpus=tuple(gpus)).write(script)


@contextmanager
def _neighbour(library: Path, script: Path, log: Path) -> Iterator[list[tuple[int, str]]]:
    """Run nvitop-exporter if it can be had; yield its pid and page, or nothing."""
    try:
        with nvitop({**os.environ, **nvml.environment(library, script)}, log) as found:
            yield [found]
    except AbsentError as reason:
        print(f"[bench] collect: nothing to compare with: {reason}", file=sys.stderr, flush=True)
        yield []


# -- what they cost -------------------------------------------------------------------------------------------------


def _costs(watched: Sequence[tuple[int, str]], seconds: float) -> list[Cost]:
    """Return what each of ``watched``, by pid and page, costs while its page is asked for once a second."""
    with _Pages([url for _, url in watched if url]) as pages:
        _pace(pages, WARM_UP_SECONDS, [])
        before, began = [_cpu_seconds(pid) for pid, _ in watched], time.monotonic()
        resident: list[list[float]] = []
        _pace(pages, seconds, resident, [pid for pid, _ in watched])
        elapsed = time.monotonic() - began
        after = [_cpu_seconds(pid) for pid, _ in watched]
    return [
        Cost((late - early) / elapsed, max(each[place] for each in resident))
        for place, (early, late) in enumerate(zip(before, after, strict=True))
    ]


def _pace(pages: _Pages, seconds: float, resident: list[list[float]], pids: Sequence[int] = ()) -> None:
    end = time.monotonic() + seconds
    due = time.monotonic()
    while time.monotonic() < end:
        due += 1.0
        time.sleep(max(0.0, due - time.monotonic()))
        pages.ask()
        resident.append([_resident_mib(pid) for pid in pids])


def _scrape_times(url: str, seconds: float) -> list[float]:
    times = []
    with _Pages([url]) as pages:
        pages.ask()
        for _ in range(int(seconds / SCRAPE_GAP_SECONDS)):
            time.sleep(SCRAPE_GAP_SECONDS)
            began = time.perf_counter()
            pages.ask()
            times.append(time.perf_counter() - began)
    return times


class _Pages:
    """Asks for pages as Prometheus does: over one connection each that is kept, compressed if the server likes."""

    def __init__(self, urls: Sequence[str]) -> None:
        parts = [urlsplit(url) for url in urls]
        self._pages = [(http.client.HTTPConnection(part.netloc, timeout=30.0), part.path) for part in parts]

    def ask(self) -> None:
        """Ask for each once."""
        for connection, path in self._pages:
            connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
            answer = connection.getresponse()
            if answer.status != http.client.OK or not answer.read():
                raise RuntimeError(f"{path}: {answer.status}")

    def __enter__(self) -> _Pages:
        return self

    def __exit__(self, *_: object) -> None:
        for connection, _path in self._pages:
            connection.close()


def _series(agent: AgentProcess, page_of_ours: str = "/metrics") -> int:
    return sum(bool(line) and not line.startswith("#") for line in agent.get(page_of_ours).splitlines())


def _cpu_seconds(pid: int) -> float:
    """Processor time of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES / MIB
