"""Engines without hooks as ``kvtide status`` shows them and as metrics: what is not known is absent."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from agent.faces import scraped, status
from agent.sources.scrape.state import PassedOver, ScrapedEngine
from agent.state import Judgement
from agent.subject import Subject
from exporters.collectors.scraped import collect
from tests.unit.builders import make_state, make_verdict
from tests.unit.node_builders import make_scraped, make_scraped_engine, make_source

NUMBERS = ("usage_ratio", "capacity_blocks", "held_blocks", "capacity_tokens", "held_tokens", "capacity_bytes")
NUMBERS += ("held_bytes", "running", "waiting", "swapped", "preemptions", "prompt_tokens", "generation_tokens")
NUMBERS += ("prefix_queries", "prefix_hits", "prompt_tokens_per_second", "generation_tokens_per_second")
NUMBERS += ("prefix_hit_ratio", "growth_per_minute", "growth_acceleration")


def fine(**changes: object) -> ScrapedEngine:
    values = {"engine": "fine", "impossible": "", "waiting": 0, "swapped": None, "preemptions": 0}
    return make_scraped_engine(**values | changes)


def down(**changes: object) -> ScrapedEngine:
    values = {
        "engine": "gone",
        "url": "http://127.0.0.1:8001",
        "phase": "down",
        "reason": "nobody listens at 127.0.0.1:8001",
        "page_age_seconds": 95.0,
        "impossible": "",
        "cannot": {},
    }
    return make_scraped_engine(**values | dict.fromkeys(NUMBERS) | changes)


def drawn(*engines: ScrapedEngine, width: int = 80, **changes: object) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    told = make_verdict(
        kind="kv_pressure",
        sentence="The KV pool is short.",
        remedy="Fewer requests.",
        subject=Subject(scope="engine", engine="s"),
    )
    judgement = Judgement(at=0.0, verdicts=(told, msgspec.structs.replace(told, kind="kv_stall", phase="resolved")))
    console.print(scraped.render(make_state(scrape=make_scraped(*engines, **changes), judgement=judgement)))
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("width", [80, 120])
def test_one_that_is_fine_and_one_that_is_down(width: int) -> None:
    text = drawn(fine(), down(), width=width, left_out=0, passed_over=())
    assert (
        "fine 95% of the pool held: 1,900 of 2,000 blocks, 30,400 of 32,000 tokens, 1.9 GiB of 2.0 GiB a rank; rises "
        "by 2.0% of the pool a minute, faster each minute" in text
    )
    assert "21 running, 0 waiting, 80 tokens/s generated, 500 prompt tokens/s, 25% of prompt tokens were cached" in text
    assert "gone down: nobody listens at 127.0.0.1:8001 (http://127.0.0.1:8001, last read 95 s ago)" in text
    assert "not told tenants, sessions and requests. Only hooks tell these" in text
    assert "left out" not in text


def test_what_is_wrong_stands_first() -> None:
    text = drawn(make_scraped_engine())
    assert "s kv_pressure confirmed: The KV pool is short. Fewer requests. 95% of the pool held" in text
    assert "kv_stall" not in text, "it is over"
    assert "1 swapped" in text
    assert "6 preemptions since it started" in text
    assert "left out 1 engine more on these pages, not followed" in text


def test_what_a_page_does_not_say_is_said() -> None:
    bare = fine(**dict.fromkeys(NUMBERS), cannot={"progress": "the page has no token counters"})
    text = drawn(bare, down(phase="stale", reason="nothing changes"), down(engine="x", phase="bad_page", reason="HTML"))
    assert (
        "fine use of the pool not known nothing about its requests progress not known: the page has no token counters"
        in text
    )
    assert "stale: nothing changes (http://127.0.0.1:8001)" in text
    assert "x not a page of metrics: HTML" in text


def test_long_names_leave_room() -> None:
    text = drawn(fine(engine="n" * 64))
    assert "n" * 19 + "…" in text
    assert "n" * 50 in text


def test_servers_that_are_not_scraped() -> None:
    hooked = PassedOver(pid=1, reason="its hooks report")
    others = tuple(PassedOver(pid=pid, reason="it serves no HTTP port") for pid in range(10, 16))
    text = drawn(fine(), passed_over=(hooked, *others))
    assert "pid 10: it serves no HTTP port" in text
    assert "2 more" in text
    assert "pid 1:" not in text, "that is as it should be"


def test_nothing_scraped_is_nothing_shown() -> None:
    assert scraped.render(make_state(scrape=None)) is None
    broken = make_source(source="scrape", up=False, reason="no answer for 15 s")
    assert "Pages of engines are not read: no answer for 15 s." in str(
        scraped.render(make_state(scrape=None, sources=(broken,)))
    )
    assert "No server of vLLM" in str(scraped.render(make_state(scrape=make_scraped(left_out=0).__class__())))


def test_it_is_part_of_the_status() -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(status.render(make_state()))
    assert "engines without hooks" in console.file.getvalue()


def test_only_what_is_known_makes_a_sample() -> None:
    samples = {(s.metric.name, s.labels): s.value for s in collect(make_state(scrape=make_scraped(fine(), down())))}
    assert samples["kvtide_scraped_up", ("fine",)] == 1
    assert samples["kvtide_scraped_up", ("gone",)] == 0
    assert samples["kvtide_scraped_kv_usage_ratio", ("fine",)] == 0.95
    assert samples["kvtide_scraped_requests_waiting", ("fine",)] == 0, "zero is known"
    assert samples["kvtide_scraped_stale", ("fine",)] == 0
    assert samples["kvtide_scraped_impossible", ("fine",)] == 0
    assert {name for name, labels in samples if labels[:1] == ("gone",)} == {
        "kvtide_scraped_up",
        "kvtide_scraped_page_age_seconds",
        "kvtide_scraped_scrape_seconds",
        "kvtide_scraped_scrapes_total",
        "kvtide_scraped_failures_total",
        "kvtide_scraped_bad_values_total",
        "kvtide_scraped_resets_total",
    }
    assert not list(collect(make_state(scrape=None)))
