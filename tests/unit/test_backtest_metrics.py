"""Our own metrics turned back into the states that they were made from, and what Prometheus does to them on the way."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from agent.backtest.prometheus import feed as feeds
from agent.backtest.prometheus import names
from agent.backtest.prometheus.chunk import Target
from agent.backtest.prometheus.client import Prometheus
from agent.backtest.prometheus.errors import PrometheusError
from agent.backtest.prometheus.feed import Asked, Metrics, PrometheusFeed
from agent.backtest.prometheus.moment import Line, Lines, Moment
from agent.backtest.run import Named, run
from agent.backtest.span import Span
from agent.errors import ConfigError
from agent.oom.log import FailureCount
from agent.policy.types import DEFAULT, TEXTBOOK
from agent.sources.device.state import Xid
from agent.sources.scrape.families import reading_of
from agent.sources.scrape.page import PageReader
from agent.sources.scrape.reporters import Reporters
from agent.state import AgentState, EngineState
from exporters.catalogue import CATALOGUE
from tests.bed import pages
from tests.bed.histories import as_pages, page_samples, samples_of
from tests.bed.prometheus import Sample
from tests.unit import stub_prometheus
from tests.unit.builders import make_engine, make_silent, make_state
from tests.unit.node_builders import make_devices, make_gpu
from tests.unit.stub_prometheus import Answer, Question, StubPrometheus, matrix, of_samples

T = 1_700_001_000.0
STEP = 15.0
WANTED = re.compile("|".join(f"{names.PREFIX}({subject.pattern})" for subject in names.SUBJECTS))


def read(
    samples: Iterable[Sample], *, steps: int, metrics: Metrics = "auto", step: float = STEP
) -> tuple[list[tuple[str, AgentState]], tuple[str, ...]]:
    """Return the states and the remarks that a Prometheus with ``samples`` gives."""
    with StubPrometheus(of_samples(samples)) as stub:
        prometheus = Prometheus(stub.url)
        feed = PrometheusFeed(prometheus, Asked(Span(T, T + (steps - 1) * step), step, metrics=metrics))
        states = list(feed.records())
        prometheus.close()
    return states, feed.remarks()


def at(number: float, *engines: EngineState, **changes: Any) -> AgentState:
    return make_state(*engines, at=T + number * STEP, monotonic=T + number * STEP, **changes)


def one(**changes: Any) -> EngineState:
    return make_engine(verdicts=(), **changes)


def bare(number: float, **changes: Any) -> AgentState:
    """A state with one engine and little else."""
    nothing: dict[str, Any] = {"device": None, "host": None, "scrape": None, "processes": (), "waterfalls": ()}
    engine = one(detail=None, hooks=None, members=(), **changes)
    return at(number, engine, failure_counts=(), sources=(), driver_calls=None, **nothing)


def test_what_is_asked_for_is_in_the_catalogue() -> None:
    exported = {
        f"{metric.name}{ending}"
        for metric in CATALOGUE
        for ending in (("_bucket", "_sum") if metric.type == "histogram" else ("",))
    }
    for subject in names.SUBJECTS:
        # Each alternative of the pattern must match something; a name that was misspelt would ask for nothing.
        for choice in _choices(subject.pattern):
            pattern = re.compile(f"{names.PREFIX}({choice})")
            assert any(pattern.fullmatch(name) for name in exported), f"{subject.name}: {choice}"
    for name in (names.ENGINE, names.SCRAPED, names.GPU, names.AGENT):
        assert name in exported


def _choices(pattern: str) -> Iterator[str]:
    """Yield a pattern for each way through the groups of ``pattern``."""
    inner = re.search(r"\(([^()]*)\)", pattern)
    if inner is None:
        yield from pattern.split("|")
        return
    for choice in inner[1].split("|"):
        yield from _choices(pattern[: inner.start()] + choice.replace("|", "") + pattern[inner.end() :])


def test_a_state_comes_back_as_its_metrics_say() -> None:
    state = at(0, make_engine(), make_silent())
    ((name, back),), remarks = read(samples_of(state), steps=1)
    assert (name, remarks) == ("kvtide node1:9477", ())
    assert (back.at, back.monotonic) == (T, T)
    before = {key: value for key, value in as_pages(samples_of(state)).items() if WANTED.fullmatch(key[0])}
    after = as_pages(samples_of(back))
    # What a metric does not have can't come back; whose number was passed over is no matter of the engines.
    lost = {"kvtide_kv_group_block_tokens", "kvtide_scraped_engines_left_out", "kvtide_scraped_servers_passed_over"}
    assert {key: after.get(key) for key in before if key[0] not in lost} == {
        key: value for key, value in before.items() if key[0] not in lost
    }
    assert len(before) > 250
    made_up = {key[0] for key in after.keys() - as_pages(samples_of(state)).keys()}
    assert made_up == set()
    live, silent = back.engines
    assert (live.engine, live.phase, silent.engine, silent.phase) == ("m", "live", "quiet", "silent")
    assert (silent.pool, silent.detail, silent.running) == (None, None, None)


def test_only_what_is_there_has_a_value() -> None:
    ((_, back),), _ = read(samples_of(bare(0, pool=None, running=None)), steps=1)
    assert (back.device, back.host, back.scrape, back.waterfalls, back.processes) == (None, None, None, (), ())
    (engine,) = back.engines
    assert engine.pool is None
    assert engine.running is None
    assert engine.detail is not None
    assert {engine.detail.allocation, engine.detail.work, engine.detail.tenants, engine.detail.waiting} == {None}
    assert "encoder" in engine.detail.unsupported


def test_a_gap_has_no_state_though_the_last_value_is_carried_on() -> None:
    samples = [each for number in (0, 1, 2, 10, 11) for each in samples_of(bare(number))]
    states, _ = read(samples, steps=12)
    assert [state.at for _, state in states] == [T + number * STEP for number in (0, 1, 2, 10, 11)]


def test_an_engine_that_is_gone_is_in_no_state_though_its_last_values_are_carried_on() -> None:
    two, alone = (one(engine="a"), one(engine="b")), (one(engine="a"),)
    samples = [each for number in range(6) for each in samples_of(at(number, *(two if number < 3 else alone)))]
    states, _ = read(samples, steps=6)
    assert [len(state.engines) for _, state in states] == [2, 2, 2, 1, 1, 1]
    # The same for GPUs.
    cards = (make_gpu("0"), make_gpu("1"))
    samples = [
        each
        for number in range(6)
        for each in samples_of(at(number, one(), device=make_devices(*cards[: 2 if number < 3 else 1])))
    ]
    states, _ = read(samples, steps=6)
    assert [len(state.device.gpus) for _, state in states if state.device] == [2, 2, 2, 1, 1, 1]


def test_a_step_shorter_than_the_scrapes_makes_nothing_up() -> None:
    samples = [each for number in range(4) for each in samples_of(at(number, one(steps=number)))]
    states, _ = read(samples, steps=16, step=STEP / 4)
    assert [state.engines[0].steps for _, state in states] == [0, 1, 2, 3]
    # And one that is longer leaves states out, with their own times.
    states, _ = read(samples, steps=2, step=2.5 * STEP)
    assert [state.at for _, state in states] == [T, T + 2 * STEP]


def test_a_counter_that_begins_again_is_a_restart() -> None:
    steps = [100, 200, 50, 60]
    samples = [each for number, count in enumerate(steps) for each in samples_of(at(number, one(steps=count)))]
    states, _ = read(samples, steps=4)
    instances = [state.engines[0].instance for _, state in states]
    assert instances[0] == instances[1] != instances[2] == instances[3]
    # A start time that has changed is one, too, whatever the counters do.
    starts = [1.0, 1.0, 2.0]
    samples = [each for number, start in enumerate(starts) for each in samples_of(at(number, one(started_at=start)))]
    states, _ = read(samples, steps=3)
    instances = [state.engines[0].instance for _, state in states]
    assert instances[0] == instances[1] != instances[2]


def test_a_silent_engine_has_an_age() -> None:
    engines = [one(), make_silent(engine="m"), make_silent(engine="m")]
    samples = [each for number, engine in enumerate(engines) for each in samples_of(at(number, engine))]
    states, _ = read(samples, steps=3)
    assert [state.engines[0].report_age_seconds for _, state in states] == [0.0, STEP, 2 * STEP]


def test_failures_and_errors_have_the_time_at_which_they_were_counted() -> None:
    def state(number: int, count: int) -> AgentState:
        failed = FailureCount(engine="m", process="", kind="oom", cause="fragmented", count=count)
        xids = (Xid(code=31, count=count, last_at=0.0),)
        return at(number, one(), failure_counts=(failed,), failures=(), device=make_devices(make_gpu("0", xids=xids)))

    samples = [each for number, count in enumerate((3, 3, 4, 4)) for each in samples_of(state(number, count))]
    states, _ = read(samples, steps=4)
    assert [len(each.failures) for _, each in states] == [0, 0, 1, 1]  # what was counted before is of no known time
    (failure,) = states[-1][1].failures
    assert (failure.engine, failure.event.at, failure.event.kind) == ("m", T + 2 * STEP, "oom")
    assert failure.judgement is not None
    assert failure.judgement.cause == "fragmented"
    times = [each.device.gpus[0].xids[0].last_at for _, each in states if each.device and each.device.gpus[0].xids]
    assert times == [0.0, 0.0, T + 2 * STEP, T + 2 * STEP]


@pytest.mark.parametrize("dialect", pages.DIALECTS)
def test_the_page_of_an_engine_is_read_by_the_names_of_its_version(dialect: str) -> None:
    """As the agent reads it itself: vLLM 0.8 to 0.33, Ray's exporter, SGLang."""
    text = pages.page(dialect, pages.Load())
    samples = page_samples(text, T, job="engines", instance="gpu1:8000")
    ((name, state),), remarks = read(samples, steps=1)
    assert (name, remarks) == ("engines gpu1:8000", ())
    assert state.scrape is not None
    (engine,) = state.scrape.engines
    (row,) = PageReader().read(text).rows.items()
    direct = reading_of(row[0].kind, Reporters().choose(row[0].kind, row[1], 0.0))
    assert (engine.phase, engine.model, engine.kind) == ("up", row[0].model, row[0].kind)
    assert engine.usage_ratio == direct.usage == 0.25
    said = ("running", "waiting", "swapped", "preemptions", "prompt_tokens", "generation_tokens", "prefix_hits")
    assert [getattr(engine, name) for name in said] == [getattr(direct, name) for name in said]
    assert (engine.running, engine.waiting) == (3, 2)
    if row[1].info:
        assert engine.capacity_blocks in (1000, 1001)


