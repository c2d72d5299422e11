"""The program itself, driven by Textual's pilot: each key, each view, sizes, and agents that do not answer."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from agent.errors import KvtideError
from agent.state import AgentState
from agent.top.app import Top
from agent.top.asked import AgentSource
from agent.top.look import Look
from agent.top.played import BundleSource
from agent.top.seen import Seen, Where
from tests.unit.recordings import leaking, written
from tests.unit.support import eventually_async
from tests.unit.top import nodes

LOW = (80, 24)


class Still:
    """A source that has one state and notes what it is told."""

    period = 3600.0

    def __init__(self, seen: Seen) -> None:
        self.now = seen
        self.told: list[object] = []
        self.started = self.stopped = False

    def start(self, _arrived: Callable[[], None]) -> None:
        self.started = True

    def stop(self) -> None:
        self.stopped = True

    def seen(self) -> Seen:
        return self.now

    def seek(self, seconds: float) -> None:
        self.told.append(seconds)

    def pause(self) -> None:
        self.told.append("pause")

    def faster(self, factor: float) -> None:
        self.told.append(f"x{factor:g}")


@asynccontextmanager
async def running(
    state: AgentState | None = None, size: tuple[int, int] = LOW, view: str = "node"
) -> AsyncIterator[tuple[Top, Pilot[None], Still]]:
    source = Still(nodes.seen_of(state or nodes.full(tenants=6)))
    app = Top(source, Look(), Where(view=view))
    async with app.run_test(size=size) as pilot:
        await eventually_async(lambda: source.started)  # after the first screen, which may come late
        await pilot.pause()
        yield app, pilot, source


def shown(app: Top) -> str:
    """What the compositor has on its screen, cell by cell."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


def chosen(app: Top) -> str:
    return next((line for line in shown(app).splitlines() if line.startswith(">")), "")


def engines(app: Top) -> list[str]:
    """The engines that are listed."""
    return [line[1:].split()[0] for line in shown(app).splitlines() if line[1:].startswith("engine-")]


async def test_what_the_terminal_shows_is_what_the_desk_draws() -> None:
    async with running() as (app, _, source):
        assert source.started
        assert shown(app).splitlines() == app.sheet.text()
        assert "412 KV blocks are held by no request" in shown(app)
    assert source.stopped


@pytest.mark.parametrize(
    ("key", "tab", "text"),
    [
        ("1", "[1 Node]", "GPU 7"),
        ("2", "[2 Engine]", "forecast"),
        ("3", "[3 Tenants]", "of quota"),
        ("4", "[4 Block ages]", "10 s to 1 min"),
        ("5", "[5 Verdicts]", "4 verdicts standing"),
        ("6", "[6 Actions]", "mode enforce"),
        ("question_mark", "[? help]", "search: the next row"),
    ],
)
async def test_each_view_has_its_key(key: str, tab: str, text: str) -> None:
    async with running(view="actions" if key == "1" else "node") as (app, pilot, _):
        await pilot.press(key)
        assert tab in shown(app)
        assert text in shown(app)


async def test_tab_turns_through_the_views() -> None:
    async with running() as (app, pilot, _):
        for name in ("engine", "tenants", "blocks", "verdicts", "actions", "node"):
            await pilot.press("tab")
            assert app.desk.where.view == name
        await pilot.press("shift+tab")
        assert app.desk.where.view == "actions"


async def test_enter_goes_down_and_escape_comes_back() -> None:
    async with running() as (app, pilot, _):
        await pilot.press("down")
        assert chosen(app).startswith(">engine-0")
        await pilot.press("enter")
        assert "engine-0  vLLM" in shown(app)
        await pilot.press("enter")
        assert "tenants of engine-0" in shown(app)
        tenant = chosen(app).split()[0].removeprefix(">")
        await pilot.press("enter")
        assert f"(engine engine-0, tenant {tenant})" in shown(app)
        for view in ("tenants", "engine", "node"):
            await pilot.press("escape")
            assert app.desk.where.view == view
        assert chosen(app).startswith(">engine-0")


async def test_rows_are_chosen_up_and_down_to_both_ends() -> None:
    async with running() as (app, pilot, _):
        first = chosen(app)
        await pilot.press("j")
        assert chosen(app) != first
        await pilot.press("k")
        assert chosen(app) == first
        await pilot.press("end")
        assert "Nov 14" in shown(app).splitlines()[-2]  # the last line of the page is in sight
        await pilot.press("home")
        assert chosen(app) == first
        assert "412 KV blocks" in shown(app)
        await pilot.press("pagedown")
        assert "412 KV blocks" not in shown(app)
        await pilot.press("pageup")
        assert "412 KV blocks" in shown(app)


