"""Each view as it is committed in golden/, and what holds for every screen whatever an agent says."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from agent.top.desk import Desk
from agent.top.look import Look
from agent.top.seen import Where
from agent.top.views.registry import VIEWS
from tests.unit.builders import make_engine, make_pool, make_state
from tests.unit.top import nodes
from tests.unit.top.screens import GOLDEN, HIGH, LOW, SHOTS, plain_of, taken


@pytest.mark.parametrize("name", SHOTS)
def test_the_screen_is_as_it_was(name: str) -> None:
    now = taken(SHOTS[name])
    assert now == (GOLDEN / f"{name}.txt").read_text(), "python -m tests.unit.top.screens writes it anew"


def test_no_file_of_an_old_screen_stays() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(SHOTS)


def drawn(state, view: str, size: tuple[int, int] = LOW) -> str:  # type: ignore[no-untyped-def]
    """The screen; no row is too wide, none has what steers a terminal."""
    rows = Desk(Where(view=view)).rows(nodes.seen_of(state), size)
    assert len(rows) == size[1]
    for row in rows:
        for text, style in row.line:
            assert text.isprintable()
            for mono in (True, False):
                Look(mono).style(style, stale=True)
        assert sum(cell_len(text) for text, _ in row.line) <= size[0]
    text = plain_of(rows)
    assert "can't be drawn" not in text
    return text


@pytest.mark.parametrize("size", [LOW, HIGH, (81, 25), (133, 41)])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", nodes.EVIL, ids=range(len(nodes.EVIL)))
def test_hostile_names_are_text(name: str, view: str, size: tuple[int, int]) -> None:
    text = drawn(nodes.hostile(name), view, size)
    if name in ("[red]", "[/bold]x") and view != "actions":
        assert name in text


def test_the_worst_is_on_top_of_a_low_screen_of_a_full_node() -> None:
    """Nothing important is cut at 80x24: the sentence of the worst verdict, each GPU, each engine with its verdict."""
    text = drawn(nodes.full(), "node")
    assert "412 KV blocks are held by no request (412.0 MiB, 2.1% of the pool):" in text
    for number in range(8):
        assert f"GPU {number} " in text
        assert f"engine-{number} " in text
    for kind in ("kv_orphan", "preemption_thrash", "kv_pressure", "tenant_surge"):
        assert kind in text


def test_many_verdicts_leave_the_others_their_heads() -> None:
    small = drawn(nodes.small(), "node")
    assert "PAGE  kv_orphan" in small
    assert "PAGE  gpu_lost" in small


def test_what_is_not_known_is_a_dash_with_a_reason_and_never_zero() -> None:
    pool = make_pool(cached_idle=None, empty=None, orphaned=None, block_bytes=None)
    bare = {"audit_supported": False, "audit_reason": "its manager is unknown", "running": None, "waiting": None}
    state = make_state(make_engine(pool=pool, **bare), judgement=None)
    text = drawn(state, "engine")
    assert "L orphaned -" in text
    assert "cached idle -" in text
    assert "No exact accounting: its manager is unknown." in text
    assert "forecast" not in text
    row = next(each for each in drawn(state, "node").splitlines() if each.startswith(">m"))
    assert row.split()[-3:] == ["-", "-", "ok"]
    without = drawn(make_state(make_engine(detail=None, pool=None, reason="its first report has not come")), "blocks")
    assert "- m: its first report has not come" in without
    assert "None: all held blocks" not in without


def test_a_count_that_is_not_named_yet_has_a_sign() -> None:
    text = drawn(make_state(make_engine(pool=make_pool(exact=False))), "engine")
    assert "L orphaned 4?" in text


def test_mono_has_no_colour() -> None:
    look = Look(mono=True)
    for style in ("page", "warn", "bad", "#0072b2", "grey50", "yellow", "spark", "good"):
        assert set(look.style(style).split()) <= {"bold", "reverse", "underline", "dim"}
    assert "#" in Look().style("page")


def test_a_view_that_fails_says_so_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("boom")

    monkeypatch.setitem(VIEWS, "node", fails)  # type: ignore[arg-type]
    desk = Desk(Where())
    seen = nodes.seen_of(nodes.small())
    assert "This view can't be drawn: ValueError: boom" in plain_of(desk.rows(seen, LOW))
    desk.press("2")
    assert "KV pool" in plain_of(desk.rows(seen, LOW))
