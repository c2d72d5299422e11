"""Getting a page from a real server on loopback: what can go wrong is a reason, and none costs more than its time."""

from __future__ import annotations

import gzip
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from agent.sources.scrape.ask import Asker
from agent.sources.scrape.fetch import MAX_BYTES, Fetcher, FetchError
from agent.sources.scrape.page import PageError
from tests.bed.net import free_port
from tests.bed.pages import PageServer, Reply, page, serving
from tests.unit.support import eventually

PATIENCE = 30.0


def refused(answer: Callable[[str], Reply] | str, timeout: float = PATIENCE, path: str = "") -> str:
    with serving(answer) as server, pytest.raises(FetchError) as caught:
        Fetcher(server.url + path, timeout).get()
    return str(caught.value)


def test_a_page_comes_over_a_connection_that_is_kept() -> None:
    with serving(page()) as server:
        fetcher = Fetcher(server.url, PATIENCE)
        assert [fetcher.get().text for _ in range(3)] == [page()] * 3
        assert [path for path, _ in server.asked] == ["/metrics"] * 3
        assert server.connections == 1
        fetcher.close()
        assert fetcher.get().text == page()
        assert server.connections == 2
        fetcher.close()


def test_gzip_is_not_asked_for_and_is_understood() -> None:
    packed = Reply(gzip.compress(page().encode()), headers={"Content-Encoding": "gzip"})
    with serving(lambda _: packed) as server:
        assert Fetcher(server.url, PATIENCE).get().text == page()
        assert server.asked[0][1]["Accept-Encoding"] == "identity"


def chunked(*parts: bytes, end: bytes = b"0\r\n\r\n") -> Reply:
    body = b"".join(b"%x;x=y\r\n%s\r\n" % (len(part), part) for part in parts) + end
    return Reply(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)


@pytest.mark.parametrize(
    "reply",
    [
        chunked(page()[:100].encode(), page()[100:].encode()),
        chunked(page().encode(), end=b"0\r\nTrailer: x\r\n\r\n"),
        Reply(raw=b"HTTP/1.0 200 OK\r\n\r\n" + page().encode()),
        Reply(page(), headers={"Content-Type": "text/html"}),
        Reply(page(), headers={"Content-Type": "application/json", "Connection": "close"}),
    ],
    ids=["chunks", "a trailer", "until the end of the connection", "called HTML", "called JSON"],
)
def test_a_page_is_known_by_what_it_is(reply: Reply) -> None:
    with serving(lambda _: reply) as server:
        fetcher = Fetcher(server.url, PATIENCE)
        assert [fetcher.get().text, fetcher.get().text] == [page()] * 2


def test_a_redirect_is_followed_on_the_same_server_only() -> None:
    with serving(page()) as elsewhere:

        def answer(path: str) -> Reply:
            if path == "/metrics":
                return Reply(status=307, headers={"Location": "/metrics/"})
            if path == "/away":
                return Reply(status=302, headers={"Location": f"{elsewhere.url}/metrics"})
            return Reply(status=307, headers={"Location": path}) if path == "/round" else Reply(page())

        with serving(answer) as server:
            assert Fetcher(server.url, PATIENCE).get().text == page()
        assert f"it sends us to {elsewhere.url}/metrics" in refused(answer, path="/away")
        assert refused(answer, path="/round") == "HTTP 307: Temporary Redirect"
        assert not elsewhere.asked


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "HTTP 401: it wants a token: see bearer_token_file"),
        (404, "HTTP 404: there is no page; SGLang has one only with --enable-metrics"),
        (500, "HTTP 500: Internal Server Error"),
        (503, "HTTP 503: Service Unavailable"),
    ],
)
def test_an_error_is_said_in_words(status: int, reason: str) -> None:
    assert refused(lambda _: Reply("no", status=status)) == reason


