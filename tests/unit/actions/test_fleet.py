"""The fleet's word: off and on, vetoes, undo and breakers of all nodes, by one file; and the fleet's verdicts."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from agent.actions.fleet import FleetOrders, parse
from agent.actions.outside import Outside, read
from agent.cli.app import run
from agent.policy.types import Policy
from tests.unit.actions.conftest import MakeRig
from tests.unit.actions.rig import Rig, policy, short

NODES, SHARES = "fleet:kvtide_nodes:count", "fleet:kvtide_verdict_nodes:ratio"


def fleet(file: Path, *words: str) -> int:
    """As a person would: the command has a loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run, ["actions", "fleet", *words, "--file", str(file)]).result()


async def nodes(make_rig: MakeRig, file: Path, **changes: Any) -> Rig:
    rig = await make_rig(policy(off_switch_file=str(file), **changes))
    await rig.seconds(1, short())
    return rig


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The rig's time is not that of the command."""
    found = [0.0]
    monkeypatch.setattr("agent.cli.fleet_file.time.time", lambda: found[0])
    return found


def wall(rig: Rig) -> float:
    return rig.actions.wall()


async def test_off_takes_back_on_all_nodes_and_on_goes_on(make_rig: MakeRig, tmp_path: Path) -> None:
    file = tmp_path / "fleet"
    rig = await nodes(make_rig, file)
    assert fleet(file, "off", "--why", "INC-1") == 0
    await rig.seconds(2, short())
    assert rig.done[0].phase == "undone"
    problem = rig.actions.state().problem
    assert problem.startswith(f"the fleet's off switch {file}: switched off by ")
    assert problem.endswith(": INC-1")
    assert fleet(file, "on") == 0
    await rig.seconds(70, short())
    assert len(rig.done) > 1


async def test_a_veto_for_the_fleet(make_rig: MakeRig, tmp_path: Path, now: list[float]) -> None:
    file = tmp_path / "fleet"
    rig = await nodes(make_rig, file)
    now[0] = wall(rig)
    assert fleet(file, "veto", "watermark", "--minutes", "5") == 0
    await rig.seconds(1, short())
    assert rig.done[0].phase == "undone"
    assert rig.done[0].reason.endswith(", for the fleet")
    await rig.seconds(62, short())  # its own cooldown
    assert {each.plan.lever for each in rig.done} == {"watermark", "active_cap"}
    assert rig.refusals()["vetoed"] == 1


async def test_undo_for_the_fleet_means_what_was_begun_before(
    make_rig: MakeRig, tmp_path: Path, now: list[float]
) -> None:
    file = tmp_path / "fleet"
    rig = await nodes(make_rig, file)
    now[0] = wall(rig) + 0.5
    assert fleet(file, "undo", "active_cap") == 0
    await rig.seconds(1, short())
    assert rig.done[0].phase == "in_force", "another lever is meant"
    now[0] = wall(rig)
    assert fleet(file, "undo") == 0
    await rig.seconds(1, short())
    assert rig.done[0].phase == "undone"
    await rig.seconds(70, short())
    assert rig.done[-1].phase == "in_force", "what came later is not meant"


async def test_breakers_of_the_fleet_are_closed_once(make_rig: MakeRig, tmp_path: Path, now: list[float]) -> None:
    file = tmp_path / "fleet"
    rig = await nodes(make_rig, file)
    rig.actions.book.open_breaker("of before")
    rig.clock.now += 1.0
    now[0] = wall(rig)
    assert fleet(file, "close-breaker") == 0
    await rig.look(short())
    assert not rig.actions.book.breaker.open
    rig.clock.now += 1.0
    rig.actions.book.open_breaker("of after")
    await rig.seconds(3, short())
    assert rig.actions.book.breaker.open


def said(file: Path) -> str:
    return read(Policy.model_validate({"actions": {"off_switch_file": str(file)}}), file.parent, 0.0, 0.0).off


@pytest.mark.parametrize(
    ("text", "off"),
    [("", ""), ("on\n", ""), ("0", ""), ("off", "off"), ("INC-1\nmore", "INC-1"), ("{}", ""), ('{"off": "x"}', "x")],
)
def test_one_word_or_json(tmp_path: Path, text: str, off: str) -> None:
    file = tmp_path / "fleet"
    file.write_text(text)
    assert parse(text).off == off
    assert said(file) == (off and f"the fleet's off switch {file}: {off}")


@pytest.mark.parametrize("text", ["{", '{"off": 1}', "{" + " " * (65 << 10) + "}"])
def test_one_that_can_t_be_read_counts_as_off(tmp_path: Path, text: str) -> None:
    file = tmp_path / "fleet"
    file.write_text(text)
    assert "can't be read" in said(file)
    assert said(tmp_path) != "", "a folder is no file"


