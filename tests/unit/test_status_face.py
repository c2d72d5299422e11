"""The table of ``kvtide status`` as text: every number is there at any width, and no line is too long."""

from __future__ import annotations

import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agent.faces.status import BAR_WIDTH, render
from agent.sources.scrape.state import ScrapedState
from agent.state import AgentState
from tests.unit.builders import make_engine, make_hooks, make_pool, make_silent, make_state, make_verdict
from tests.unit.details import make_detail

WIDTHS = (80, 120)


def drawn(state: AgentState, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    console.print(render(state))
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    return text


def words(text: str) -> str:
    """The text without the boxes and the line ends inside them."""
    return " ".join(text.replace("│", " ").split())


def bar(text: str) -> str:
    (line,) = [line for line in text.splitlines() if "KV pool" in line]
    return line.split("KV pool ")[1].split("  ")[0]


@pytest.mark.parametrize("width", WIDTHS)
def test_every_number_of_the_state_is_there(width: int) -> None:
    text = words(drawn(make_state(), width))
    assert "m vLLM 0.11.0 pid 4321 live" in text
    for column in ("held", "of it", "orphaned", "cached idle", "empty", "capacity", "running", "waiting"):
        assert column in text
    assert "300 4 200 500 1,000 8 3" in text
    assert "300.0 MiB 4.0 MiB 200.0 MiB 500.0 MiB 1000.0 MiB" in text
    assert "30% held" in text
    assert "L orphaned # held by requests + cached idle . empty" in text
    assert "reported 0.4 s ago" in text
    assert "hooks cost 0.25% of the engine's step time" in text
    assert "6 frames dropped" in text
    assert "hook step is off: ValueError: boom" in text
    assert "PAGE kv_orphan m confirmed since" in text
    assert "(27 s) " in text
    assert "See above: kv_orphan." in text
    assert "health 55 of 100; 31 by the textbook" in text
    assert "growth +3.0% of the pool a minute (+2.0% to +4.0%); unexplained: +0.6% of the pool a minute" in text
    assert "full in 4 min (3 min to 6 min) if it goes on like this" in text
    assert make_verdict().sentence in text
    assert make_verdict().remedy in text
    assert "Nothing is wrong" not in text


@pytest.mark.parametrize("width", WIDTHS)
def test_large_numbers_are_whole(width: int) -> None:
    pool = make_pool(
        capacity=4_123_456, held=3_123_457, cached_idle=876_543, empty=123_456, orphaned=1_234_567, exact=False
    )
    text = words(drawn(make_state(make_engine(pool=pool, running=1_024, waiting=65_536)), width))
    assert "3,123,457 1,234,567? 876,543 123,456 4,123,456 1,024 65,536" in text
    assert "3.0 TiB 1.2 TiB 856.0 GiB 120.6 GiB 3.9 TiB" in text


def test_the_bar_shares_its_cells_by_blocks() -> None:
    assert bar(drawn(make_state(make_engine(pool=make_pool(orphaned=100))))) == "L" * 4 + "#" * 8 + "+" * 8 + "." * 20
    full = make_pool(held=1000, cached_idle=0, empty=0, orphaned=0)
    assert bar(drawn(make_state(make_engine(pool=full)))) == "#" * 40
    rest = make_pool(held=0, cached_idle=0, empty=1000, orphaned=0)
    assert bar(drawn(make_state(make_engine(pool=rest)))) == "." * 40


def test_a_single_leaked_block_is_seen_in_a_large_pool() -> None:
    pool = make_pool(capacity=400_000, held=200_000, cached_idle=100_000, empty=100_000, orphaned=1)
    line = bar(drawn(make_state(make_engine(pool=pool))))
    assert line == "L" + "#" * 20 + "+" * 10 + "." * 9


@given(st.lists(st.integers(0, 500_000), min_size=4, max_size=4).filter(any))
def test_the_bar_is_always_as_wide_and_shows_every_part_that_can_be_lost(parts: list[int]) -> None:
    orphaned, used, cached, empty = parts
    pool = make_pool(
        capacity=sum(parts), held=orphaned + used, cached_idle=cached, empty=empty, orphaned=orphaned, block_bytes=None
    )
    line = bar(drawn(make_state(make_engine(pool=pool, detail=None))))
    assert set(line) <= set("L#+.")
    assert len(line) == BAR_WIDTH
    for letter, number in (("L", orphaned), ("#", used), ("+", cached)):
        assert (letter in line) == (number > 0)


def test_without_a_leak_no_cell_says_so() -> None:
    for orphaned in (0, None):
        assert "L" not in bar(drawn(make_state(make_engine(pool=make_pool(orphaned=orphaned)))))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_silent_engine_shows_why_and_no_values(width: int) -> None:
    text = words(drawn(make_state(make_silent()), width))
    assert f"No values: {make_silent().reason}." in text
    assert "quiet vLLM 0.11.0 pid 4321 silent" in text
    assert "KV pool" not in text
    assert "Nothing is wrong" not in text


def test_what_is_not_known_is_said_so() -> None:
    pool = make_pool(cached_idle=None, empty=None, orphaned=None, block_bytes=None)
    silent = {"audit_supported": False, "audit_reason": "its manager is unknown", "verdicts": (), "members": ()}
    engine = make_engine(pool=pool, detail=make_detail(compaction=None), **silent)
    text = words(drawn(make_state(engine, processes=(), failures=(), host=None, judgement=None)))
    assert "300 not known not known not known 1,000 8 3" in text
    assert "MiB" not in text
    assert "No exact accounting: its manager is unknown." in text
    assert "This engine has no KV block pool." in words(drawn(make_state(make_engine(pool=None))))


def test_a_sound_engine_is_quiet() -> None:
    hooks = make_hooks(errors={}, off={}, dropped_frames=0, step_seconds=0.0)
    text = words(drawn(make_state(make_engine(pool=make_pool(orphaned=0), verdicts=(), hooks=hooks, detail=None))))
    assert "Nothing is wrong." in text
    assert "dropped" not in text
    assert "hooks cost" not in text


def test_no_engine_yet_says_what_to_do_and_not_ready_says_why() -> None:
    state = msgspec.structs.replace(make_state(), engines=(), scrape=None, ready=False, not_ready_reason="socket gone")
    text = words(drawn(state))
    assert "agent not ready: socket gone" in text
    assert "No engine is connected at /run/kvtide/agent.sock." in text
    assert "Start vLLM with kvtide installed beside it" in text


def test_beside_engines_without_hooks_no_advice_leads() -> None:
    text = words(drawn(msgspec.structs.replace(make_state(), engines=(), judgement=None, judge_errors={})))
    assert text.startswith("No engine with hooks is connected. Connections refused")
    assert "Start vLLM" not in text
    found_none = msgspec.structs.replace(make_state(), engines=(), scrape=ScrapedState())
    assert "Start vLLM with kvtide installed beside it" in words(drawn(found_none))


@pytest.mark.parametrize("name", ["[/bold]", "[red]m", "a" * 300, "x\ny"])
def test_names_are_text_and_not_markup(name: str) -> None:
    text = drawn(make_state(make_engine(engine=name)))
    assert name[:40].replace("\n", " ") in text
