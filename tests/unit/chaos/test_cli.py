"""``kvtide-chaos`` from a shell: a mistake is one line, and a fault of which nothing has come is no success."""

from __future__ import annotations

from pathlib import Path

import pytest
from kvtide_chaos import cli
from kvtide_chaos.freeze import FreezeInjector

from tests.bed import net


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(cli, "SAY_EVERY_SECONDS", 0.05)
    monkeypatch.setattr("sys.argv", ["kvtide-chaos", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["freeze", "99999999999999999999"], "there is no process 99999999999999999999 here"),
        (["freeze", "4194999"], "there is no process 4194999 here"),
        (["hang-ups", "localhost", "m"], "'localhost' is no server's address: write it as http://127.0.0.1:8000"),
        (["hang-ups", "unix:/x", "m"], "'unix:/x' is no server's address: write it as http://127.0.0.1:8000"),
    ],
)
def test_a_mistake_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert ended(monkeypatch, *arguments) == 2
    assert capsys.readouterr().err == f"kvtide-chaos: {told}\n"


def test_who_may_not_be_stopped_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr("os.kill", refuse)
    with pytest.raises(ValueError, match="process 7 is not ours to stop"):
        FreezeInjector(7).start()


def test_hang_ups_at_a_server_that_is_not_there_are_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{net.free_port()}"
    assert ended(monkeypatch, "hang-ups", url, "m", "--rate", "20requests/s", "--for", "500ms") == 1
    said = capsys.readouterr()
    assert "nobody has hung up: 0 refused, " in said.err
    assert "over" not in said.out


def test_a_leak_that_no_engine_has_taken_up_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert ended(monkeypatch, "kv", str(tmp_path), "--for", "300ms") == 1
    assert f"no block has leaked: does an engine run with KVTIDE_CHAOS_DIR={tmp_path}" in capsys.readouterr().err


def test_what_has_come_about_ends_with_0(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["kvtide-chaos", "memory", "--rate", "1MB/s", "--limit", "1MB", "--for", "200ms"])
    monkeypatch.setattr(cli, "SAY_EVERY_SECONDS", 0.05)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code in (0, None)
    assert "over: what can be taken back is taken back" in capsys.readouterr().out
