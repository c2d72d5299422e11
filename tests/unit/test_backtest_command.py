"""Whole histories judged, what people see of it, and the command."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from agent.backtest.compare import compare
from agent.backtest.result import Backtest
from agent.backtest.run import Feed, Named, run
from agent.backtest.span import Span, seconds_of, shown, span_of
from agent.backtest.text import MOST, render
from agent.bundle.format import Header, Usuals, Writer
from agent.bundle.header import Label as BundleLabel
from agent.cli.app import app
from agent.cli.app import run as run_command
from agent.errors import ConfigError
from agent.faces.terminal import Terminal
from agent.judge import Judge
from agent.policy.types import DEFAULT, TEXTBOOK, Policy
from agent.replay.bundles import AGENT_ENDED
from agent.state import AgentState
from tests.unit.backtests import MONO, WALL, Given, M, episode, label, leaking


def test_a_history_by_two_policies() -> None:
    feed: Feed = Given(leaking(), (label(600),))
    result = run([Named("mine", DEFAULT), Named("textbook", TEXTBOOK)], [feed])
    (history,) = result.histories
    assert (history.name, history.states, history.watched_seconds, history.engines) == ("night", 360, 1795.0, ("m",))
    assert history.began == WALL
    assert "refused" in history.harm
    mine, textbook = history.outcomes
    leak = next(each for each in mine.episodes if each.kind == "kv_orphan")
    assert WALL + 600 < leak.confirmed_at < WALL + 630
    assert leak.harm is not None
    assert (leak.harm.what, leak.harm.at) == ("refused", WALL + 1205)
    assert leak.lead_seconds == WALL + 1205 - leak.confirmed_at
    assert leak.expected is True
    assert mine.found is not None
    (hit,) = mine.found
    assert (hit.delay_seconds, hit.lead_seconds) == (leak.confirmed_at - WALL - 600, leak.lead_seconds)
    first_total, second_total = result.totals
    assert (first_total.policy, first_total.hits, first_total.misses, first_total.false) == ("mine", 1, 0, 0)
    assert first_total.pages_per_day == pytest.approx(first_total.pages * 86_400 / 1795)
    assert second_total.profile == "textbook"
    assert history.comparison is not None
    assert leak in [pair.first for pair in history.comparison.both]
    assert len(history.comparison.both) + len(history.comparison.only_second) == len(textbook.episodes)
    assert result.remarks == ("its end is lacking",)


def test_several_histories_are_judged_apart_and_added_up() -> None:
    states = leaking()
    result = run([Named("default", DEFAULT)], [Given(states[:100]), Given(states[100:])])
    assert [history.states for history in result.histories] == [100, 260]
    assert result.watched_seconds == sum(history.watched_seconds for history in result.histories)
    assert result.totals[0].hits is None  # nobody says what was wrong
    assert run([Named("default", DEFAULT)], []).totals[0].pages_per_day is None


def test_an_agent_that_began_anew_judges_anew_and_a_clock_that_begins_anew_goes_on() -> None:
    states = leaking()[:200]  # to 1000 s; the leak is from 600 s on
    # The host was started anew: its clock, too, and a minute later everything goes on as before.
    after = [
        replace(each, at=each.at + 1060, monotonic=each.monotonic - MONO, started_at=WALL + 1000) for each in states
    ]
    back = replace(states[-1], monotonic=states[-1].monotonic - 100)  # one that came late: nobody looks at it
    result = run([Named("default", DEFAULT), Named("textbook", TEXTBOOK)], [Given([*states, back, *after])])
    (history,) = result.histories
    assert (history.states, history.gaps, history.gap_seconds) == (400, 1, 65.0)
    assert (history.began, history.ended) == (WALL, WALL + 2055)
    for outcome in history.outcomes:
        first_leak, second_leak = [each for each in outcome.episodes if each.kind == "kv_orphan"]
        assert (first_leak.resolved_at, first_leak.ending) == (WALL + 995, AGENT_ENDED)
        assert second_leak.confirmed_at == first_leak.confirmed_at + 1060
        assert second_leak.resolved_at is None


def test_what_an_agent_had_learned_is_known_to_every_policy() -> None:
    learned = Usuals(baselines=Judge().baselines())
    given: list[Any] = [learned, *leaking()[:5]]
    result = run([Named("default", DEFAULT), Named("textbook", TEXTBOOK)], [Given(given)])
    assert [history.states for history in result.histories] == [5]


def text_of(result: Backtest, width: int = 100) -> str:
    terminal = Terminal(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    terminal.print(render(result))
    return terminal.export_text()


def test_what_people_see() -> None:
    policy = Policy.model_validate({"growth": {"page_per_minute": 0.5}})
    result = run([Named("mine.yaml", policy), Named("textbook", TEXTBOOK)], [Given(leaking(), (label(600),))])
    text = text_of(result)
    for part in (
        "mine.yaml: growth.page_per_minute is 0.5, in the profile default 0.08",
        "pages a day, from 29 min",
        "faults found",
        "1 of 1",
        "Only by mine.yaml: nothing",
        "Only by textbook: ",
        "kv_orphan m: confirmed after ",
        "Harm: memory was refused ",
        " after the verdict.",
        "mine.yaml: kv_orphan of m from 11-14 22:23:20: found after ",
        "its end is lacking",
    ):
        assert part in text, part
    assert max(map(len, text.splitlines())) <= 100
    assert "There was nothing to judge." in text_of(run([Named("default", DEFAULT)], []))
    assert "By its labels nothing is wrong here." in text_of(run([Named("default", DEFAULT)], [Given(leaking(), ())]))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "other: at the same time, stood at the end"),
        ({"confirmed_at": MONO + 160, "paged_at": MONO + 160}, "other: 60 s later, stood at the end"),
        ({"paged_at": MONO + 400}, "other: at the same time, a page 5 min later, stood at the end"),
        ({"tier": "warn", "paged_at": None}, "other: at the same time, as warn, stood at the end"),
        (
            {"confirmed_at": MONO + 95, "resolved_at": MONO + 150, "ending": "engine gone"},
            "other: 5.0 s earlier, lasted 60 s (engine gone)",
        ),
    ],
)
def test_what_a_second_policy_says_otherwise(changes: dict[str, Any], told: str) -> None:
    one = episode(100)
    other = replace(one, **changes)
    result = run([Named("mine", DEFAULT), Named("other", DEFAULT)], [Given(leaking()[:2])])
    history = replace(result.histories[0], comparison=compare([one], [other]))
    lines = [each.strip() for each in text_of(replace(result, histories=(history,))).splitlines()]
    assert [each for each in lines if each.startswith("other: ")] == [told]


def test_a_long_list_is_cut_and_says_so_and_nothing_steers_the_terminal() -> None:
    result = run([Named("\x1b[2Jmine", DEFAULT)], [Given(leaking())])
    many = tuple(episode(at, sentence="\x1b[31mred\x07") for at in range(MOST + 3))
    (history,) = result.histories
    history = replace(history, name="\x1b]0;x\x07", outcomes=(replace(history.outcomes[0], episodes=many),))
    text = text_of(replace(result, histories=(history,), remarks=("\x1b[5m",)))
    assert "3 more: --json has all" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def bundle(path: Path, states: Iterable[AgentState], labelled: bool = True) -> Path:
    labels = (BundleLabel(kind="kv_orphan", subject=M, onset=MONO + 600),) if labelled else ()
    with Writer(path, Header(why="test", labelled=labelled, labels=labels)) as writer:
        for each in states:
            writer.state(each)
    return path


def command(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["backtest", *arguments], standalone_mode=False)
    return (run_command(["backtest", *arguments]) if result.exception else result.exit_code), result.output


def test_the_command_on_bundles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = bundle(tmp_path / "one.kvtide", leaking())
    two = bundle(tmp_path / "two.kvtide", leaking()[:50], labelled=False)
    mine = tmp_path / "mine.yaml"
    mine.write_text("profile: textbook\n")
    code, output = command("--policy", str(mine), "--against", "default", "--from", str(one), str(two), "--json")
    assert code == 0
    result = msgspec.json.decode(output, type=Backtest)
    assert [history.name for history in result.histories] == [str(one), str(two)]
    assert [total.policy for total in result.totals] == ["mine.yaml", "default"]
    assert result.totals[1].hits == 1
    direct = run([Named("default", DEFAULT)], [Given(leaking(), (label(600),))])
    assert result.histories[0].outcomes[1].episodes == direct.histories[0].outcomes[0].episodes
    code, output = command(str(two))
    assert (code, "What would have been said: nothing" in output) == (0, True)
    one.write_bytes(one.read_bytes()[:-40])  # torn: what is there is judged, and what is not is said
    code, output = command(str(one))
    assert (code, f"{one.name}: it" in output.replace("\n", "")) == (0, True)
    capsys.readouterr()
    for arguments, exit_code, told in (
        ([], 2, "--from: a bundle or the URL of a Prometheus is needed"),
        (["--from", str(mine)], 1, "is not a kvtide bundle"),
        (["--from", str(tmp_path / "none")], 1, "No such file"),
        (["--from", str(one), "--policy", "none"], 2, "there is no such file, and no such profile"),
        (["--from", str(one), "--against", "default"], 2, "--against: default: is the policy itself"),
        (["--from", str(one), "--range", "3h"], 2, "--range: 3h: is for a Prometheus; a bundle is judged whole"),
        (["--from", "http://127.0.0.1:1"], 1, "no answer"),
        (["--from", "http://127.0.0.1:1", "--range", "2"], 2, "must be a duration such as"),
        (["--from", "http://127.0.0.1:1", "--step", "0s"], 2, "must be a duration such as"),
        (["--from", "http://127.0.0.1:1", "--metrics", "x"], 2, "must be one of auto, kvtide, engines"),
        (["--from", "gopher://a"], 2, "a Prometheus must be like http://127.0.0.1:9090"),
    ):
        assert command(*arguments)[0] == exit_code, arguments
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("kvtide: ")
        assert told in line


@pytest.mark.parametrize(
    ("text", "seconds"), [("15s", 15), ("0.5s", 0.5), ("90m", 5400), ("2h", 7200), ("1h30m", 5400), ("2w", 1_209_600)]
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text, "--step") == seconds
    assert span_of(text, 2_000_000.0) == Span(2_000_000.0 - seconds, 2_000_000.0)


@pytest.mark.parametrize("text", ["", "s", "15", "-5s", "0s", "1h 30m", "1x", "1e3s", "9" * 20 + "d", "\u0661s", "1.s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--step: .*must be a duration"):
        seconds_of(text, "--step")


def test_spans() -> None:
    assert span_of("1000..2000.5", 0.0) == Span(1000.0, 2000.5)
    assert span_of("1000..now", 5000.0) == Span(1000.0, 5000.0)
    assert span_of("2023-11-14T22:13:20Z..2023-11-14T23:13:20+00:00", 0.0) == Span(WALL, WALL + 3600)
    assert shown(WALL) == "11-14 22:13:20"
    for wrong in ("5..4", "5..5", "..5", "5..", "a..b", "1..9999999999999", "0001-01-01..2", "5..6..7"):
        with pytest.raises(ConfigError, match=r"^--range: ") as caught:
            span_of(wrong, 10.0)
        assert len(str(caught.value).splitlines()) == 1