def test_labels_and_impossible_values_of_a_page() -> None:
    text = 'vllm:num_requests_running{model_name="a\\"b\\n"} 3\nvllm:kv_cache_usage_perc{model_name="a\\"b\\n"} 1.5\n'
    ((_, state),), _ = read(page_samples(text, T, job="j", instance="i"), steps=1)
    assert state.scrape is not None
    (engine,) = state.scrape.engines
    assert (engine.model, engine.usage_ratio, engine.bad_values) == ('a"b\n', None, {"above_one": 1})


def page(number: int, instance: str, tokens: int) -> Iterator[Sample]:
    text = f'vllm:num_requests_running{{model_name="m"}} 3\nvllm:generation_tokens_total{{model_name="m"}} {tokens}\n'
    return page_samples(text, T + number * STEP, job="vllm", instance=instance)


def test_counters_of_a_page_that_begin_again_are_a_restart() -> None:
    samples = [each for number, tokens in enumerate((5, 9, 2)) for each in page(number, "gpu1:8000", tokens)]
    states, _ = read(samples, steps=3)
    assert [state.scrape.engines[0].resets for _, state in states if state.scrape] == [0, 0, 1]


def test_a_host_whose_agent_tells_of_engines_is_not_read_twice() -> None:
    samples = [*samples_of(at(0, one()), instance="gpu1:9477"), *page(0, "gpu1:8000", 5), *page(0, "gpu2:8000", 5)]
    states, remarks = read(samples, steps=1)
    assert [name for name, _ in states] == ["kvtide gpu1:9477", "vllm gpu2:8000"]
    assert len(remarks) == 1
    assert remarks[0].startswith("1 page of engines left out: ")
    assert [name for name, _ in read(samples, steps=1, metrics="engines")[0]] == ["vllm gpu1:8000", "vllm gpu2:8000"]
    assert [name for name, _ in read(samples, steps=1, metrics="kvtide")[0]] == ["kvtide gpu1:9477"]
    # An agent that tells of no engine takes none away.
    idle = replace(at(0, one(), scrape=None), engines=())
    samples = [*samples_of(idle, instance="gpu1:9477"), *page(0, "gpu1:8000", 5)]
    assert [name for name, _ in read(samples, steps=1)[0]] == ["kvtide gpu1:9477", "vllm gpu1:8000"]


