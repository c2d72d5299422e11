"""The source as a whole, over real servers on loopback; its settings and labels."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from agent.config import load
from agent.errors import ConfigError
from agent.sources.config import ScrapeConfig, SourcesConfig
from agent.sources.registry import sources_of
from agent.sources.scrape.labels import Labels, Wanted
from agent.sources.scrape.source import ScrapeSource
from agent.sources.scrape.state import ScrapedEngine, ScrapedState
from tests.bed.net import free_port
from tests.bed.pages import Load, Reply, page, serving
from tests.unit.support import eventually


@pytest.fixture
def start() -> Iterator[Callable[..., ScrapeSource]]:
    """Start a source on these servers, ten scrapes a second; all end after the test."""
    started: list[ScrapeSource] = []

    def begin(*engines: dict[str, object], **changes: object) -> ScrapeSource:
        config = ScrapeConfig(engines=engines, period_seconds=0.5, **changes)
        started.append(ScrapeSource(config))
        return started[-1]

    yield begin
    for source in started:
        source.close()


def engine(source: ScrapeSource, label: str) -> ScrapedEngine:
    found = [each for each in source.read().engines if each.engine == label]
    return found[0] if found else pytest.fail(f"no {label} among {[each.engine for each in source.read().engines]}")


def engines(state: ScrapedState) -> dict[str, str]:
    return {each.engine: each.phase for each in state.engines}


# -- attach -----------------------------------------------------------------------------------------------


def test_an_engine_is_followed_as_its_page_changes(start: Callable[..., ScrapeSource]) -> None:
    with serving(page(load=Load(usage=0.25))) as server:
        source = start({"url": server.url, "name": "a"})
        eventually(lambda: engine(source, "a").phase == "up")
        found = engine(source, "a")
        assert (found.usage_ratio, found.running, found.waiting, found.preemptions) == (0.25, 3, 2, 5)
        assert (found.capacity_blocks, found.held_blocks, found.held_tokens) == (1000, 250, 4000)
        assert (found.model, found.index, found.kind, found.found, found.pid) == (
            "org/model",
            "0",
            "vllm",
            "config",
            None,
        )
        assert "tenants, sessions and requests" in found.cannot
        assert not found.impossible
        assert found.cache_dtype == "auto"
        server.answer = lambda _: Reply(page(load=Load(usage=0.97)))
        eventually(lambda: engine(source, "a").usage_ratio == 0.97)


def test_one_that_is_down_costs_the_other_nothing_and_comes_back(start: Callable[..., ScrapeSource]) -> None:
    with serving(page()) as fine, serving(page()) as broken:
        source = start({"url": fine.url, "name": "fine"}, {"url": broken.url, "name": "broken"}, timeout_seconds=0.5)
        eventually(lambda: engines(source.read()) == {"fine": "up", "broken": "up"})

        def hang(_: str) -> Reply:
            broken.let_go.wait(30)
            return Reply(page())

        broken.answer = hang
        eventually(lambda: engine(source, "broken").phase == "down")
        found = engine(source, "broken")
        assert found.reason == "no whole page within 0.5 s"
        assert found.usage_ratio is None, "never the last value for ever"
        assert found.running is None
        before = engine(source, "fine").scrapes
        eventually(lambda: engine(source, "fine").scrapes > before + 1)
        assert engine(source, "fine").failures == 0
        broken.let_go.set()
        eventually(lambda: engine(source, "broken").phase == "up")


def test_phases_and_reasons(start: Callable[..., ScrapeSource]) -> None:
    port = free_port()
    with serving("<html>\n") as html, serving(lambda _: Reply("no", status=401)) as closed:
        source = start({"url": html.url}, {"url": closed.url}, {"url": f"http://127.0.0.1:{port}"})
        eventually(lambda: all(each.reason != "not read yet" for each in source.read().engines))
        assert {each.engine: (each.phase, each.reason) for each in source.read().engines} == {
            "engine-1": ("bad_page", "it is a page for people (HTML), not one of metrics"),
            "engine-2": ("down", "HTTP 401: it wants a token: see bearer_token_file"),
            "engine-3": ("down", f"nobody listens at 127.0.0.1:{port}"),
        }


def test_labels_are_models_ranks_and_unique(start: Callable[..., ScrapeSource]) -> None:
    two_ranks = page(engine="0", model_name="m") + page(engine="1", model_name="m")
    kept = "\n".join(each for each in two_ranks.splitlines() if "org/model" not in each) + "\n"
    with serving(kept) as ranked, serving(page()) as one, serving(page()) as other:
        source = start({"url": ranked.url}, {"url": one.url}, {"url": other.url})
        eventually(lambda: "down" not in engines(source.read()).values())
        assert set(engines(source.read())) == {"m-dp0", "m-dp1", "org/model", "org/model~2"}


def test_values_that_cannot_be_are_counted_by_reason(start: Callable[..., ScrapeSource]) -> None:
    text = page().replace(
        'kv_cache_usage_perc{engine="0",model_name="org/model"} 0.25',
        'kv_cache_usage_perc{engine="0",model_name="org/model"} -0.38',
    )
    assert "-0.38" in text
    with serving(text) as server:
        source = start({"url": server.url, "name": "a"})
        eventually(lambda: engine(source, "a").bad_values.get("negative", 0) >= 2)
        found = engine(source, "a")
        assert (found.phase, found.usage_ratio, found.running) == ("up", None, 3)
        assert "kv_cache_usage_perc = -0.38, which can't be" in found.impossible


def test_a_page_from_a_cache_is_stale(start: Callable[..., ScrapeSource]) -> None:
    with serving(lambda _: Reply(page(), headers={"Age": "90"})) as server:
        source = start({"url": server.url, "name": "a"})
        eventually(lambda: engine(source, "a").phase == "stale")
        assert engine(source, "a").usage_ratio is None
    with serving(lambda _: Reply(page(), headers={"Age": "9"})) as server:
        source = start({"url": server.url, "name": "a"})
        eventually(lambda: engine(source, "a").phase == "up")


def test_becoming_stale_and_its_end_are_logged_once(
    start: Callable[..., ScrapeSource], caplog: pytest.LogCaptureFixture
) -> None:
    def logged() -> list[tuple[str, str]]:
        told = [(each.levelname, each.getMessage()) for each in caplog.records if each.name == "kvtide.agent"]
        return [each for each in told if "stale" in each[1]]

    caplog.set_level(logging.INFO, logger="kvtide.agent")
    with serving(page()) as server, serving(page()) as fine:
        source = start({"url": server.url, "name": "a"}, {"url": fine.url, "name": "b"})
        eventually(lambda: engines(source.read()) == {"a": "up", "b": "up"})
        assert logged() == []
        old = Reply(page(), headers={"Content-Type": "text/plain", "Age": "90"})
        server.answer = lambda _: old
        eventually(lambda: engine(source, "a").phase == "stale")
        source.read()
        ((level, text),) = logged()
        assert level == "WARNING"
        assert text.startswith("scraping a: stale: the page itself is 9")
        server.answer = lambda _: Reply(page())
        eventually(lambda: engine(source, "a").phase == "up")
        source.read()
        assert logged()[1:] == [("INFO", "scraping a: no longer stale")]


def test_a_name_from_the_settings_is_the_label_before_during_and_after(start: Callable[..., ScrapeSource]) -> None:
    with serving(lambda _: Reply("no", status=503)) as named, serving(lambda _: Reply("no", status=503)) as nameless:
        source = start({"url": named.url, "name": "a"}, {"url": nameless.url})
        assert engines(source.read()) == {"a": "down", "engine-2": "down"}
        named.answer = nameless.answer = lambda _: Reply(page())
        eventually(lambda: engines(source.read()) == {"a": "up", "org/model": "up"})
        named.answer = nameless.answer = lambda _: Reply("no", status=503)
        eventually(lambda: engines(source.read()) == {"a": "down", "org/model": "down"})


def test_the_state_is_json() -> None:
    state = ScrapeSource(ScrapeConfig()).read()
    assert msgspec.json.decode(msgspec.json.encode(state)) == {"engines": [], "passed_over": [], "left_out": 0}


# -- settings ---------------------------------------------------------------------------------------------


def scraping(**changes: object) -> list[str]:
    sources = sources_of(SourcesConfig.model_validate({"device": {"enabled": False}, "scrape": changes}))
    return [source.NAME for source in sources if source.NAME == "scrape"]


def test_nothing_is_scraped_that_nobody_asked_for() -> None:
    assert scraping() == []
    assert scraping(discover=True) == ["scrape"]
    assert scraping(engines=[{"url": "http://127.0.0.1:1"}]) == ["scrape"]


def test_the_parser_is_not_imported_before_there_is_a_page() -> None:
    code = "import agent.daemon, sys; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("engines", "refusal"),
    [
        ("[{url: 'ftp://a'}]", "must be a URL such as"),
        ("[{url: '127.0.0.1:8000'}]", "must be a URL such as"),
        ("[{url: 'http://u:p@a'}]", "must not hold a password"),
        ("[{url: 'http://a:99999'}]", "Port out of range"),
        ("[{url: 'http://a/b c'}]", "without spaces"),
        ("[{url: 'http://a/é'}]", "must be ASCII"),
        ("[{url: 'http://a'}, {url: 'http://a'}]", "the url http://a is there twice"),
        ("[{url: 'http://a', name: x}, {url: 'http://b', name: x}]", "the name x is there twice"),
        ("[{url: 'http://a', name: ''}]", "at least 1 character"),
        ("[{name: a}]", "engines.0: url is missing"),
    ],
)
def test_mistakes_in_the_settings_are_named(tmp_path: Path, engines: str, refusal: str) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(f"sources: {{scrape: {{engines: {engines}}}}}")
    with pytest.raises(ConfigError, match=refusal):
        load(file, {})


# -- labels -----------------------------------------------------------------------------------------------


def test_a_label_stays_with_its_engine_and_comes_free_with_it() -> None:
    labels = Labels()
    assert labels.give([Wanted(("1",), "m"), Wanted(("2",), "m")], 1.0) == {("1",): "m", ("2",): "m~2"}
    assert labels.give([Wanted(("2",), "m"), Wanted(("1",), "m")], 1.0) == {("1",): "m", ("2",): "m~2"}
    assert labels.give([Wanted(("2",), "m"), Wanted(("3",), "m")], 1.0) == {("2",): "m~2", ("3",): "m"}
    assert labels.give([Wanted(("2",), "n"), Wanted(("3",), "m")], 1.0) == {("2",): "n", ("3",): "m"}


def test_all_that_was_started_is_closed(start: Callable[..., ScrapeSource]) -> None:
    with serving(page()) as server:
        source = start({"url": server.url, "name": "a"})
        eventually(lambda: engine(source, "a").phase == "up")
        source.close()
        eventually(lambda: not any(thread.name == "kvtide-scrape" for thread in threading.enumerate()))


def test_a_page_that_says_another_name_each_time_makes_few_labels() -> None:
    labels, found, models = Labels(), set(), set()
    for number in range(3600):
        now = float(number)
        found |= {*labels.give([Wanted(("1", str(number)), f"m{number}")], now).values()}
        models.add(labels.model(f"m{number}", now))
    assert 64 <= len(found) <= 64 + 16 + 1
    assert "other" in found & models
    assert len(models) <= 64 + 16 + 1
