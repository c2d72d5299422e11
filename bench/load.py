"""The agent where everybody asks at once: 50 scrapes a second, 8 screens, 8 engines that report 10 times a second.

The engines have a thousand tenants between them and are processes with real schedulers and hooks but no model
(tests/bed/node.py). Five scrapers ask ten times a second each for the page of details, which has more than 5,000
series, or for the first page, in turn, some of them compressed; eight clients ask for the whole state twice a second,
as `kvtide top` does. A time is from the request to the last byte.
"""

from __future__ import annotations

import http.client
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench.beside import engines
from bench.rows import Row, quantile
from tests.bed.agent import AgentProcess

ROOT = Path(__file__).parents[1]
ENGINES, TENANTS, SERIES = 8, 1000, 5000
SCRAPERS, SCRAPE_PERIOD = 5, 0.1
SCREENS, SCREEN_PERIOD = 8, 0.5
START_SECONDS, WARM_UP_SECONDS = 90.0, 10.0
SCRAPE_MS = 25.0
TICKS = os.sysconf("SC_CLK_TCK")
PAGES = {"page": "/metrics", "detail": "/metrics/detail"}


class Asking:
    """One client that asks for ``path`` again and again over one connection. ``times``: seconds, of each answer."""

    def __init__(self, url: str, paths: Sequence[str], period: float, *, compressed: bool) -> None:
        self.times: dict[str, list[float]] = {path: [] for path in paths}
        self.asked = self.answered = 0
        self._address, self._paths, self._period = urlsplit(url).netloc, paths, period
        self._headers = {"Accept-Encoding": "gzip"} if compressed else {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=30.0)
        due = time.monotonic()
        while not self._stop.is_set():
            path = self._paths[self.asked % len(self._paths)]
            self.asked += 1
            began = time.perf_counter()
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            if answer.read() and answer.status == http.client.OK:
                self.answered += 1
            self.times[path].append(time.perf_counter() - began)
            due = max(due + self._period, time.monotonic())
            self._stop.wait(due - time.monotonic())
        connection.close()

    def __enter__(self) -> Asking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def run(quick: bool) -> list[Row]:
    """Return the rows."""
    seconds = 15.0 if quick else 60.0
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name, AgentProcess(Path(name)) as agent, _node(agent):
        series = sum(not line.startswith("#") for line in agent.get(PAGES["detail"]).splitlines())
        if series < SERIES:
            raise RuntimeError(f"{series} series are too few to judge a scrape by")
        cpu, began = _cpu_seconds(agent.process.pid), time.monotonic()
        scrapers, screens = _asked(agent.url, seconds)
        cpu = (_cpu_seconds(agent.process.pid) - cpu) / (time.monotonic() - began)
        state = agent.state()
    asked = sum(each.asked for each in (*scrapers, *screens))
    unanswered = asked - sum(each.answered for each in (*scrapers, *screens))
    rows = [
        Row("load.scrapes", sum(each.asked for each in scrapers) / seconds, "1/s"),
        Row("load.unanswered", unanswered, "requests", 0.0),
        Row("load.series", series, "series"),
        Row("load.dropped", sum(each["hooks"]["dropped_frames"] for each in state["engines"]), "frames"),
        Row("load.rejected", sum(state["link"]["rejected_frames"].values()), "frames"),
        Row("load.cpu", cpu, "cores"),
    ]
    for name, path in PAGES.items():
        times = sorted(time for each in scrapers for time in each.times[path])
        rows.append(Row(f"load.{name}_p50", 1e3 * quantile(times, 0.5), "ms"))
        rows.append(Row(f"load.{name}_p99", 1e3 * quantile(times, 0.99), "ms", SCRAPE_MS))
    times = sorted(time for each in screens for kept in each.times.values() for time in kept)
    return [*rows, Row("load.state_p99", 1e3 * quantile(times, 0.99), "ms")]


def _asked(url: str, seconds: float) -> tuple[list[Asking], list[Asking]]:
    """Have scrapers and screens ask for so long."""
    paths = tuple(PAGES.values())
    scrapers = [Asking(url, paths, SCRAPE_PERIOD, compressed=bool(number % 2)) for number in range(SCRAPERS)]
    screens = [Asking(url, ("/api/v1/state",), SCREEN_PERIOD, compressed=False) for _ in range(SCREENS)]
    for each in (*scrapers, *screens):
        each.__enter__()
    try:
        time.sleep(seconds)
    finally:
        for each in (*scrapers, *screens):
            each.__exit__()
    return scrapers, screens


@contextmanager
def _node(agent: AgentProcess) -> Iterator[None]:
    """Run the engines until the end of the block; all are live when it begins, and have had tenants for a while."""
    tenants = str(TENANTS // ENGINES)
    with engines(agent, ENGINES, "--tenants", tenants, "--busy", seconds=START_SECONDS):
        agent.wait(lambda: [each["phase"] for each in agent.engines()] == ["live"] * ENGINES, START_SECONDS)
        time.sleep(WARM_UP_SECONDS)
        yield


def _cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS
