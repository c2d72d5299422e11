"""``kvtide record`` and ``kvtide replay`` as a user runs them, and the endpoint that a recording comes from."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path

import httpx2
import msgspec
import pytest
from starlette.testclient import TestClient

from agent.bundle.errors import BundleError
from agent.bundle.format import read
from agent.cli.app import run
from exporters.http import build_app
from tests.bed.agent import AgentProcess
from tests.unit.builders import make_state
from tests.unit.recordings import leaking, written
from tests.unit.replays import HEADER, log, rows

HERE, ELSEWHERE = ("127.0.0.1", 4000), ("10.0.0.9", 4000)


def asking(record: object, client: tuple[str, int] = HERE) -> TestClient:
    return TestClient(build_app(make_state, record), client=client)  # type: ignore[arg-type]


def made(path: Path, asked: list[float]) -> object:
    def record(seconds: float) -> Future[Path]:
        asked.append(seconds)
        answer: Future[Path] = Future()
        answer.set_result(written(path, leaking(5, 2)))
        return answer

    return record


def test_a_recording_is_sent_and_removed(tmp_path: Path) -> None:
    asked: list[float] = []
    answer = asking(made(tmp_path / "a", asked)).get("/api/v1/record?minutes=2.5")
    assert answer.status_code == 200
    assert asked == [150.0]
    assert not (tmp_path / "a").exists()
    (tmp_path / "b").write_bytes(answer.content)
    assert len(list(read(tmp_path / "b").states())) == 5


@pytest.mark.parametrize("minutes", ["0", "-1", "1441", "nan", "soon", "1e999"])
def test_minutes_that_can_not_be(tmp_path: Path, minutes: str) -> None:
    asked: list[float] = []
    answer = asking(made(tmp_path / "a", asked)).get(f"/api/v1/record?minutes={minutes}")
    assert (answer.status_code, asked) == (400, [])
    assert answer.text == "minutes must be a number above 0, 1440 at most\n"


def test_only_this_host_may_ask(tmp_path: Path) -> None:
    asked: list[float] = []
    record = made(tmp_path / "a", asked)
    for client in (ELSEWHERE, ("a name", 1), ("::ffff:10.0.0.9", 1)):
        answer = asking(record, client).get("/api/v1/record")
        assert answer.status_code == 403
        assert answer.text == "only this host may ask for recordings, and who is known by http.web_config_file\n"
    assert asked == []
    for here in ("::1", "::ffff:127.0.0.1"):  # the latter where [::] is listened on
        assert asking(record, (here, 4000)).get("/api/v1/record").status_code == 200


def test_what_can_not_be_recorded_is_said() -> None:
    answer = asking(None).get("/api/v1/record")
    assert (answer.status_code, answer.text) == (503, "the recorder is switched off (recorder.enabled)\n")

    def record(_seconds: float) -> Future[Path]:
        failed: Future[Path] = Future()
        failed.set_exception(BundleError("nothing is recorded: the disk is full"))
        return failed

    answer = asking(record).get("/api/v1/record")
    assert (answer.status_code, answer.text) == (503, "nothing is recorded: the disk is full\n")


def test_record_and_replay_from_a_real_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x.kvtide"
    with AgentProcess(tmp_path / "agent") as agent:
        agent.wait(lambda: agent.state()["recorder"]["states_total"] >= 2, 30.0)
        assert run(["record", "--url", agent.url, "--minutes", "5", "--out", str(out)]) == 0
        assert f"look at it with: kvtide replay {out}" in capsys.readouterr().out
        assert run(["record", "--url", agent.url, "--out", str(out)]) == 1
        assert capsys.readouterr().err == f"kvtide: {out}: is there already; choose another by --out\n"
        assert run(["record", "--url", agent.url, "--out", str(tmp_path / "no" / "x")]) == 1
        assert "No such file" in capsys.readouterr().err
        assert agent.metrics()["kvtide_recorder_up"] == 1
        kept = agent.kept
    assert run(["replay", str(out), "--json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert told["states"] >= 2
    assert told["live"]["only_live"] == told["live"]["only_replay"] == []
    assert (kept / "baselines.msgpack").exists()


def test_without_an_agent_record_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["record", "--url", "http://127.0.0.1:9", "--out", str(tmp_path / "x")]) == 1
    assert "no agent answers at http://127.0.0.1:9" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_an_agent_without_a_recorder_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text("recorder: {enabled: false}\npolicy: textbook\n")
    with AgentProcess(tmp_path / "agent", args=["--config", str(config)]) as agent:
        assert run(["record", "--url", agent.url, "--out", str(tmp_path / "x")]) == 1
        assert "the recorder is switched off (recorder.enabled)" in capsys.readouterr().err
        assert agent.state()["recorder"] is None
        assert not agent.kept.exists()


def test_replay_chooses_by_content(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = written(tmp_path / "a.csv", leaking(60, 10))
    csv = log(tmp_path, [HEADER, *rows([40_000.0] * 50)])
    assert run(["replay", str(bundle), str(csv), "--policy", "textbook"]) == 0
    text = capsys.readouterr().out
    assert "kv_orphan m" in text
    assert "policy: textbook" in text
    assert "GPU 0" in text
    assert run(["replay", str(bundle), str(csv), "--json"]) == 0
    first, second = msgspec.json.decode(capsys.readouterr().out)
    assert (first["states"], second["gpus"][0]["gpu"]) == (60, "0")


def test_a_bundle_without_its_head_is_no_log_of_nvidia_smi(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in (b"", b"hello", b"KVT"):
        file = tmp_path / "a.kvtide"
        file.write_bytes(text)
        assert run(["replay", str(file)]) == 1
        assert capsys.readouterr().err == f"kvtide: {file}: is not a kvtide bundle\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["a", "--columns", "x"], "--columns: is for logs of nvidia-smi, and all files are bundles"),
        (["a", "--interval", "1"], "--interval: is for logs of nvidia-smi, and all files are bundles"),
        (["a", "--total-mib", "1"], "--total-mib: is for logs of nvidia-smi, and all files are bundles"),
        (["a", "--policy", "of mine"], "policy 'of mine': there is no such file"),
    ],
)
def test_options_that_nothing_would_read_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    written(tmp_path / "a", leaking(3, 100))
    assert run(["replay", str(tmp_path / arguments[0]), *arguments[1:]]) == 2
    assert capsys.readouterr().err.startswith(f"kvtide: {why}")


def test_a_policy_without_a_bundle_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    csv = log(tmp_path, [HEADER, *rows([40_000.0] * 50)])
    assert run(["replay", str(csv), "--policy", "textbook"]) == 2
    assert capsys.readouterr().err == "kvtide: --policy: is for bundles, and there is none among the files\n"


async def test_one_recording_is_made_at_a_time(tmp_path: Path) -> None:
    waiting: Future[Path] = Future()
    app = build_app(make_state, lambda _seconds: waiting)
    transport = httpx2.ASGITransport(app, client=HERE)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        first = asyncio.create_task(http.get("/api/v1/record"))
        await asyncio.sleep(0)
        for _ in range(100):
            second = await http.get("/api/v1/record?minutes=1")
            if not first.done():
                break
        assert (second.status_code, second.text) == (503, "another recording is being made; try again\n")
        waiting.set_result(written(tmp_path / "a", leaking(5, 2)))
        assert (await first).status_code == 200
