"""``kvtide dashboards`` as a user runs it: files, a Grafana, and one line for whatever is wrong."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from agent.cli import app
from dashboards.build import BUILT, boards
from tests.unit.dashboards.grafana import TOKEN, Grafana

UIDS = sorted(path.stem for path in BUILT.glob("*.json"))


class Ran(NamedTuple):
    """What a command wrote, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object, token: str | None = TOKEN) -> Ran:
    """Run ``kvtide dashboards`` with a token in its environment, or none."""
    out, err = io.StringIO(), io.StringIO()
    name = "KVTIDE_GRAFANA_TOKEN"
    environment = {each: value for each, value in os.environ.items() if each != name}
    with (
        mock.patch.dict(os.environ, environment | ({} if token is None else {name: token}), clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = app.run(["dashboards", *map(str, arguments)])
    ran = Ran(code, out.getvalue(), err.getvalue())
    assert token is None or token not in ran.stdout + ran.stderr, "a token is told to nobody"
    return ran


def refused(code: int, *arguments: object, token: str | None = TOKEN) -> str:
    ran = run(*arguments, token=token)
    assert ran.returncode == code, ran.stderr
    (line,) = ran.stderr.splitlines()
    return line.removeprefix("kvtide: ")


@pytest.fixture
def grafana() -> Iterator[Grafana]:
    with Grafana() as server:
        yield server


@pytest.fixture
def without_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python as it is where the SDK was not installed."""
    for name in list(sys.modules):
        if name.partition(".")[0] == "dashboards":
            monkeypatch.delitem(sys.modules, name)
        elif name.partition(".")[0] == "grafana_foundation_sdk":
            monkeypatch.setitem(sys.modules, name, None)


def test_boards_are_built_and_checked(tmp_path: Path) -> None:
    out = tmp_path / "boards"
    first = run("build", "--out", out)
    assert first.returncode == 0, first.stderr
    assert {path.stem for path in out.glob("*.json")} == {*UIDS}
    for name in ("datasources", "dashboards"):
        assert (out / "provisioning" / name / "kvtide.yaml").is_file()
    assert "0 files written" in run("build", "--out", out).stdout
    assert run("check", "--out", out).returncode == 0
    assert run("check").returncode == 0
    (out / "kvtide-node.json").write_text("{}")
    assert "kvtide-node.json" in refused(1, "check", "--out", out)


def test_a_policy_s_thresholds_are_in_what_is_built(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("score: {warn_below: 61.5}\n")
    out = tmp_path / "boards"
    assert run("build", "--out", out, "--policy", policy).returncode == 0
    assert "61.5" in (out / "kvtide-fleet.json").read_text()
    assert run("check", "--out", out, "--policy", policy).returncode == 0
    assert "not as built" in refused(1, "check", "--out", out)
    assert "no such profile" in refused(2, "build", "--out", out, "--policy", "nothing")


@pytest.mark.usefixtures("without_sdk")
def test_what_needs_the_sdk_says_so_and_the_rest_does_not(grafana: Grafana, tmp_path: Path) -> None:
    for command in (("build", "--out", tmp_path / "out"), ("check",)):
        assert "pip install 'kvtide[dashboards]'" in refused(1, *command)
    assert run("push", "--url", grafana.url).returncode == 0
    assert sorted(grafana.boards) == UIDS


def test_push_makes_the_folder_and_saves_every_board(grafana: Grafana) -> None:
    ran = run("push", "--url", grafana.url, "--message", "tonight")
    assert ran.returncode == 0, ran.stderr
    assert grafana.folders == {"kvtide": "kvtide"}
    for uid in UIDS:
        sent = grafana.saved[uid]
        assert (sent["folderUid"], sent["overwrite"], sent["message"]) == ("kvtide", True, "tonight")
        assert sent["dashboard"] == {**json.loads(boards()[f"{uid}.json"]), "id": None}
        assert f"/d/{uid}: created" in ran.stdout


def test_pushing_again_leaves_alone_what_is_as_it_is(grafana: Grafana) -> None:
    assert run("push", "--url", grafana.url).returncode == 0
    board, folder = grafana.boards["kvtide-node"]
    grafana.boards["kvtide-node"] = ({**board, "title": "mine"}, folder)
    assert "kvtide-node" in refused(1, "check", "--url", grafana.url)
    grafana.asked.clear()
    again = run("push", "--url", grafana.url)
    assert again.returncode == 0, again.stderr
    assert [path for method, path in grafana.asked if method == "POST"] == ["/api/dashboards/db"]
    assert grafana.boards["kvtide-node"][0]["title"] == board["title"]
    assert grafana.boards["kvtide-node"][0]["version"] == 2
    assert again.stdout.count("left as it is") == len(UIDS) - 1
    assert run("check", "--url", grafana.url).returncode == 0


def test_a_board_in_another_folder_is_moved(grafana: Grafana) -> None:
    assert run("push", "--url", grafana.url, "--folder", "").returncode == 0
    assert grafana.folders == {}
    assert run("push", "--url", grafana.url, "--folder", "ours").returncode == 0
    assert {folder for _, folder in grafana.boards.values()} == {"ours"}


def test_what_was_pushed_as_json(grafana: Grafana) -> None:
    ran = run("push", "--url", grafana.url, "--json")
    told = json.loads(ran.stdout)
    assert (ran.returncode, ran.stderr, told["folder_made"]) == (0, "", True)
    assert told["boards"] == dict.fromkeys(grafana.boards, "created")


def test_a_dry_run_writes_nothing(grafana: Grafana) -> None:
    ran = run("push", "--url", grafana.url, "--dry-run")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("would be") == len(UIDS) + 1
    assert {method for method, _ in grafana.asked} == {"GET"}
    assert grafana.boards == {}


def test_a_grafana_below_a_path_is_reached(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with Grafana("/monitoring") as grafana:
        ran = run("push", "--url", f"{grafana.url}/", "--token-file", file, token=None)
        assert ran.returncode == 0, ran.stderr
        assert sorted(grafana.boards) == UIDS
        lacking = refused(1, "push", "--url", grafana.url.removesuffix("/monitoring"))
        assert "its path may be lacking" in lacking


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, {"message": "Invalid API key"}, ("Invalid API key", "--token-file", "HTTP 401")),
        (403, {"message": "Access denied"}, ("Access denied", "Editor", "HTTP 403")),
        (412, {"message": "belongs to plugin", "status": "plugin-dashboard"}, ("belongs to plugin", "HTTP 412")),
        (400, {"message": "Cannot save provisioned dashboard"}, ("provisioned", "HTTP 400")),
        (500, b"", ("it does not say why", "HTTP 500")),
        (200, b"<html>Log in</html>", ("login page",)),
        (200, {"status": "no"}, ("does not say that it was saved",)),
        (200, {"message": "\x1b[2J"}, ("does not say that it was saved",)),
        (404, b"<html>", ("its path may be lacking",)),
    ],
)
def test_what_a_grafana_refuses_is_one_line(grafana: Grafana, status: int, body: object, words: tuple[str]) -> None:
    grafana.wrong["POST", "/api/dashboards/db"] = (status, body, {})
    line = refused(1, "push", "--url", grafana.url)
    assert all(word in line for word in words), line
    assert grafana.url in line
    assert "\x1b" not in line


def test_a_redirect_is_not_followed_with_the_token(grafana: Grafana) -> None:
    with Grafana() as other:
        grafana.wrong["GET", "/api/folders/kvtide"] = (302, b"", {"Location": f"{other.url}/login?next=secret"})
        line = refused(1, "push", "--url", grafana.url)
        assert f"{other.url}/login" in line
        assert "secret" not in line
        assert other.asked == []


def test_a_folder_of_that_name_with_another_uid_is_told(grafana: Grafana) -> None:
    grafana.folders["abc"] = "kvtide"
    assert "--folder" in refused(1, "push", "--url", grafana.url)
    assert run("push", "--url", grafana.url, "--folder", "abc").returncode == 0
    assert {folder for _, folder in grafana.boards.values()} == {"abc"}


def test_a_grafana_that_is_not_there_or_too_slow_is_one_line(grafana: Grafana) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert "no answer" in refused(1, "push", "--url", f"http://127.0.0.1:{free.getsockname()[1]}")
    grafana.slow = 3.0
    assert "no answer within 1 s" in refused(1, "push", "--url", grafana.url, "--timeout", 1)


@pytest.mark.parametrize(
    "url", ["grafana.example", "ftp://grafana.example", "http://", "http://x:port", "http://x/?a=b", "http://[::1"]
)
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    assert "--url" in refused(2, "push", "--url", url)


def test_a_token_is_needed_and_looked_at(grafana: Grafana, tmp_path: Path) -> None:
    assert "KVTIDE_GRAFANA_TOKEN" in refused(2, "push", "--url", grafana.url, token=None)
    empty, odd = tmp_path / "empty", tmp_path / "odd"
    empty.write_text("\n")
    odd.write_text("two\nlines")
    assert "there is no token in it" in refused(2, "push", "--url", grafana.url, "--token-file", empty)
    assert "no token" in refused(2, "push", "--url", grafana.url, "--token-file", odd)
    assert "No such file" in refused(2, "push", "--url", grafana.url, "--token-file", tmp_path / "none")
    assert grafana.asked == []
    assert "HTTP 401" in refused(1, "push", "--url", grafana.url, token="another")  # noqa: S106 - of nothing


def test_a_certificate_has_to_be_trusted(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["-keyout", str(key), "-out", str(certificate), "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *made],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Grafana(tls=context) as grafana:
        assert "--ca-file" in refused(1, "push", "--url", grafana.url)
        assert run("push", "--url", grafana.url, "--ca-file", certificate).returncode == 0
        assert sorted(grafana.boards) == UIDS
    assert "--ca-file" in refused(2, "push", "--url", "https://127.0.0.1:9", "--ca-file", tmp_path / "none")


def test_check_takes_a_folder_or_a_grafana() -> None:
    assert "give one of the two" in refused(2, "check", "--url", "http://127.0.0.1:9", "--out", "somewhere")
