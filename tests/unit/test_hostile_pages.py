"""Servers that are scraped and mean harm: what they say is bounded, and others are read all the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from agent.config import load
from agent.errors import ConfigError
from agent.sources.config import ScrapeConfig
from agent.sources.scrape.fetch import Fetcher, FetchError, shown_url
from agent.sources.scrape.page import LONGEST_LABELS, MAX_LINES, MAX_ROWS, PageError, PageReader
from agent.sources.scrape.scraper import Scraper
from agent.sources.scrape.source import ScrapeSource
from agent.sources.scrape.targets import CLOSE_SECONDS
from tests.bed.pages import Reply, page, serving
from tests.unit.support import eventually

USAGE = 'vllm:kv_cache_usage_perc{{engine="0",model_name="{}"}} 0.5\n'


@contextmanager
def scraping(*engines: dict[str, object]) -> Iterator[ScrapeSource]:
    source = ScrapeSource(ScrapeConfig(engines=engines, period_seconds=0.5))
    try:
        source.read()
        yield source
    finally:
        source.close()


def refused(answer: Reply) -> str:
    with serving(lambda _: answer) as server, pytest.raises(FetchError) as caught:
        Fetcher(server.url, 30.0).get()
    return str(caught.value)


# -- numbers and labels ---------------------------------------------------------------------------------


def test_counts_whose_sum_has_no_end_are_rejected_and_others_are_read() -> None:
    hostile = "".join(f'vllm:prompt_tokens_total{{engine="0",model_name="m",q="{n}"}} 1e308\n' for n in range(5))
    with (
        serving(hostile + USAGE.format("m")) as bad,
        serving(page()) as good,
        scraping({"url": bad.url, "name": "bad"}, {"url": good.url, "name": "good"}) as source,
    ):
        eventually(lambda: {each.phase for each in source.read().engines} == {"up"})
        found = {each.engine: each for each in source.read().engines}
        assert found["good"].prompt_tokens == 4000
        assert found["bad"].prompt_tokens is None
        assert found["bad"].bad_values["too_large"] >= 5
        msgspec.json.encode(source.read())


def test_the_largest_count_that_can_be_is_taken() -> None:
    (row,) = PageReader().read("vllm:prompt_tokens_total 9.2e18\n").rows.values()
    assert not row.rejected


@pytest.mark.parametrize("stamp", ["9" * 400, "-" + "9" * 400])
def test_a_time_stamp_without_end_is_read(stamp: str) -> None:
    assert PageReader().read(f"vllm:kv_cache_usage_perc 0.5 {stamp}\n").newest is not None


def test_labels_without_end_are_refused() -> None:
    with pytest.raises(PageError, match="1,000,0"):
        PageReader().read(USAGE.format("x" * 1_000_000))
    long = "x" * (LONGEST_LABELS - 100)
    (key,) = PageReader().read(USAGE.format(long)).rows
    assert len(key.model) <= 64
    other, another = PageReader().read(USAGE.format(long + "1") + USAGE.format(long + "2")).rows
    assert other.model != another.model


def test_a_page_of_more_lines_than_engines_have_is_refused() -> None:
    with pytest.raises(PageError, match="more than 20,000 lines"):
        PageReader().read("".join(USAGE.format(n) for n in range(MAX_LINES + 1)))
    assert len(PageReader().read("".join(USAGE.format(n) for n in range(MAX_LINES))).rows) == MAX_ROWS


def test_a_server_of_many_engines_crowds_nobody_out() -> None:
    with (
        serving("".join(USAGE.format(n) for n in range(200))) as many,
        serving(page()) as one,
        scraping({"url": many.url, "name": "many"}, {"url": one.url, "name": "one"}) as source,
    ):
        eventually(lambda: all(each.phase == "up" for each in source.read().engines))
        state = source.read()
        assert len(state.engines) == MAX_ROWS
        assert state.left_out == 200 + 1 - MAX_ROWS
        assert "one" in {each.engine for each in state.engines}


# -- answers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["http://[::1", "http://a:xx/", "file:///etc/passwd"])
def test_a_redirect_to_nowhere_is_refused(to: str) -> None:
    assert "it sends us to" in refused(Reply(status=302, headers={"Location": to}))


def test_what_is_said_of_a_redirect_holds_no_password() -> None:
    said = refused(Reply(status=302, headers={"Location": "http://user:SECRET@10.0.0.1/a\x1b[31m?token=SECRET"}))
    assert "10.0.0.1/a" in said
    assert "SECRET" not in said
    assert said.isprintable()


def test_a_reason_steers_nothing_and_a_length_without_end_is_too_much() -> None:
    assert refused(Reply(raw=b"HTTP/1.1 500 \x1b[31mEvil\x9b\r\n\r\n")).isprintable()
    endless = Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\nabc")
    assert "MiB" in refused(endless)


def test_a_mistake_of_ours_is_logged_once_and_not_each_second(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(PageReader, "read", broken)
    with (
        serving(page()) as server,
        caplog.at_level(logging.ERROR, "kvtide.agent"),
        scraping({"url": server.url, "name": "a"}) as source,
    ):
        eventually(lambda: source.read().engines[0].scrapes >= 3)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_many_servers_that_hang_are_left_behind_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    waited: list[float] = []

    def hang(_: Scraper, seconds: float) -> None:
        waited.append(max(0.0, seconds))
        now[0] += waited[-1]

    monkeypatch.setattr(Scraper, "wait", hang)
    config = ScrapeConfig(engines=[{"url": f"http://127.0.0.1:1/{n}"} for n in range(30)])
    source = ScrapeSource(config, clock=lambda: now[0])
    source.read()
    source.close()
    assert len(waited) == 30
    assert sum(waited) == pytest.approx(CLOSE_SECONDS), "one time for all"


# -- settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://a:8000/metrics?token=SECRET", "http://a:8000/metrics?..."),
        ("http://user:SECRET@a/x", "http://a/x"),
        ("https://a", "https://a"),
    ],
)
def test_an_address_is_shown_without_what_is_secret_in_it(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_the_state_and_the_log_show_no_token_of_an_address(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "kvtide.agent"),
        serving(page()) as server,
        scraping({"url": f"{server.url}/metrics?token=SECRET"}) as source,
    ):
        eventually(lambda: source.read().engines[0].phase == "up")
        assert b"SECRET" not in msgspec.json.encode(source.read())
        assert any("token=SECRET" in path for path, _ in server.asked), "it is asked for all the same"
        server.answer = lambda _: Reply("no", status=500)
        eventually(lambda: source.read().engines[0].phase == "down")
    assert caplog.records
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize(
    "engines",
    [
        "[{url: 'http://user:SECRET@a:8000'}]",
        "[{url: 'http://user:SEC/SECRET@a'}]",
        "[{url: 'ftp://user:SECRET@a'}]",
        "['http://user:SECRET@a']",
        "'http://user:SECRET@a'",
        "[{url: 'http://a?t=SECRET'}, {url: 'http://a?t=SECRET'}]",
        "[{url: 'http://a', bearer_token: SECRET}]",
    ],
)
def test_a_refused_setting_is_told_without_what_is_secret_in_it(tmp_path: Path, engines: str) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(f"sources: {{scrape: {{engines: {engines}}}}}")
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert "SECRET" not in str(caught.value)
    assert "sources.scrape.engines" in str(caught.value)


@pytest.mark.parametrize("other", ["http://a/", "http://a/metrics", "http://A:80"])
def test_one_page_in_two_ways_of_writing_is_there_twice(other: str) -> None:
    with pytest.raises(ValueError, match=r"the url .* is there twice"):
        ScrapeConfig(engines=[{"url": "http://a"}, {"url": other}])
    ScrapeConfig(engines=[{"url": "http://a"}, {"url": "http://a/other"}, {"url": "http://a:81"}])


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("sources: {host: {enabled: false}}\nsources: {device: {enabled: false}}\n")
    with pytest.raises(ConfigError, match="line 2: not valid YAML: 'sources' twice"):
        load(file, {})


def test_a_long_value_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    engines = ",".join(f"{{url: http://a{n}}}" for n in range(40))
    file.write_text(f"sources: {{scrape: {{engines: [{engines}]}}}}")
    with pytest.raises(ConfigError, match="at most 32 items") as caught:
        load(file, {})
    assert len(str(caught.value)) < 500
