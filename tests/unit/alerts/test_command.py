"""``kvtide alerts``: what it writes, what it finds wrong in a folder, and in a real Prometheus that has loaded it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from agent.cli.app import app, run
from alerts import build
from alerts.loaded import compare
from tests.bed import net
from tests.bed.prometheus import NEWER, STABLE, PrometheusServer, program

RULE_FILES = ("kvtide-recording.yml", "kvtide-alerts.yml")


def said(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["alerts", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert said("build", "--out", tmp_path / "rules").exit_code == 0
    return tmp_path / "rules"


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Without promtool and amtool, until a test puts them there."""
    monkeypatch.setenv("PATH", "/nowhere")
    return monkeypatch


def test_it_writes_what_is_built(folder: Path) -> None:
    assert {each.name: each.read_text() for each in folder.iterdir()} == build.files()
    assert said("build", "--out", folder).output == "0 files written\n"
    again = said("build", "--out", folder, "--grafana", "https://g.example", "--runbooks", "https://w.example/")
    assert "kvtide-alerts.yml" in again.output
    text = (folder / "kvtide-alerts.yml").read_text()
    assert "runbook_url: https://w.example/kv_orphan.md" in text
    assert "dashboard: https://g.example/d/kvtide-leaks?" in text


def test_a_policy_of_ones_own(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("serving: {rebuild_page_ratio: 0.42}\n")
    assert said("build", "--out", tmp_path, "--policy", policy).exit_code == 0
    assert "kvtide_rebuild_ratio > 0.42" in (tmp_path / "kvtide-alerts.yml").read_text()
    assert said("check", tmp_path, "--policy", policy).exit_code == 0
    assert said("check", tmp_path).exit_code == 1
    assert run(["alerts", "build", "--out", str(tmp_path), "--policy", str(tmp_path / "none.yaml")]) == 2


def test_a_folder_that_is_not_as_built(folder: Path, path: pytest.MonkeyPatch) -> None:
    sound = said("check", folder)
    assert sound.exit_code == 0
    assert "promtool is not on PATH: it has not read the files" in sound.output
    (folder / "alertmanager.yml").unlink()
    (folder / "kvtide-names.yml").write_text("groups: []\n")
    result = said("check", folder)
    assert result.exit_code == 1
    assert f"{folder / 'alertmanager.yml'}: is not there" in result.output
    assert f"{folder / 'kvtide-names.yml'}: not what would be written" in result.output


def test_promtool_reads_the_files_where_it_is_on_the_path(folder: Path, path: pytest.MonkeyPatch) -> None:
    path.setenv("PATH", str(Path(program("promtool")).parent))
    assert "promtool: right" in said("check").output
    (folder / "kvtide-names.yml").write_text("groups: [{name: kvtide-names, rules: [{record: a, expr: 'sum('}]}]\n")
    result = said("check", folder)
    assert result.exit_code == 1
    assert "promtool: " in result.output
    assert "parse error" in result.output


def test_what_cant_be_asked_is_one_line(path: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["alerts", "check", "--url", f"http://127.0.0.1:{net.free_port()}"]) == 1
    assert run(["alerts", "check", "--url", "prometheus"]) == 2
    assert [line.startswith("kvtide: ") for line in capsys.readouterr().err.splitlines()] == [True, True]


@pytest.mark.parametrize(
    "where", [STABLE, pytest.param(NEWER, marks=pytest.mark.skipif(not NEWER.exists(), reason="no Prometheus 3 here"))]
)
def test_what_a_real_prometheus_has_loaded(where: Path, folder: Path, path: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rules = {"rule_files": [str(folder / name) for name in RULE_FILES]}
    binary = program("prometheus", newer=where == NEWER)
    with PrometheusServer(tmp_path / "prometheus", more=rules, binary=binary) as server:
        sound = said("check", folder, "--url", server.url)
        assert sound.exit_code == 0, sound.output
        assert "not loaded, and needn't be: kvtide-textbook.yml" in sound.output
        assert "rules as built" in sound.output

        other = yaml.safe_load((folder / "kvtide-alerts.yml").read_text())
        first, second, *_, last = other["groups"][0]["rules"]
        first["expr"] = first["expr"].replace("0.005", "0.006")
        second["for"], second["annotations"]["summary"] = "2m", "leaks"
        last["alert"] = "KvtideOfOld"
        (folder / "kvtide-alerts.yml").write_text(yaml.safe_dump(other))
        server.reload()
        result = said("check", "--url", server.url)
        assert result.exit_code == 1
        assert "differs: KvtideBlocksOrphaned: expr\n" in result.output
        assert "differs: KvtideBlocksOrphanedMany: for, annotations\n" in result.output
        assert "missing: KvtideResidueLarge\n" in result.output
        assert "extra: KvtideOfOld: in a group of kvtide's, and not of this version\n" in result.output


def test_other_peoples_groups_are_left_alone() -> None:
    rule = {"name": "Node", "query": "up == 0", "type": "alerting"}
    found = compare({}, [{"name": "node", "rules": [rule]}, {"name": "kvtide-old", "rules": [rule | {"name": "K"}]}])
    assert found.extra == ("K",)
