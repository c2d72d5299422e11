"""Range queries: bounded, told apart, and every failure is one line that shows no secret."""

from __future__ import annotations

import gzip
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.backtest.prometheus import client
from agent.backtest.prometheus.client import Prometheus, Series
from agent.backtest.prometheus.errors import PrometheusError, TooLargeError
from agent.errors import ConfigError, KvtideError
from tests.unit.stub_prometheus import Answer, Question, StubPrometheus, matrix

SERIES = {"metric": {"__name__": "up", "job": "a"}, "values": [[10, "1"], [25.5, "NaN"]]}


def ask(answer: Callable[[Question], Answer] | Answer, **options: object) -> list[Series]:
    with StubPrometheus(answer if callable(answer) else lambda _: answer) as stub:
        prometheus = Prometheus(stub.url, **options)  # type: ignore[arg-type]
        try:
            return prometheus.range("up", 10.0, 40.0, 15.0)
        finally:
            prometheus.close()


def refusal(answer: Callable[[Question], Answer] | Answer) -> str:
    with pytest.raises(PrometheusError) as caught:
        ask(answer)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert len(text) < 600
    assert caught.value.exit_code == 1
    return text.partition(": ")[2]


def test_what_it_asks_and_what_it_gets() -> None:
    with StubPrometheus(lambda _: matrix(SERIES)) as stub:
        prometheus = Prometheus(f"{stub.url}/")
        assert prometheus.range('up{a="b"}', 1.0, 31.0, 15.0) == [
            Series({"__name__": "up", "job": "a"}, [(10.0, "1"), (25.5, "NaN")])
        ]
        prometheus.close()
        assert stub.asked == [Question('up{a="b"}', 1.0, 31.0, 15.0)]
        assert "Authorization" not in stub.headers[0]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer(b""), "what came is no answer of a Prometheus"),
        (Answer(b"\xff\x00" * 100), "what came is no answer of a Prometheus"),
        (Answer(b"[" * 100_000), "what came is no answer of a Prometheus"),
        (Answer(b"<!DOCTYPE html><html>Log in"), "what came is a page for people (HTML), such as a login"),
        (Answer({"status": "success"}), "it refuses: it does not say why"),
        (Answer({"status": "success", "data": {"resultType": "vector", "result": []}}), "what came is a vector, not a"),
        (Answer({"status": "success", "data": {"resultType": "matrix", "result": {}}}), "its series can't be read: "),
        (matrix({"metric": {"a": 1}, "values": []}), "its series can't be read: "),
        (matrix({"metric": {}, "values": [[1]]}), "its series can't be read: "),
        (matrix({"metric": {}, "values": [["1", "1"]]}), "its series can't be read: "),
        (
            Answer({"status": "error", "errorType": "bad_data", "error": "parse error\nline 2\x1b[2J"}, 400),
            "it refuses: bad_data: parse error\ufffdline 2\ufffd[2J",
        ),
        (Answer({"status": "error", "error": "x" * 10_000}, 422), "it refuses: xxxx"),
        (Answer({"status": "error", "errorType": "timeout"}, 503), "it refuses: timeout (it is overloaded, or"),
        (Answer(b"no", 401), "HTTP 401 (it wants a token: see --token-file)"),
        (Answer(b"no", 403), "HTTP 403 (it does not let us: see --token-file)"),
        (Answer(b"no", 404), "HTTP 404 (there is no Prometheus at this address"),
        (Answer(b"no", 500), "HTTP 500"),
        (
            Answer(b"", 302, {"Location": "https://login.example/?token=secret"}),
            "it sends us to https://login.example/: give that URL, or a token if it is a login",
        ),
        (Answer(b"{}", 200, {"Content-Length": "10"}), "no answer ("),
        (Answer(b"not gzip", 200, {"Content-Encoding": "gzip"}), "no answer ("),
    ],
)
def test_what_is_no_history_is_one_line(answer: Answer, told: str) -> None:
    assert refusal(answer).startswith(told)


def test_an_answer_without_end_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_BYTES", 1 << 16)
    with pytest.raises(TooLargeError):
        ask(Answer(b" " * (1 << 17)))
    # Small on the wire, and not so when unpacked.
    with pytest.raises(TooLargeError):
        ask(Answer(gzip.compress(b" " * (1 << 22)), 200, {"Content-Encoding": "gzip"}))
    assert ask(Answer(b" " * 60_000 + b'{"status":"success","data":{"resultType":"matrix","result":[]}}')) == []


def test_nobody_there() -> None:
    prometheus = Prometheus("http://127.0.0.1:1/prometheus", timeout=1.0)
    with pytest.raises(PrometheusError, match=r"^http://127\.0\.0\.1:1/prometheus: no answer "):
        prometheus.range("up", 0.0, 1.0, 1.0)
    prometheus.close()


@pytest.mark.parametrize(
    "url",
    ["ftp://a", "http://", "a:9090", "http://a:99999", "http://[::1", "http://a/?x=1", "http://a/#b", "http://a b/"],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(KvtideError) as caught:
        Prometheus(url).range("up", 0.0, 1.0, 1.0)
    assert len(str(caught.value).splitlines()) == 1


def test_a_password_is_used_and_never_shown() -> None:
    with StubPrometheus(lambda _: Answer(b"no", 500)) as stub:
        prometheus = Prometheus(stub.url.replace("://", "://me:secret@"))
        with pytest.raises(PrometheusError) as caught:
            prometheus.range("up", 0.0, 1.0, 1.0)
        prometheus.close()
    assert "secret" not in str(caught.value)
    assert stub.headers[0]["Authorization"].startswith("Basic ")


def test_a_token_from_a_file(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("abc.def\n")
    with StubPrometheus(lambda _: matrix()) as stub:
        prometheus = Prometheus(stub.url, token_file=token)
        prometheus.range("up", 0.0, 1.0, 1.0)
        prometheus.close()
    assert stub.headers[0]["Authorization"] == "Bearer abc.def"
    for content, told in ((b"", "no token in it"), (b"a\nb", "no token in it"), (b"\xff", "not text")):
        token.write_bytes(content)
        with pytest.raises(ConfigError, match=told):
            Prometheus("http://a", token_file=token)
    with pytest.raises(ConfigError, match="No such file"):
        Prometheus("http://a", token_file=tmp_path / "none")


def test_certificates_to_trust(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 2 -subj /CN=127.0.0.1 "
        "-addext subjectAltName=IP:127.0.0.1".split(),
        check=True,
        capture_output=True,
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with StubPrometheus(lambda _: matrix(SERIES), tls) as stub:
        trusting = Prometheus(stub.url, ca_file=certificate)
        assert len(trusting.range("up", 0.0, 1.0, 1.0)) == 1
        trusting.close()
        careful = Prometheus(stub.url)
        with pytest.raises(PrometheusError, match="CERTIFICATE_VERIFY_FAILED"):
            careful.range("up", 0.0, 1.0, 1.0)
        careful.close()
    key.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"^--ca-file "):
        Prometheus("https://a", ca_file=key)
    with pytest.raises(ConfigError, match="No such file"):
        Prometheus("https://a", ca_file=tmp_path / "none")