def test_nothing_there_is_said() -> None:
    for metrics, told in (("auto", "neither kvtide nor of an engine"), ("kvtide", "kvtide"), ("engines", "an engine")):
        states, remarks = read([], steps=3, metrics=metrics)  # type: ignore[arg-type]
        assert states == []
        assert len(remarks) == 1
        assert f"no metric of {told} in this range" in remarks[0]


def test_a_long_range_is_asked_for_in_parts_and_every_state_comes_once() -> None:
    numbers = range(0, 600, 7)
    samples = [each for number in numbers for each in samples_of(bare(number, steps=number))]
    asked: list[Question] = []
    answer = of_samples(samples)

    def listen(question: Question) -> Answer:
        asked.append(question)
        return answer(question)

    with StubPrometheus(listen) as stub:
        prometheus = Prometheus(stub.url)
        feed = PrometheusFeed(prometheus, Asked(Span(T, T + 599 * STEP), STEP, metrics="kvtide"))
        ats = [state.at for _, state in feed.records()]
        prometheus.close()
    assert ats == [T + number * STEP for number in numbers]
    assert max(question.points for question in asked) == feeds.POINTS
    assert len({question.start for question in asked}) == 3


def test_an_answer_that_is_too_large_is_asked_for_in_smaller_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [each for number in range(40) for each in samples_of(bare(number, steps=number))]
    monkeypatch.setattr("agent.backtest.prometheus.client.MAX_BYTES", 10_000)
    states, _ = read(samples, steps=40)
    assert [state.engines[0].steps for _, state in states] == list(range(40))
    with StubPrometheus(lambda _: Answer(b" " * 20_000)) as stub:
        prometheus = Prometheus(stub.url)
        with pytest.raises(PrometheusError, match="even of one moment: narrow it with --select"):
            list(PrometheusFeed(prometheus, Asked(Span(T, T + 60), 15.0)).records())
        prometheus.close()


