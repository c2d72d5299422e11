"""A review adds up what pressure cost, period by period; what was not watched counts for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.backtest.bundles import BundleFeed, RecorderFeed
from agent.backtest.result import Backtest
from agent.backtest.run import Named, run
from agent.backtest.span import Span
from agent.errors import ConfigError
from agent.oom.log import FailureCount
from agent.policy.types import DEFAULT
from agent.report import markdown
from agent.report.money import Assumptions
from agent.report.periods import HOUR, LONGEST_STEP, Periods
from agent.report.review import document
from agent.state import AgentState
from engine_hooks.detail import Detail
from engine_hooks.members import FrontendRow, RefusedRow
from tests.unit.builders import make_frontend
from tests.unit.details import make_work
from tests.unit.recordings import AT, leaking, moment, sound_engine, written

EVERYTHING = Span(0.0, 1e11)


def reviewed(*feeds: BundleFeed | RecorderFeed) -> tuple[Backtest, Periods]:
    periods = Periods(HOUR)
    return run([Named("default", DEFAULT)], feeds, look=periods), periods


def working(second: float, rebuilt: float, refused: int, *, instance: str = "i1", ooms: int = 0) -> AgentState:
    detail = Detail(monotonic=50.0, work=make_work(rebuild_seconds_total=rebuilt))
    row = FrontendRow(count=1, refused=(RefusedRow(tenant="a", reasons={"quota": refused}),))
    engine = sound_engine(
        detail=detail, instance=instance, running=0, waiting=0,
        members=(make_frontend(frontend=row, instance=f"front of {instance}"),), frontends_expected=1,
    )  # fmt: skip
    counts = (FailureCount(engine="m", process="", kind="oom", cause="out", count=ooms),) if ooms else ()
    return moment(second, engine, failure_counts=counts)


def test_counters_are_added_up_over_a_restart_and_begin_where_the_recording_does(tmp_path: Path) -> None:
    def states() -> Iterator[AgentState]:
        yield from (working(second, 100.0 + second, 7 + second // 10) for second in range(60))
        yield from (working(second, float(second - 60), second // 60, instance="i2") for second in range(60, 90))

    _, periods = reviewed(BundleFeed(written(tmp_path / "a.kvtide", states())))
    (period,) = periods.all()
    assert period.rebuild_seconds == pytest.approx(59.0 + 29.0)
    assert period.shed == 5 + 1
    assert period.mean_use == pytest.approx(0.3)
    assert period.most_use == pytest.approx(0.3)


def test_a_pause_of_the_recording_is_not_watched(tmp_path: Path) -> None:
    states = (working(second, 0.0, 0) for second in (0.0, 1.0, 1800.0, 1801.0))
    result, periods = reviewed(BundleFeed(written(tmp_path / "a.kvtide", states)))
    assert sum(each.seconds for each in periods.all()) == 2.0 + LONGEST_STEP
    assert result.histories[0].gaps == 1


def test_failures_are_counted_once_and_an_engine_that_serves_is_not_down(tmp_path: Path) -> None:
    states = (working(second, 0.0, 0, ooms=2 if second >= 20 else 0) for second in range(40))
    _, periods = reviewed(BundleFeed(written(tmp_path / "a.kvtide", states)))
    (period,) = periods.all()
    assert (period.ooms, period.down_seconds) == (2, 0.0)


def test_an_engine_that_is_gone_after_a_failure_is_down_until_it_is_back(tmp_path: Path) -> None:
    def states() -> Iterator[AgentState]:
        for second in range(60):
            state = working(float(second), 0.0, 0, ooms=1 if second >= 20 else 0)
            lost = replace(state.engines[0], phase="lost", pool=None, running=None, waiting=None, detail=None)
            yield replace(state, engines=(lost,)) if 20 <= second < 50 else state

    _, periods = reviewed(BundleFeed(written(tmp_path / "a.kvtide", states())))
    assert sum(each.down_seconds for each in periods.all()) == pytest.approx(30.0, abs=2.0)


def test_what_was_wrong_is_listed_by_kind(tmp_path: Path) -> None:
    result, periods = reviewed(BundleFeed(written(tmp_path / "a.kvtide", leaking(240, 90, 180))))
    text = markdown.render(document(result, periods.all(), HOUR, Assumptions(yearly_saving=230_000.0)))
    assert "| kv_orphan | warn | 1 |" in text
    assert "a return of 14.3" in text
    assert "nothing of it is measured" in text


def test_without_a_price_it_says_what_is_missing(tmp_path: Path) -> None:
    result, periods = reviewed(BundleFeed(written(tmp_path / "a.kvtide", leaking(60, 90))))
    text = markdown.render(document(result, periods.all(), HOUR, Assumptions()))
    assert "No sum is made: it needs --hourly-price, or --yearly-saving." in text
    assert "| price of one instance for an hour | - | not given |" in text
    assert "| instances | 1 |" in text


def test_a_recorders_folder_is_one_history_and_its_damage_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "recorder"
    folder.mkdir()
    written(folder / "coarse-00000001.kvtide", (moment(60.0 * minute) for minute in range(10)))
    (folder / "coarse-00000002.kvtide").write_bytes(b"nothing")
    written(folder / "coarse-00000003.kvtide", (moment(60.0 * minute) for minute in range(10, 20)))
    result, _ = reviewed(RecorderFeed(tmp_path, EVERYTHING))
    (history,) = result.histories
    assert history.states == 20
    assert len(result.remarks) == 1
    assert "coarse-00000002" in result.remarks[0]
    late, _ = reviewed(RecorderFeed(folder, Span(AT + 600, 1e11)))
    assert late.histories[0].states == 10


def test_a_folder_without_a_recorder_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no recorder keeps anything here"):
        RecorderFeed(tmp_path, EVERYTHING)