def test_a_token_is_sent_and_read_again_each_time(tmp_path: Path) -> None:
    token = tmp_path / "token"

    with serving(page()) as server:
        fetcher = Fetcher(server.url, PATIENCE, token_file=token)
        with pytest.raises(FetchError, match=r"bearer_token_file .*: No such file"):
            fetcher.get()
        token.write_text("secret-1\n")
        fetcher.get()
        token.write_text("secret-2\n")
        fetcher.get()
        assert [headers["Authorization"] for _, headers in server.asked] == ["Bearer secret-1", "Bearer secret-2"]
        token.write_text("two\nlines")
        with pytest.raises(FetchError, match="no token in it"):
            fetcher.get()
    with serving(page()) as server:
        Fetcher(server.url, PATIENCE).get()
        assert "Authorization" not in server.asked[0][1]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "what answers does not speak HTTP"),
        (b"x" * 100_000, "what answers does not speak HTTP, or says too much before its page"),
        (b"", "it ended the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "the connection ended before the page did"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nshort", "the connection ended before the page did"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nsho", "the connection ended before the page did"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nshort", "in chunks that can't be told apart"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "the page has more than 8 MiB"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nnot gzip", "the page is not gzip although it says so"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\nx", "the page is encoded as 'br'"),
    ],
)
def test_what_is_no_answer_is_refused(raw: bytes, reason: str) -> None:
    assert reason in refused(lambda _: Reply(raw=raw))


def test_a_page_that_is_too_large_is_refused_however_it_comes() -> None:
    large = b"x" * (MAX_BYTES + 1)
    assert "more than 8 MiB" in refused(lambda _: Reply(raw=b"HTTP/1.1 200 OK\r\n\r\n" + large))
    assert "more than 8 MiB" in refused(lambda _: chunked(*[large[: 1 << 20]] * 9))
    bomb = gzip.compress(large)
    assert len(bomb) < 100_000
    assert "more than 8 MiB" in refused(lambda _: Reply(bomb, headers={"Content-Encoding": "gzip"}))


def test_nobody_there_and_an_unknown_name() -> None:
    port = free_port()
    with pytest.raises(FetchError, match=f"nobody listens at 127.0.0.1:{port}"):
        Fetcher(f"http://127.0.0.1:{port}", PATIENCE).get()
    with pytest.raises(FetchError, match=r"the name no-such-host\.invalid is not known here"):
        Fetcher("http://no-such-host.invalid", PATIENCE).get()


def test_a_server_that_does_not_answer_costs_its_time_and_no_more() -> None:
    with serving(page()) as server:

        def wait(_: str) -> Reply:
            server.let_go.wait(PATIENCE)
            return Reply(page())

        server.answer = wait
        with pytest.raises(FetchError, match=r"no whole page within 0\.2 s"):
            Fetcher(server.url, 0.2).get()


def test_one_that_drips_its_answer_is_given_up_in_time() -> None:
    """Each byte comes in time, the page does not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def drip() -> None:
            peer, _ = listener.accept()
            with peer:
                while not done.is_set():
                    try:
                        peer.sendall(b"H")
                    except OSError:
                        return
                    time.sleep(0.02)

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(FetchError, match=r"no whole page within 0\.3 s"):
                Fetcher(f"http://127.0.0.1:{listener.getsockname()[1]}", 0.3).get()
        finally:
            done.set()
            thread.join()


def test_closing_breaks_off_a_get_under_way() -> None:
    asked = threading.Event()
    with serving(page()) as server:

        def wait(_: str) -> Reply:
            asked.set()
            server.let_go.wait(PATIENCE)
            return Reply(page())

        server.answer = wait
        fetcher = Fetcher(server.url, 1000 * PATIENCE)
        failed = threading.Event()

        def get() -> None:
            try:
                fetcher.get()
            except FetchError:
                failed.set()

        thread = threading.Thread(target=get)
        thread.start()
        assert asked.wait(PATIENCE)
        fetcher.close()
        eventually(failed.is_set)
        thread.join()


def test_a_connection_that_the_server_has_ended_is_made_again() -> None:
    with serving(page()) as server:
        fetcher = Fetcher(server.url, PATIENCE)
        fetcher.get()
        server.answer = lambda _: Reply(page(), headers={"Connection": "close"})
        fetcher.get()
        assert fetcher.get().text == page()


def test_tls_needs_a_certificate_that_is_trusted(tmp_path: Path) -> None:
    tool = shutil.which("openssl")
    if tool is None:
        pytest.skip("openssl makes this test's certificate and is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        [tool, *command.split(), "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(page(), context) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        assert Fetcher(url, PATIENCE, ca_file=certificate).get().text == page()
        with pytest.raises(FetchError, match=r"its certificate is not trusted: self.signed certificate"):
            Fetcher(url, PATIENCE).get()
        with pytest.raises(FetchError, match="its certificate is not trusted: IP address mismatch"):
            Fetcher(server.url, PATIENCE, ca_file=certificate).get()
        with pytest.raises(FetchError, match=r"tls_ca_file .*: No such file"):
            Fetcher(url, PATIENCE, ca_file=tmp_path / "none").get()
    with serving(page()) as server, pytest.raises(FetchError, match="it does not speak TLS with us"):
        Fetcher(server.url.replace("http:", "https:"), PATIENCE).get()


# -- asking for no more than is needed --------------------------------------------------------------------


class Engine:
    """The series that we use and a histogram, as a collector of prometheus_client's."""

    usage = 0.25

    def collect(self) -> Iterator[Metric]:
        labels = ("engine", "model_name")
        for name in ("kv_cache_usage_perc", "num_requests_running", "num_requests_waiting"):
            gauge = GaugeMetricFamily(f"vllm:{name}", "x", labels=labels)
            gauge.add_metric(("0", "m"), self.usage)
            yield gauge
        for name in ("prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits"):
            counter = CounterMetricFamily(f"vllm:{name}", "x", labels=labels)
            counter.add_metric(("0", "m"), 7)
            yield counter
        info = GaugeMetricFamily("vllm:cache_config_info", "x", labels=("engine", "block_size"))
        info.add_metric(("0", "16"), 1)
        yield info
        histogram = HistogramMetricFamily("vllm:e2e_request_latency_seconds", "x", labels=labels)
        histogram.add_metric(("0", "m"), [(str(n), n) for n in range(20)] + [("+Inf", 20)], 1.0)
        yield histogram