async def test_beyond_the_last_row_one_reads_on() -> None:
    async with running() as (app, pilot, _):
        await pilot.press(*["down"] * 30)
        assert "actions" in shown(app).splitlines()
        await pilot.press(*["up"] * 40)
        assert "412 KV blocks" in shown(app)


async def test_sorting() -> None:
    async with running() as (app, pilot, _):
        assert chosen(app).startswith(">engine-1")
        await pilot.press("s", "home")
        assert "s sort: name" in shown(app)
        assert chosen(app).startswith(">engine-0")
        await pilot.press("S", "home")
        assert "(reversed)" in shown(app)
        assert chosen(app).startswith(">engine-7")
        await pilot.press("2", "s")
        assert "nothing to sort" in shown(app)


async def test_the_chosen_row_stays_the_same_when_the_order_changes() -> None:
    async with running() as (app, pilot, _):
        await pilot.press("down", "s")
        assert chosen(app).startswith(">engine-0")


async def test_filter_shows_at_once_and_escape_clears_it() -> None:
    async with running() as (app, pilot, _):
        await pilot.press("f", *"thrash")
        assert engines(app) == ["engine-1"]
        assert "filter: thrash_" in shown(app)
        await pilot.press("enter")
        assert "only rows with 'thrash'" in shown(app)
        await pilot.press("escape")
        assert len(engines(app)) == 8
        await pilot.press("f", *"qqq", "backspace", "enter")
        assert "No engine has 'qq'" in shown(app)
        await pilot.press("f", "escape")
        assert len(engines(app)) == 8


async def test_search_goes_to_the_next_row_and_round() -> None:
    async with running(view="tenants") as (app, pilot, _):
        await pilot.press("slash", *"tenant-3", "enter")
        first = chosen(app)
        assert first.startswith(">tenant-3")
        await pilot.press("n")
        assert chosen(app).startswith(">tenant-3")
        assert chosen(app) != first
        await pilot.press("N")
        assert chosen(app) == first
        await pilot.press("slash", *"nobody", "enter")
        assert "no row here has 'nobody'" in shown(app)


async def test_keys_of_a_prompt_are_text() -> None:
    async with running() as (app, pilot, source):
        await pilot.press("f", "q", "question_mark", "1", "space", "tab")
        assert "filter: q?1 _" in shown(app)
        assert app.is_running
        assert source.told == []
        await pilot.press("ctrl+u")
        assert "filter: _" in shown(app)


async def test_engines_one_after_the_other() -> None:
    async with running() as (app, pilot, _):
        await pilot.press("right_square_bracket")
        assert app.desk.where.view == "engine"
        before = app.desk.where.engine
        await pilot.press("right_square_bracket")
        assert app.desk.where.engine != before
        await pilot.press("left_square_bracket")
        assert app.desk.where.engine == before
        await pilot.press("escape")
        assert app.desk.where.view == "node"


async def test_help_covers_any_view_and_any_key_leaves_it() -> None:
    async with running(view="blocks") as (app, pilot, _):
        await pilot.press("question_mark", "4")
        assert "[4 Block ages]" in shown(app)
        await pilot.press("question_mark", "down")
        assert "[4 Block ages]" in shown(app)


async def test_an_action_is_explained_where_it_stands() -> None:
    async with running(view="actions") as (app, pilot, _):
        await pilot.press("enter")
        assert "undo: The watermark is lowered step by step" in shown(app)
        await pilot.press("enter")
        assert "undo:" not in shown(app)


async def test_a_verdict_on_no_engine_leads_nowhere_and_says_so() -> None:
    async with running(nodes.small(), view="verdicts") as (app, pilot, _):
        await pilot.press("down", "enter")
        assert app.desk.where.view == "verdicts"
        assert "is not about an engine" in shown(app)
        await pilot.press("up", "enter")
        assert app.desk.where.view == "engine"


async def test_keys_of_a_replay_reach_it() -> None:
    async with running() as (_, pilot, source):
        await pilot.press("left", "right", "shift+left", "shift+right", "space", "plus", "minus")
        assert source.told == [-10.0, 10.0, -60.0, 60.0, "pause", "x2", "x0.5"]


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_it_ends(key: str) -> None:
    async with running() as (app, pilot, _):
        await pilot.press(key)
        assert not app.is_running
    async with running() as (app, pilot, _):
        await pilot.press("question_mark", key)
        assert not app.is_running


async def test_ctrl_c_ends_it_while_something_is_typed() -> None:
    async with running() as (app, pilot, _):
        await pilot.press("f", "a", "ctrl+c")
        assert not app.is_running


