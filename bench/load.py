"""The agent where everybody asks at once: 50 scrapes a second, 8 screens, 8 engines that report 10 times a second.

The engines have a thousand tenants between them and are processes with real schedulers and hooks but no model
(tests/bed/node.py). Five scrapers ask ten times a second each for the page of details or for the first page, in turn,
some of them compressed; eight clients ask for the whole state twice a second, as `kvtide top` does. A time is from the
request to the last byte. An engine tells of 32 tenants and of the others together: of a thousand that makes 11,000
series on the page of details, more than twice what its time is promised for, and more than 3,000 on the first page.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.asking import Asked, Client, ask
from bench.beside import engines
from bench.rows import Row, quantile
from tests.bed.agent import AgentProcess

ENGINES, TENANTS, SERIES = 8, 1000, 5000
SCRAPERS, SCRAPE_PERIOD = 5, 0.1
SCREENS, SCREEN_PERIOD = 8, 0.5
START_SECONDS, WARM_UP_SECONDS = 180.0, 10.0
SCRAPE_MS = 25.0
TICKS = os.sysconf("SC_CLK_TCK")
PAGES = {"page": "/metrics", "detail": "/metrics/detail"}
STATE = "/api/v1/state"

_BOTH = tuple(PAGES.values())
CLIENTS = (
    *(
        Client(_BOTH, SCRAPE_PERIOD, offset=number * SCRAPE_PERIOD / SCRAPERS, compressed=bool(number % 2))
        for number in range(SCRAPERS)
    ),
    *(Client((STATE,), SCREEN_PERIOD, offset=number * SCREEN_PERIOD / SCREENS) for number in range(SCREENS)),
)


def run(quick: bool) -> list[Row]:
    """Return the rows."""
    seconds = 15.0 if quick else 60.0
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name, AgentProcess(Path(name)) as agent, _node(agent) as pids:
        series = {name: _series(agent, path) for name, path in PAGES.items()}
        if series["detail"] < SERIES:
            raise RuntimeError(f"{series['detail']} series are too few to judge a scrape by")
        frames = agent.state()["link"]["frames"]
        agents, others, began = _cpu_seconds([agent.process.pid]), _cpu_seconds(pids), time.monotonic()
        found = ask(agent.url, CLIENTS, seconds)
        elapsed = time.monotonic() - began
        agents, others = _cpu_seconds([agent.process.pid]) - agents, _cpu_seconds(pids) - others
        state = agent.state()
    link = state["link"]
    rows = [
        Row("load.scrapes", sum(each.asked for each in found[:SCRAPERS]) / seconds, "1/s"),
        Row("load.unanswered", sum(each.asked - each.answered for each in found), "requests", 0.0),
        Row("load.frames", (link["frames"] - frames) / elapsed, "1/s"),
        Row("load.dropped", sum(each["hooks"]["dropped_frames"] for each in state["engines"]), "frames"),
        Row("load.rejected", sum(link["rejected_frames"].values()), "frames"),
        Row("load.cpu", agents / elapsed, "cores"),
        Row("load.engines_cpu", others / elapsed, "cores"),
    ]
    for name, path in PAGES.items():
        times = _times(found, path)
        rows.append(Row(f"load.{name}_series", series[name], "series"))
        rows.append(Row(f"load.{name}_p50", 1e3 * quantile(times, 0.5), "ms"))
        rows.append(Row(f"load.{name}_p99", 1e3 * quantile(times, 0.99), "ms", SCRAPE_MS))
    return [*rows, Row("load.state_p99", 1e3 * quantile(_times(found, STATE), 0.99), "ms")]


def _times(found: list[Asked], path: str) -> list[float]:
    return sorted(time for each in found for time in each.times.get(path, ()))


def _series(agent: AgentProcess, path: str) -> int:
    return sum(not line.startswith("#") for line in agent.get(path).splitlines())


@contextmanager
def _node(agent: AgentProcess) -> Iterator[list[int]]:
    """Run the engines until the end of the block; all are live when it begins, and have had tenants for a while. Yield
    the pids of their processes.
    """
    tenants = str(TENANTS // ENGINES)
    with engines(agent, ENGINES, "--tenants", tenants, "--busy", seconds=START_SECONDS) as told:
        agent.wait(lambda: [each["phase"] for each in agent.engines()] == ["live"] * ENGINES, START_SECONDS)
        time.sleep(WARM_UP_SECONDS)
        yield [pid for pids in told.values() for pid in pids]


def _cpu_seconds(pids: list[int]) -> float:
    found = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in pids]
    return sum(int(user) + int(system) for user, system in found) / TICKS
