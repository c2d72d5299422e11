"""``kvtide backtest`` against a real Prometheus says what the same states say directly, and makes nothing of gaps."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from agent.backtest.prometheus.client import Prometheus
from agent.backtest.prometheus.feed import Asked, PrometheusFeed
from agent.backtest.result import Backtest, Episode
from agent.backtest.run import Named, run
from agent.backtest.span import Span
from agent.policy.types import DEFAULT, TEXTBOOK
from agent.state import AgentState
from exporters.exposition import Exposition
from tests.bed.agent import KVTIDE
from tests.bed.histories import page_samples, samples_of
from tests.bed.prometheus import PrometheusServer, Sample, write_history
from tests.unit.builders import make_detail, make_engine, make_pool, make_state, make_worker
from tests.unit.details import make_allocation, make_waiting
from tests.unit.node_builders import make_devices, make_gpu

STEP = 15.0
STEPS = 480  # two hours
GAP = range(200, 240)  # ten minutes in which nobody scraped
RESTART = 420
CAPACITY = 1000
INTERVAL, SLACK = 0.4, 0.5  # of live scrapes, each of which may take as long; and a step of what is asked for


def states(began: float) -> Iterator[AgentState]:
    """A busy engine, 20 min later a leak that takes all by and by, a gap, refusals, and a restart that ends it."""
    for number in range(STEPS):
        if number in GAP:
            continue
        anew = number >= RESTART
        age = number - RESTART if anew else number
        leaked = 0 if anew else min(480, max(0, number - 80) * 2)
        held = 400 + 100 * (number % 8) // 7 + leaked
        detail = replace(
            make_detail(),
            pools=None,
            pins=None,
            delayed=None,
            leaks=None,
            waiting=make_waiting(stalled_seconds=None, stalled_by="", idle_steps=0),
            tenants=None,
            speculation=None,
            allocation=make_allocation(
                refused_total=0 if anew else max(0, number - 300) * 3, preempted_total=age // 100, most_retries=0
            ),
        )
        engine = make_engine(
            pool=make_pool(
                capacity=CAPACITY,
                held=held,
                held_max=held,
                empty=CAPACITY - held,
                cached_idle=0,
                orphaned=leaked,
                over_freed=0,
                delayed=0,
                deferred=0,
                pinned=0,
            ),
            instance="i2" if anew else "i1",
            engine_id="e2" if anew else "e1",
            started_at=began + (RESTART * STEP if anew else -3600.0),
            steps=10 + 100 * age,
            verdicts=(),
            hooks=None,
            detail=detail,
            members=(make_worker(allocator=None),),
            workers_expected=1,
            frontends_expected=0,
        )
        at = began + number * STEP
        yield make_state(
            engine,
            at=at,
            monotonic=at,
            started_at=began - 3600.0,
            device=make_devices(make_gpu("0", xids=(), remapped_rows=None)),
            host=None,
            scrape=None,
            driver_calls=None,
            processes=(),
            failures=(),
            failure_counts=(),
            waterfalls=(),
        )


class Directly:
    """The states as they are."""

    def __init__(self, began: float) -> None:
        self._began = began

    def records(self) -> Iterator[tuple[str, AgentState]]:
        for state in states(self._began):
            yield "kvtide node1:9477", state

    def labels(self) -> None:
        return None

    def remarks(self) -> tuple[str, ...]:
        return ()


def pages(began: float) -> Iterator[Sample]:
    """The page of an engine without hooks, by vLLM 0.8's names: its pool fills, work waits and is preempted."""
    for number in range(STEPS):
        if number in GAP:
            continue
        use = min(1.0, 0.3 + number / 400)
        text = f"""vllm:num_requests_running{{model_name="q"}} 8
vllm:num_requests_waiting{{model_name="q"}} {20 if use == 1.0 else 0}
vllm:gpu_cache_usage_perc{{model_name="q"}} {use}
vllm:num_preemptions_total{{model_name="q"}} {max(0, number - 300)}
vllm:generation_tokens_total{{model_name="q"}} {1000 * number}
vllm:cache_config_info{{block_size="16",num_gpu_blocks="1001"}} 1
"""
        yield from page_samples(text, began + number * STEP, job="vllm", instance="node2:8000")


@pytest.fixture(scope="module")
def began() -> float:
    """Whole steps, three hours ago: what is in blocks must not be of now."""
    return (time.time() - 3 * 3600) // STEP * STEP


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, began: float) -> Iterator[PrometheusServer]:
    folder = tmp_path_factory.mktemp("prometheus")
    write_history(folder, (each for state in states(began) for each in samples_of(state)))
    write_history(folder, pages(began))
    with PrometheusServer(folder) as running:
        yield running


def backtest(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(KVTIDE), "backtest", *arguments], capture_output=True, text=True, timeout=600, check=False
    )


def times(episode: Episode) -> tuple[Any, ...]:
    ended = None if episode.resolved_at is None else round(episode.resolved_at, 2)
    harm = None if episode.harm is None else (episode.harm.what, round(episode.harm.at, 2))
    return (
        episode.kind,
        episode.subject,
        episode.tier,
        round(episode.suspected_at, 2),
        round(episode.confirmed_at, 2),
        ended,
        episode.ending,
        harm,
    )