def test_what_was_ordered_before_stays(tmp_path: Path) -> None:
    file = tmp_path / "fleet"
    assert fleet(file, "veto", "trim", "llama") == 0
    assert fleet(file, "veto", "pause") == 0
    assert fleet(file, "off") == 0
    assert fleet(file, "on") == 0
    found = parse(file.read_text())
    assert [(each.lever, each.engine) for each in found.vetoes] == [("trim", "llama"), ("pause", "*")]
    assert found.off == ""
    assert oct(file.stat().st_mode & 0o777) == "0o644"
    assert [each.name for each in tmp_path.iterdir()] == ["fleet"]


def test_for_a_config_map_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["actions", "fleet", "off", "--why", "INC-1", "--file", "-"]) == 0
    assert parse(capsys.readouterr().out).off.endswith("INC-1")


def test_what_is_wrong_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fleet(tmp_path / "fleet", "veto", "nothing") == 2
    assert fleet(tmp_path / "none" / "fleet", "off") == 1
    (tmp_path / "fleet").write_text("{")
    assert fleet(tmp_path / "fleet", "off") == 1
    assert len(capsys.readouterr().err.splitlines()) == 3
    assert FleetOrders() == parse("")


class Prometheus:
    """Answers a Prometheus's range queries with what a test gives, by query."""

    def __init__(self) -> None:
        self.answers: dict[str, list[dict[str, Any]]] = {}
        bed = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                result = bed.answers.get(form["query"][0], [])
                body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def say(self, nodes: str | None, **kinds: str) -> None:
        self.answers[NODES] = [] if nodes is None else [{"metric": {}, "values": [[1.0, nodes]]}]
        self.answers[SHARES] = [{"metric": {"kind": kind}, "values": [[1.0, share]]} for kind, share in kinds.items()]


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    found = Prometheus()
    yield found
    found.server.shutdown()
    found.thread.join()
    found.server.server_close()


def shares(prometheus: Prometheus, file: Path) -> int:
    return run(["actions", "fleet", "shares", "--from", prometheus.url, "--file", str(file)])


async def test_the_fleet_s_verdicts_freeze_what_stands_on_too_many(
    make_rig: MakeRig, tmp_path: Path, prometheus: Prometheus
) -> None:
    file = tmp_path / "shares"
    prometheus.say("10", kv_pressure="0.3", kv_orphan="0.1")
    assert shares(prometheus, file) == 0
    assert file.read_text() == "kv_orphan 0.1000\nkv_pressure 0.3000\n"
    rig = await make_rig(policy(fleet_file=str(file)))
    os.utime(file, (rig.unix, rig.unix))
    await rig.seconds(2, short())
    assert rig.refusals() == {"fleet": 1}
    prometheus.say("10", kv_pressure="0.1")
    assert shares(prometheus, file) == 0
    os.utime(file, (rig.unix, rig.unix))
    await rig.seconds(1, short())
    assert [each.plan.lever for each in rig.done] == ["watermark"]


def test_without_the_recording_rules_nothing_is_written(
    tmp_path: Path, prometheus: Prometheus, capsys: pytest.CaptureFixture[str]
) -> None:
    prometheus.say(None)
    assert shares(prometheus, tmp_path / "shares") == 1
    assert "are kvtide's recording rules loaded?" in capsys.readouterr().err
    assert not (tmp_path / "shares").exists()
    prometheus.say("10")
    assert shares(prometheus, tmp_path / "shares") == 0
    assert (tmp_path / "shares").read_text() == "", "no verdict stands anywhere: that is a word, too"


def test_the_first_look_knows_the_switches(tmp_path: Path) -> None:
    """Not known counts as off, and off gives an isolated engine its share back: not even for one look."""
    outside = Outside(Policy, tmp_path, "")
    outside.start()
    try:
        assert outside.said(time.monotonic()).off == ""
    finally:
        outside.close()


def test_what_is_said_follows_the_files_and_the_word_and_is_put_together_once(tmp_path: Path) -> None:
    word = FleetOrders()
    outside = Outside(Policy, tmp_path, "", lambda: word)
    outside.look()
    now = time.monotonic()
    first = outside.said(now)
    word = FleetOrders()
    assert outside.said(now) is first, "asked thirty times a second"
    word = FleetOrders(off="the fleet rests")
    assert outside.said(now).off == "the fleet rests"
    assert outside.said(now).orders[-1] == word
    (tmp_path / "actions.off").write_text("a person is at it")
    outside.look()
    assert "a person is at it" in outside.said(now).off
    word = FleetOrders()
    assert "a person is at it" in outside.said(now).off
    (tmp_path / "actions.off").unlink()
    outside.look()
    assert outside.said(now).off == ""


def test_switches_that_hang_hold_up_the_start_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    monkeypatch.setattr("agent.actions.outside.FIRST_SECONDS", 0.01)
    monkeypatch.setattr(Outside, "look", lambda _: hangs.wait(60.0))
    outside = Outside(Policy, tmp_path, "")
    outside.start()
    assert outside.said(time.monotonic()).off == "the off switches have not been read"
    outside.close()
    hangs.set()