@pytest.mark.parametrize("size", [(80, 24), (160, 50), (200, 60), (40, 10), (1, 1)])
async def test_it_takes_any_size(size: tuple[int, int]) -> None:
    async with running(size=(100, 30)) as (app, pilot, _):
        for view in "123456":
            await pilot.press(view)
            await pilot.resize_terminal(*size)
            await pilot.pause()
            lines = shown(app).splitlines()
            assert len(lines) <= size[1]
            assert all(len(each) <= size[0] for each in lines)
        if size == (40, 10):
            assert "40x10 is too small" in shown(app)


@pytest.mark.parametrize("state", [nodes.nothing, nodes.small, nodes.full])
async def test_every_view_of_every_node(state: Callable[[], AgentState]) -> None:
    async with running(state()) as (app, pilot, _):
        for key in "123456":
            await pilot.press(key, "enter", "end", "s", "escape")
            assert "can't be drawn" not in shown(app)
            assert app.is_running


# -- agents ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def watching(fetch: Callable[[], AgentState]) -> AsyncIterator[tuple[Top, Pilot[None]]]:
    app = Top(AgentSource(nodes.SOURCE, lambda: fetch), Look())
    async with app.run_test(size=LOW) as pilot:
        yield app, pilot


async def test_a_dead_agent_is_told_and_the_program_lives() -> None:
    def fetch() -> AgentState:
        raise KvtideError("no agent answers at http://127.0.0.1:9477 ([Errno 111] Connection refused)")

    async with watching(fetch) as (app, pilot):
        await eventually_async(lambda: "no answer since" in shown(app))
        assert "Connection refused" in shown(app)
        assert "retrying" in shown(app)
        await pilot.press("2", "question_mark", "escape")
        assert app.is_running


async def test_an_agent_that_dies_leaves_what_was_and_how_old_it_is() -> None:
    dead = threading.Event()

    def fetch() -> AgentState:
        if dead.is_set():
            raise KvtideError("gone")
        return nodes.small()

    async with watching(fetch) as (app, _):
        await eventually_async(lambda: "kv_orphan m" in shown(app))
        assert not any(row.stale for row in app.sheet._rows)
        dead.set()
        await eventually_async(lambda: "no answer since" in shown(app))
        assert "(gone), retrying; below is what was" in shown(app)
        assert "kv_orphan m" in shown(app)
        assert any(row.stale for row in app.sheet._rows)
        dead.clear()
        await eventually_async(lambda: "no answer since" not in shown(app))
        assert not any(row.stale for row in app.sheet._rows)


async def test_an_agent_that_hangs_blocks_neither_keys_nor_the_end() -> None:
    forever = threading.Event()

    def fetch() -> AgentState:
        forever.wait()
        raise KvtideError("too late")

    async with watching(fetch) as (app, pilot):
        assert f"Asking {nodes.SOURCE}" in shown(app)
        await pilot.press("3")
        assert "[3 Tenants]" in shown(app)
        await pilot.press("q")
        assert not app.is_running
    forever.set()


async def test_what_is_no_state_is_told() -> None:
    def fetch() -> AgentState:
        raise ValueError("surprise")

    async with watching(fetch) as (app, _):
        await eventually_async(lambda: "ValueError: surprise" in shown(app))


async def test_the_screen_can_be_held_and_goes_on() -> None:
    states = iter(nodes.small(at=1_700_001_000.0 + number, monotonic=50_000.0 + number) for number in range(10_000))
    async with watching(lambda: next(states)) as (app, pilot):
        await eventually_async(lambda: "Nov 14 22:30" in shown(app))
        await pilot.press("space")
        assert "HELD" in shown(app)
        held = app._source.seen().state
        await pilot.pause(1.2)
        assert app._source.seen().state is held
        await pilot.press("space")
        assert "HELD" not in shown(app)


async def test_a_bundle_is_played_paused_and_sought(tmp_path: Path) -> None:
    bundle = written(tmp_path / "a.kvtide", leaking(90, since=20))
    app = Top(BundleSource(bundle, speed=1.0), Look())
    async with app.run_test(size=LOW) as pilot:
        await pilot.press("space")
        await eventually_async(lambda: app._source.seen().played is not None and not app._source.seen().played.loading)
        await pilot.press("shift+left")
        assert "REPLAY paused  00:00/01:29" in shown(app)
        assert "kv_orphan" not in shown(app)
        await pilot.press("shift+right")
        assert "01:00/01:29" in shown(app)
        assert "PAGE  kv_orphan" in shown(app) or "WARN  kv_orphan" in shown(app)
        await pilot.press("left", "left")
        assert "00:40/01:29" in shown(app)
        await pilot.press("plus", "space")
        assert "REPLAY x2" in shown(app)
        await pilot.press("shift+right", "shift+right", "2")
        assert "L orphaned 4" in shown(app)