def test_it_says_what_the_states_say(server: PrometheusServer, began: float) -> None:
    direct = run([Named("default", DEFAULT), Named("textbook", TEXTBOOK)], [Directly(began)])
    answer = backtest(
        "--policy",
        "default",
        "--against",
        "textbook",
        "--from",
        server.url,
        "--range",
        f"{began - 600}..{began + STEPS * STEP + 900}",
        "--metrics",
        "kvtide",
        "--json",
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    result = msgspec.json.decode(answer.stdout, type=Backtest)
    (history,), (expected,) = result.histories, direct.histories
    assert (history.name, history.states, history.gaps) == (expected.name, STEPS - len(GAP), 1)
    assert (history.began, history.ended) == (expected.began, expected.ended)
    assert history.harm == expected.harm
    assert {"refused", "preempted"} <= history.harm.keys()
    for here, there in zip(history.outcomes, expected.outcomes, strict=True):
        assert [times(each) for each in here.episodes] == [times(each) for each in there.episodes]
    kinds = {each.kind for each in history.outcomes[0].episodes}
    assert "kv_orphan" in kinds
    leak = next(each for each in history.outcomes[0].episodes if each.kind == "kv_orphan")
    assert leak.resolved_at is not None
    assert leak.lead_seconds is not None
    assert leak.lead_seconds > 0


def test_engines_without_an_agent_are_read_by_their_own_pages(server: PrometheusServer, began: float) -> None:
    span = f"{began}..{began + STEPS * STEP}"
    answer = backtest("--from", server.url, "--range", span, "--select", 'job="vllm"', "--json")
    assert (answer.returncode, answer.stderr) == (0, "")
    (history,) = msgspec.json.decode(answer.stdout, type=Backtest).histories
    assert (history.name, history.engines, history.gaps) == ("vllm node2:8000", ("q",), 1)
    assert history.states == STEPS - len(GAP)
    assert "kv_pressure" in {each.kind for each in history.outcomes[0].episodes}
    # All targets at once: the agent of node1 and the page of node2.
    both = msgspec.json.decode(backtest("--from", server.url, "--range", span, "--json").stdout, type=Backtest)
    assert [each.name for each in both.histories] == ["kvtide node1:9477", "vllm node2:8000"]


def test_people_can_read_it(server: PrometheusServer, began: float) -> None:
    answer = backtest("--from", server.url, "--range", f"{began}..{began + STEPS * STEP}", "--against", "textbook")
    assert answer.returncode == 0
    assert "Only by textbook" in answer.stdout
    assert "pages a day, from" in answer.stdout
    assert "kv_orphan m" in answer.stdout


def test_a_range_with_nothing_in_it(server: PrometheusServer, began: float) -> None:
    answer = backtest("--from", server.url, "--range", f"{began - 9000}..{began - 6000}")
    assert answer.returncode == 0
    assert "There was nothing to judge." in answer.stdout
    assert "no metric of" in answer.stdout


def test_prometheus_own_complaints_are_one_line(server: PrometheusServer) -> None:
    answer = backtest("--from", server.url, "--select", "job=")
    assert (answer.returncode, answer.stdout) == (1, "")
    (line,) = answer.stderr.splitlines()
    assert "it refuses: bad_data: " in line


class Page:
    """A page that Prometheus scrapes; None makes it fail. ``asked``: when it was, in Unix seconds."""

    def __init__(self) -> None:
        self.state: AgentState | None = None
        self.asked: list[float] = []
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                state = page.state
                page.asked.append(time.time())
                body = b"" if state is None else Exposition().render(state, compressed=False)
                self.send_response(200 if body else 503)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_what_was_scraped_live_has_no_engine_that_was_not_there(tmp_path: Path) -> None:
    """Two engines; one goes, then the page fails, then one is back: no state has what was not on the page."""
    page = Page()
    seen: list[tuple[float, float, set[str] | None]] = []

    def show(names: set[str] | None) -> None:
        engines = [make_engine(engine=name, engine_id=name, verdicts=()) for name in sorted(names or ())]
        page.state = None if names is None else make_state(*engines)

    def during(names: set[str] | None) -> None:
        """Show these for a while, and until they were asked for some times in the middle of it."""
        began = time.time()
        show(names)
        time.sleep(2.0)
        while sum(began + SLACK < at < time.time() - SLACK for at in page.asked) < 3:
            assert time.time() < began + 120.0, "nobody asks for the page any more"
            time.sleep(INTERVAL)
        seen.append((began, time.time(), names))

    try:
        with PrometheusServer(tmp_path, targets=[page.address], interval=INTERVAL) as server:
            show({"a", "b"})
            server.wait_scraped()
            during({"a", "b"})
            during({"a"})
            during(None)
            during({"b"})
            asked = Asked(Span(seen[0][0], seen[-1][1]), 0.1)
            feed = PrometheusFeed(Prometheus(server.url), asked)
            found = [(state.at, {engine.engine for engine in state.engines}) for _, state in feed.records()]
    finally:
        page.close()
    ats = [at for at, _ in found]
    assert ats == sorted(set(ats))
    for began, ended, names in seen:
        # What was asked for shortly before a change may be from before it, or from after it.
        inside = [engines for at, engines in found if began + SLACK < at < ended - SLACK]
        assert all(engines == names for engines in inside), (names, inside)
        assert bool(inside) == (names is not None)