class Exporter:
    """As vLLM does: /metrics is whole; /metrics/ is prometheus_client's own app, which gives what is asked for.

    Its registry of several processes' metrics knows no names (``named`` False): what is asked for by name is empty.
    """

    def __init__(self, named: bool = True) -> None:
        self.engine = Engine()
        self._registry = CollectorRegistry(auto_describe=named)
        self._registry.register(self.engine)

    def __call__(self, path: str) -> Reply:
        split = urlsplit(path)
        names = parse_qs(split.query).get("name[]") if split.path == "/metrics/" else None
        return Reply(generate_latest(self._registry.restricted_registry(names) if names else self._registry))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ask(server: PageServer, clock: Clock, asker: Asker, times: int) -> list[bool]:
    """Ask once a second; return for each whether the whole page was asked for."""
    before = len(server.asked)
    for _ in range(times):
        clock.now += 1
        asker.page()
    return ["?" not in path for path, _ in server.asked[before:]]


def test_a_whole_page_once_a_minute_and_in_between_what_is_used() -> None:
    exporter, clock = Exporter(), Clock()
    with serving(exporter) as server:
        asker = Asker(Fetcher(server.url, PATIENCE), clock)
        whole = ask(server, clock, asker, 120)
        assert sum(whole) == 2
        exporter.engine.usage = 0.75
        found, _ = asker.page()
        (row,) = found.rows.values()
        assert row.base["kv_cache_usage_perc"] == 0.75
        assert row.info["block_size"] == "16"
        assert len(server.asked[-1][0]) < 600, "it stands in the server's log each time"


def test_where_parts_are_not_understood_whole_pages_are_asked_for() -> None:
    exporter, clock = Exporter(named=False), Clock()
    with serving(exporter) as server:
        asker = Asker(Fetcher(server.url, PATIENCE), clock)
        assert sum(not whole for whole in ask(server, clock, asker, 30)) == 1, "tried once"


def test_a_path_of_ones_own_is_left_as_it_is() -> None:
    clock = Clock()
    with serving(page()) as server:
        for path in ("/engine/metrics", "/metrics?a=b"):
            asker = Asker(Fetcher(server.url + path, PATIENCE), clock)
            ask(server, clock, asker, 3)
            assert {asked for asked, _ in server.asked[-3:]} == {path}


def test_a_server_that_was_away_is_asked_for_the_whole_page() -> None:
    exporter, clock = Exporter(), Clock()
    with serving(exporter) as server:
        asker = Asker(Fetcher(server.url, PATIENCE), clock)
        assert ask(server, clock, asker, 3) == [True, False, False]
        server.answer = lambda _: Reply(raw=b"")
        with pytest.raises(FetchError):
            asker.page()
        server.answer = exporter
        assert ask(server, clock, asker, 2) == [True, False]


def test_what_is_no_page_is_refused_at_once() -> None:
    with serving("<html>\n") as server, pytest.raises(PageError):
        Asker(Fetcher(server.url, PATIENCE)).page()
