"""The place that wires the daemon: link, table, HTTP and signals on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator

import uvicorn
from msgspec.structs import replace

from agent.config import AgentConfig, HttpConfig
from agent.engines import EngineTable
from agent.errors import ConfigError, KvtideError
from agent.judged import judged
from agent.judging import LiveJudge
from agent.link import LinkServer
from agent.policy.file import choose
from agent.recorder.kept import baselines_in
from agent.recorder.wiring import recorder_of
from agent.sources.device.source import DeviceSource
from agent.sources.host.source import HostSource
from agent.sources.host.wiring import device_holders, starts, watched
from agent.sources.registry import sources_of
from agent.sources.runner import Sources
from agent.state import AgentState, Judgement
from agent.waterfall.build import waterfalls
from engine_hooks import __version__
from exporters.http import build_app

logger = logging.getLogger("kvtide.agent")

TICK_SECONDS = 0.25
SERVER_SECONDS = 1.0
READINGS_SECONDS = 1.0  # what the sources have read is looked at and judged so often


class Agent:
    """The node agent; ``snapshot`` gives its state, the same object until something changes."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._table = EngineTable(config.gone_after_periods)
        self._link = LinkServer(config.link, self._table)
        self._sources = Sources(
            sources_of(
                config.sources,
                # On the sources' threads: they see the state that was looked at last, which does not change.
                processes=lambda: watched(self._looked_at.engines) if self._looked_at else (),
                starts=lambda: starts(self._looked_at.engines) if self._looked_at else (),
                device_holders=lambda: device_holders(self._looked_at.device) if self._looked_at else None,
            )
        )
        self._next_readings = 0.0
        self._started_at = time.time()
        self._looked_at: AgentState | None = None  # once a second, whether anybody asks for a snapshot or not
        self._snapshot: AgentState | None = None
        self._snapshot_version = -1
        kept = config.recorder
        self._judge = LiveJudge(choose(config.policy), baselines_in(kept.directory) if kept.enabled else None)
        self._recorder = recorder_of(config.recorder, self._judge)
        self._judgement: Judgement | None = None
        self._not_ready = "starting"
        self._stop = asyncio.Event()

    async def run(self, announce: Callable[[str], None]) -> None:
        """Serve until SIGINT or SIGTERM; ``announce`` gets one line once everything is up.

        Raises :class:`ConfigError` or :class:`KvtideError` before anything runs.
        """
        listener = _listen(self._config.http)
        try:
            self._link.start()
        except BaseException:
            listener.close()
            raise
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        server = _Server(
            uvicorn.Config(
                build_app(self.snapshot, self._recorder.ask if self._recorder else None),
                log_level="warning",
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=2,
            )
        )
        self._sources.start()
        if self._recorder is not None:
            self._recorder.start()
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        self._not_ready = ""
        host, port = listener.getsockname()[:2]
        announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        try:
            while not self._stop.is_set() and not serving.done():
                self._tick()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), TICK_SECONDS)
        finally:
            self._link.close()
            self._sources.close()
            server.end()
            await serving
            if self._recorder is not None:
                self._recorder.close()

    def snapshot(self) -> AgentState:
        """Return the state as it is now, with what was last made of it."""
        if self._snapshot is None or self._snapshot_version != self._table.version:
            self._snapshot_version = self._table.version
            told = self._recorder.state() if self._recorder is not None else None
            seen = replace(self._observe(), recorder=told, judge_errors=dict(self._judge.errors))
            self._snapshot = judged(seen, self._judgement)
        return self._snapshot

    def _observe(self) -> AgentState:
        now, unix_now = time.monotonic(), time.time()
        sources, readings = self._sources.readings()
        engines, processes = self._table.states(now, unix_now), self._table.processes(now)
        devices, host = readings.get(DeviceSource.NAME), readings.get(HostSource.NAME)
        pids = host.host_pids if host is not None else None
        return AgentState(
            at=unix_now,
            monotonic=now,
            version=__version__,
            started_at=self._started_at,
            ready=not self._not_ready,
            not_ready_reason=self._not_ready,
            link=self._link.state(),
            engines=engines,
            unjoined_members=self._table.unjoined(now),
            processes=processes,
            failures=self._table.failures.failures(),
            failure_counts=self._table.failures.counts(now),
            sources=sources,
            waterfalls=waterfalls(devices.gpus, engines, processes, host_pids=pids) if devices else (),
            **readings,
        )

    def _look(self) -> None:
        """Judge the node as it is now, and keep what was judged."""
        self._table.version += 1
        try:
            state = self._looked_at = self._observe()
        except Exception as error:  # what one process says must not end the agent for all others
            self._judge.failed("state", error)
            return
        self._judgement = self._judge.look(state)
        if self._recorder is not None:
            self._recorder.take(state, self._judgement)

    def _tick(self) -> None:
        self._link.tick()
        now = time.monotonic()
        self._table.tick(now)
        if now >= self._next_readings:
            self._next_readings = now + READINGS_SECONDS
            self._look()
        problem = self._link.heal()
        if problem != self._not_ready:
            self._not_ready = problem
            self._table.version += 1
            if problem:
                logger.error("link: %s", problem)
            else:
                logger.info("link: engines reach this agent again")


class _Server(uvicorn.Server):
    """uvicorn without signal handlers of its own, for the daemon has them, and without its ten wake-ups a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Stop serving, in order."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Wait for the end; once a second, answers get a new date."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), SERVER_SECONDS)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def _listen(config: HttpConfig) -> socket.socket:
    host, port = config.address
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"http.listen: {config.listen}: {error.strerror}") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(128)
    except OSError as error:
        sock.close()
        remedy = "choose another by --listen HOST:PORT or http.listen in the configuration (port 0 takes a free one)"
        if error.errno == errno.EADDRINUSE:
            raise KvtideError(f"http.listen: {config.listen}: the port is in use; {remedy}") from None
        raise KvtideError(f"http.listen: {config.listen}: {error.strerror}; {remedy}") from None
    return sock