def test_too_many_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match="choose a longer --step"):
        PrometheusFeed(Prometheus("http://a"), Asked(Span(0.0, 1e9), 0.1))


def test_a_hostile_answer_ends_in_nothing_or_in_one_line() -> None:
    """Numbers that are none, times that can't be, labels that are lacking: whatever comes of it, it is no crash."""
    values = [[T, "NaN"], [T + 15, "+Inf"], [T + 30, "one"], [T + 45, "-5"], [T + 60, "1e300"], [1e18, "1"], [-5, "1"]]

    def answer(question: Question) -> Answer:
        found = [name for name in WANTED_NAMES if re.search(re.escape(name), question.query) or name == names.ENGINE]
        times = [[T + number * 15, repr(T + number * 15)] for number in range(5)]
        labels = {"engine": "m", "gpu": "0/x", "le": "x", "rank": "\u0661", "role": "worker", "device": "cuda:x"}
        if "timestamp" in question.query:
            return matrix({"metric": labels, "values": times}, {"metric": {}, "values": times + values})
        return matrix(
            *({"metric": {"__name__": name} | labels, "values": values} for name in found),
            *({"metric": {"__name__": name}, "values": times} for name in found),
            {"metric": {}, "values": values},
        )

    with StubPrometheus(answer) as stub:
        prometheus = Prometheus(stub.url)
        feed = PrometheusFeed(prometheus, Asked(Span(T, T + 60), 15.0))
        result = run([Named("default", DEFAULT), Named("textbook", TEXTBOOK)], [feed])
        prometheus.close()
    assert result.histories


WANTED_NAMES = sorted(metric.name for metric in CATALOGUE if WANTED.fullmatch(metric.name))


def moment(*rows: tuple[str, dict[str, str], float]) -> Moment:
    return Lines((name, Line(labels, {0: value})) for name, labels, value in rows).at(0)


def test_numbers_that_can_not_be_are_not_there() -> None:
    rows = [("x", {"k": str(number)}, value) for number, value in enumerate((math.nan, math.inf, -1.0, 1e300, 7.0))]
    found = moment(*rows)
    assert [found.count("x", k=str(number)) for number in range(5)] == [None, None, None, None, 7]
    assert [found.number("x", k=str(number)) for number in range(5)] == [None, None, -1.0, 1e300, 7.0]
    assert found.by("k", "x") == {"4": 7}
    assert (found.count("x"), found.count("y"), found.count("x", k="9")) == (None, None, None)


@pytest.mark.parametrize(
    ("buckets", "total", "counts"),
    [
        ({"0.1": 5, "1.0": 8, "+Inf": 10}, 7.5, (5, 3, 2)),
        ({"+Inf": 10, "0.1": 5}, 7.5, (5, 5)),
        ({"0.1": 5, "1.0": 8}, 7.5, None),
        ({"0.1": 5, "+Inf": 4}, 7.5, None),
        ({"0.1": -5, "+Inf": 4}, 7.5, None),
        ({"0.1": math.nan, "+Inf": 4}, 7.5, None),
        ({"x": 1, "+Inf": 4}, 7.5, None),
        ({"+Inf": 10}, None, None),
        ({}, 7.5, None),
    ],
)
def test_a_histogram_is_whole_or_not_there(
    buckets: dict[str, float], total: float | None, counts: tuple[int, ...] | None
) -> None:
    rows = [("x_bucket", {"le": bound}, value) for bound, value in buckets.items()]
    found = moment(*rows, *([("x_sum", {}, total)] if total is not None else [])).histogram("x")
    assert (None if found is None else found.counts) == counts


def test_names_of_targets() -> None:
    assert Target("agent", "j", "h:1").name == "j h:1"
    assert Target("agent", "", "").name == "prometheus"
    assert (Target("agent", "j", "h:1").host, Target("agent", "j", "h").host) == ("h", "h")
    assert Target("agent", "j", "[::1]:1").host == "[::1]"
    assert stub_prometheus.LOOK_BACK > 10 * STEP  # the tests above are of values that are carried on
