"""An agent that is asked on a thread: it answers, fails, hangs, drips or sends what is no state."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from agent.cli import client as clients
from agent.cli.client import AgentClient
from agent.errors import KvtideError
from agent.state import AgentState
from agent.top.live import LATE_SECONDS, Live
from tests.unit.support import Clock, eventually
from tests.unit.top import nodes


def test_it_asks_again_and_again_until_it_is_stopped() -> None:
    asked = []

    def fetch() -> AgentState:
        asked.append(1)
        return nodes.small()

    live = Live(lambda: fetch, lambda: None, every=0.01)
    assert live.state() is None
    assert live.age() is None
    live.start()
    eventually(lambda: len(asked) > 3)
    live.stop()
    assert live.state() == nodes.small()
    assert live.problem() == ("", 0.0)


def test_what_is_opened_late_is_opened_again() -> None:
    """The first call may fail for what the address is; it is made anew each time."""
    opened = []

    def opening():  # type: ignore[no-untyped-def]
        opened.append(1)
        if len(opened) < 3:
            raise KvtideError("--url: nonsense")
        return nodes.small

    live = Live(opening, lambda: None, every=0.01)
    live.start()
    eventually(lambda: live.state() is not None)
    live.stop()
    assert len(opened) == 3


def test_since_when_is_the_last_answer() -> None:
    answers: list[AgentState | Exception] = [nodes.small(), KvtideError("one"), KvtideError("two")]
    seen, done = [], threading.Event()

    def fetch() -> AgentState:
        if not answers:
            done.wait()
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    live = Live(lambda: fetch, lambda: seen.append(live.problem()), every=0.01)
    began = time.time()
    live.start()
    eventually(lambda: len(seen) == 3)
    live.stop()
    done.set()
    assert [text for text, _ in seen] == ["", "one", "two"]
    assert seen[1][1] == seen[2][1]
    assert began <= seen[1][1] <= time.time()


def test_one_that_hangs_is_told_without_an_answer() -> None:
    clock, forever = Clock(), threading.Event()

    def fetch() -> AgentState:
        forever.wait()
        return nodes.small()

    live = Live(lambda: fetch, lambda: None, clock=clock)
    live.start()
    assert live.problem() == ("", 0.0)
    clock.now += LATE_SECONDS + 1
    text, since = live.problem()
    assert text == "it was asked, and has not answered yet"
    assert since <= time.time() - LATE_SECONDS
    live.stop()
    forever.set()


# -- over HTTP ------------------------------------------------------------------------------------------------------


class Answering:
    """A server on loopback that answers every GET with ``body``, in pieces with a pause between them."""

    def __init__(self, body: bytes, pieces: int = 1, pause: float = 0.0) -> None:
        size = max(1, len(body) // pieces)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                for begin in range(0, len(body), size):
                    try:
                        self.wfile.write(body[begin : begin + size])
                        self.wfile.flush()
                    except OSError:
                        return
                    time.sleep(pause)

            def log_message(self, *_: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def answering() -> Iterator[list[Answering]]:
    made: list[Answering] = []
    yield made
    for each in made:
        each.close()


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"null", b"\xff\xfe", b"<html>", b'{"at": "soon"}', b"[" * 100_000, b'{"at": 1e999}']
)
def test_what_is_no_state_is_one_line(answering: list[Answering], body: bytes) -> None:
    answering.append(Answering(body))
    with pytest.raises(KvtideError, match="not a kvtide state") as caught:
        AgentClient(answering[0].url).state()
    assert "\n" not in str(caught.value)


def test_an_answer_that_has_no_end_is_given_up(answering: list[Answering], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MOST_BYTES", 1 << 16)
    answering.append(Answering(b"x" * (1 << 20)))
    with pytest.raises(KvtideError, match="more than"):
        AgentClient(answering[0].url).state()


def test_an_answer_that_drips_is_given_up(answering: list[Answering], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece comes in time; all of them never would."""
    monkeypatch.setattr(clients, "WHOLE_SECONDS", 0.2)
    answering.append(Answering(b"x" * 1000, pieces=1000, pause=0.05))
    with pytest.raises(KvtideError, match="takes longer than"):
        AgentClient(answering[0].url).state()


def test_a_slow_answer_that_comes_in_time_is_taken(answering: list[Answering]) -> None:
    import msgspec

    answering.append(Answering(msgspec.json.encode(nodes.small()), pieces=4, pause=0.05))
    assert AgentClient(answering[0].url).state() == nodes.small()


def test_one_that_is_there_and_does_not_answer_is_told_from_one_that_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(KvtideError, match="listens there and does not answer"):
            AgentClient(url, timeout=0.1).state()
    with pytest.raises(KvtideError, match="no agent answers at"):
        AgentClient(url, timeout=0.1).state()
