"""Where everybody asks at once, and engines say more than an agent that stands still can take: nothing is lost that
is not counted, on either side.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path

from engine_hooks import wire
from engine_hooks.auth import Session
from engine_hooks.link import AgentLink, LinkCallbacks
from engine_hooks.settings import Settings
from tests.bed.agent import AgentProcess
from tests.unit.builders import make_hello, make_report

ENGINES, REPORTS, PERIOD_SECONDS = 8, 60, 0.1
FLOOD = 5000  # more than a socket holds
SCRAPERS, SCREENS = 10, 8
PATIENCE_SECONDS = 120.0
HANDSHAKE_FRAMES = 2  # a challenge and a hello


class Talker:
    """An engine's real link; ``sent``: what it has tried to say while it was connected."""

    def __init__(self, socket: Path, number: int) -> None:
        self.sent = 0
        self.number = number
        self._numbers = itertools.count(1)
        key, uids = socket.with_name(wire.KEY_NAME), frozenset({os.geteuid()})
        settings = Settings(enabled=True, socket=socket, key_file=key, agent_uids=uids, engine_name=None)
        self.link = AgentLink(settings, LinkCallbacks(self._hello, lambda _order: None, lambda: None, lambda: None))
        self.link.start()

    def _hello(self, session: Session) -> wire.Hello:
        name = f"talker-{self.number}"
        return make_hello(name=name, instance=name, engine_id=name, pid=os.getpid(), mac=session.engine_proof())

    def say(self) -> None:
        assert self.link.up
        self.sent += 1
        self.link.send(make_report(sequence=next(self._numbers), monotonic=time.monotonic()))


class Client:
    """Asks again and again until told to stop; what is not answered is kept."""

    def __init__(self, ask: Callable[[], str], period: float) -> None:
        self.answers, self.failures = 0, []
        self._ask, self._period = ask, period
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            try:
                self.answers += bool(self._ask())
            except (OSError, urllib.error.URLError) as error:
                self.failures.append(repr(error))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def too_much(agent: AgentProcess, talker: Talker) -> bool:
    """Say more at once; return whether it was more than an agent that listens looks at."""
    for _ in range(FLOOD // 10):
        talker.say()
    return bool(agent.state()["link"]["rejected_frames"]["rate"])


def test_nothing_is_lost_that_is_not_counted(folder: Path) -> None:
    with AgentProcess(folder / "load") as agent:
        talkers = [Talker(agent.socket, number) for number in range(ENGINES)]
        clients = [
            Client(lambda path=path: agent.get(path, PATIENCE_SECONDS), period)
            for path, period, count in (
                ("/metrics", 0.2, SCRAPERS // 2),
                ("/metrics/detail", 0.2, SCRAPERS // 2),
                ("/api/v1/state", 0.5, SCREENS),
            )
            for _ in range(count)
        ]
        try:
            agent.wait(lambda: all(talker.link.up for talker in talkers), PATIENCE_SECONDS)
            for _ in range(REPORTS // 2):
                for talker in talkers:
                    talker.say()
                time.sleep(PERIOD_SECONDS)
            agent.signal(signal.SIGSTOP)
            try:
                for _ in range(FLOOD):
                    talkers[0].say()
            finally:
                agent.signal(signal.SIGCONT)
            for _ in range(REPORTS // 2):
                for talker in talkers:
                    talker.say()
                time.sleep(PERIOD_SECONDS)
            agent.wait(lambda: too_much(agent, talkers[0]), PATIENCE_SECONDS)

            def heard() -> int:
                return int(agent.state()["link"]["frames"])

            assert talkers[0].link.dropped > 0, "the agent stood still for too short a time to tell anything"
            assert [talker.link.dropped for talker in talkers[1:]] == [0] * (ENGINES - 1)
            arrived = sum(talker.sent - talker.link.dropped for talker in talkers) + HANDSHAKE_FRAMES * ENGINES
            agent.wait(lambda: heard() >= arrived, PATIENCE_SECONDS)
            assert heard() == arrived
            # What was too fast to be looked at is counted as that, and as nothing else.
            link = agent.state()["link"]
            assert sum(link["rejected_frames"].values()) == link["rejected_frames"]["rate"] > 0
            assert sum(link["refused_peers"].values()) == 0
            # Where so many ask, a page is that of up to a second ago.
            agent.wait(lambda: agent.metrics()["kvtide_link_frames_total"] == arrived, PATIENCE_SECONDS)
        finally:
            for talker in talkers:
                talker.link.close()
            for client in clients:
                client.stop()
        assert [client.failures for client in clients] == [[]] * len(clients)
        assert all(client.answers for client in clients)
