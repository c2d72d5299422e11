"""The place that wires the daemon: link, table, HTTP and signals on one event loop."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import time
from collections.abc import Callable

import uvicorn
from msgspec.structs import replace

from agent import heap
from agent.actions.actions import Actions
from agent.actions.own import OwnLever, Prepares
from agent.actions.persons import Persons
from agent.actions.trigger import PromptTable
from agent.actions.weights import WeightMoves
from agent.balancer.wiring import balancer_of, words_of
from agent.balancer.word import FleetWord
from agent.config import AgentConfig, HttpConfig
from agent.control.app import build_control
from agent.control.listen import ControlSocket
from agent.control.peer import PeerProtocol
from agent.errors import ConfigError, KvtideError
from agent.faces.status_line import status_line
from agent.judged import judged
from agent.judging import LiveJudge
from agent.link import LinkServer
from agent.notify import Notifier
from agent.policy.loaded import LoadedPolicy
from agent.policy.types import Policy
from agent.recorder.kept import usuals_in
from agent.recorder.wiring import recorder_of
from agent.sources.device.source import DeviceSource
from agent.sources.host.source import HostSource
from agent.sources.host.wiring import device_holders, starts, watched
from agent.sources.registry import sources_of
from agent.sources.runner import Sources
from agent.state import AgentState, Judgement
from agent.supervisor.drained import Drained
from agent.supervisor.sleep import Sleep
from agent.supervisor.wiring import restart_of
from agent.tide import Tides
from agent.turns import Turns
from agent.waterfall.build import waterfalls
from agent.web.listener import WebServer
from agent.web.server import SERVING, QuietServer
from agent.web.web import Web
from engine_hooks import __version__
from engine_hooks.levers.orders import ActionResult
from exporters.agent_check import AgentCheck
from exporters.http import build_app

logger = logging.getLogger("kvtide.agent")

TICK_SECONDS = 0.25
READINGS_SECONDS = 1.0  # what the sources have read is looked at and judged so often
HURRY_SECONDS = 0.2  # the same, while something is about to be acted on
LATE_SECONDS = 0.5  # so long at most a look waits for who may ask soon
ASKED_SECONDS = 0.8  # after a look; who asks then has the next one at once
SETTLED_SECONDS = 5.0  # a source that hangs at the start keeps nobody waiting for longer
OFF_VARIABLE = "KVTIDE_ACTIONS_OFF"


class Agent:
    """The node agent; ``snapshot`` gives its state, the same object until something changes."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._notifier = Notifier()
        self._told_ready = False
        self._line = "starting"
        self._web = Web(config.http.web_config_file)
        self._server: WebServer | None = None
        self._policy = LoadedPolicy(config.policy)
        self._table = PromptTable(config.gone_after_periods, self._look_soon, lambda: self._policy.policy)
        self._link = LinkServer(config.link, self._table, heard=self._heard, patient=self._only_watches)
        self._sources = Sources(
            sources_of(
                config.sources,
                # On the sources' threads: they see the state that was looked at last, which does not change.
                processes=lambda: watched(self._looked_at.engines) if self._looked_at else (),
                starts=lambda: starts(self._looked_at.engines) if self._looked_at else (),
                device_holders=lambda: device_holders(self._looked_at.device) if self._looked_at else None,
            )
        )
        self._next_readings = self._last_look = 0.0
        self._next_trim = 0.0
        self._started_at = time.time()
        self._looked_at: AgentState | None = None  # once a second, whether anybody asks for a snapshot or not
        self._looked_at_version = -1
        self._snapshot: AgentState | None = None
        self._snapshot_version = -1
        kept = config.recorder
        self._judge = LiveJudge(self._policy.policy, usuals_in(kept.directory) if kept.enabled else None)
        self._recorder = recorder_of(config.recorder, self._judge)
        self._judgement: Judgement | None = None
        self._tides = Tides()
        own: dict[str, OwnLever] = {}
        before: dict[str, Prepares] = {}
        self._word = FleetWord(words_of(config.balancer))
        self._actions = Actions(
            kept.directory,
            self._policy.policy,
            self._link.act,
            environment=_switched_off(),
            own=own,
            before=before,
            word=self._word.orders,
        )
        moves = WeightMoves(self._actions)
        self._balancer = balancer_of(
            config.balancer, self._policy.policy, stops=moves.stops, moves=moves, marked=moves.marked
        )
        drained = Drained(self._balancer, lambda: self._looked_at, drain_seconds=config.supervisor.drain_seconds)
        self._restart = restart_of(config.supervisor, config.balancer.kubernetes, drained)
        own["restart"] = self._restart
        self._sleep = before["sleep"] = Sleep(drained)
        self._not_ready = "starting"
        self._stopping = False
        self._turns: Turns | None = None

    async def run(self, announce: Callable[[str], None]) -> None:
        """Serve until SIGINT or SIGTERM; ``announce`` gets one line once everything is up.

        Raises :class:`ConfigError` or :class:`KvtideError` before anything runs.
        """
        listener = _listen(self._config.http)
        balanced = self._config.balancer
        check = AgentCheck(self._balancer.told, balanced.shared, balanced.own, admin_words=balanced.admin_words)
        try:
            await check.start()
            self._link.start()
        except BaseException:
            listener.close()
            await check.close()
            raise
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)
        control = ControlSocket(self._config.link)
        servers = self._servers(listener, control)
        self._sources.start()
        if self._recorder is not None:
            self._recorder.start()
        self._actions.start()
        # Known before anything is judged: an off switch gives every engine all its share, an isolated one, too.
        await self._word.once()
        self._word.start()
        self._balancer.start()
        serving = [asyncio.create_task(server.serve()) for server in servers]
        self._not_ready = ""
        announce(self._server.url if self._server is not None else "")
        try:
            if not self._stopping:
                self._turns = Turns(self._turn)
                self._turns.soon()
                await asyncio.wait([self._turns.ended, *serving], return_when=asyncio.FIRST_COMPLETED)
                self._turns.end()
                self._turns.ended.result()
        finally:
            self._notifier.stopping()
            # First: load balancers go by what they have heard last.
            self._balancer.let_go()
            await check.close()
            await self._balancer.close()
            await self._end_acting()
            self._link.close()
            self._sources.close()
            for server in servers:
                server.end()
            await asyncio.gather(*serving)
            control.close()
            if self._recorder is not None:
                self._recorder.close()

    def _servers(self, listener: socket.socket, control: ControlSocket) -> list[QuietServer]:
        ask = self._recorder.ask if self._recorder else None
        reload = self._reload_asked if self._config.http.reload else None
        app = build_app(self.snapshot, ask, reload, self._balancer.told, tides=self._tides)
        self._server = WebServer(app, listener, self._web)
        servers: list[QuietServer] = [self._server]
        if control.listener is not None:
            here = build_app(self.snapshot, ask, tides=self._tides)
            app = build_control(Persons(self._actions), self._reload_asked, here)
            config = uvicorn.Config(app, http=PeerProtocol, date_header=False, **SERVING)
            servers.append(QuietServer(config, control.listener))
        return servers

    async def _end_acting(self) -> None:
        await self._actions.close()
        await self._restart.close()
        await self._word.close()

    def snapshot(self) -> AgentState:
        """Return the state as it is now, with what was last made of it.

        A look that is due soon is had now, and where nothing is done by it the next one waits for who asked, should he
        ask again in a second: so one state is put together for both. No look is later than that by more than 0.7 s.
        """
        self._link.read()
        now = time.monotonic()
        if now - self._last_look >= ASKED_SECONDS and not self._stopping:
            self._look_now(now)
        if self._only_watches():
            asked = min(now, self._last_look + LATE_SECONDS)
            self._next_readings = asked + READINGS_SECONDS + TICK_SECONDS / 2
        if self._snapshot is None or self._snapshot_version != self._table.version:
            self._snapshot_version = self._table.version
            seen = self._looked_at
            if seen is None or self._looked_at_version != self._table.version:
                seen = self._observe()
            seen = replace(
                seen,
                actions=self._actions.state(),
                balancer=self._balancer.state,
                recorder=self._recorder.state() if self._recorder is not None else None,
                judge_errors=dict(self._judge.errors),
            )
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
            actions=self._actions.state(),
            policy=self._policy.state,
            balancer=self._balancer.state,
            http=self._server.state() if self._server is not None else None,
            waterfalls=waterfalls(devices.gpus, engines, processes, host_pids=pids) if devices else (),
            **readings,
        )

    def _look(self) -> None:
        """Judge the node as it is now, and keep what was judged."""
        self._table.version += 1
        try:
            state = self._looked_at = self._observe()
            self._looked_at_version = self._table.version
        except Exception as error:  # what one process says must not end the agent for all others
            self._judge.failed("state", error)
            return
        self._judgement = self._judge.look(state)
        self._line = status_line(state, self._judgement)
        self._tides.take(state, self._judgement)
        self._actions.take(replace(state, judgement=self._judgement))
        self._sleep.look(state, self._actions.book.live())
        try:
            self._balancer.look(state, self._judgement)
        except Exception as error:  # weights are full again by themselves when nobody looks
            self._judge.failed("balancer", error)
        if self._recorder is not None:
            self._recorder.take(state, self._judgement)

    def _heard(self, instance: str, result: ActionResult) -> None:
        self._actions.heard(instance, result)

    def _only_watches(self) -> bool:
        """Whether nothing is done by what engines say: then it is time enough to hear it when somebody looks."""
        return self._judge.policy.actions.strongest() == "observe" and self._config.balancer.mode == "observe"

    def _look_soon(self) -> None:
        """Let the next look be at once, though not much sooner than the last one's second is over."""
        if self._judge.policy.actions.strongest() != "observe":
            self._next_readings = min(self._next_readings, self._last_look + HURRY_SECONDS)
            if self._turns is not None:
                self._turns.soon()

    def _end(self) -> None:
        self._stopping = True
        if self._turns is not None:
            self._turns.end()

    def _reload(self) -> str:
        """Load the policy again; return why it was not taken, empty where it was."""
        self._table.version += 1
        return self._policy.reload(self._adopt)

    def _hung_up(self) -> None:
        self._notifier.reloading()
        self._reload()
        self._notifier.ready()

    def _notify(self) -> None:
        """Tell systemd of this turn; that it is ready once every source was read, or has had the time."""
        state = self._looked_at
        if not self._told_ready and state is not None:
            read = all(each.reads or each.failures for each in state.sources)
            if read or time.time() - self._started_at > SETTLED_SECONDS:
                self._told_ready = True
                self._notifier.ready()
        self._notifier.turned(self._not_ready or self._line)

    async def _reload_asked(self) -> str:
        return self._reload()

    def _adopt(self, policy: Policy) -> None:
        self._judge.adopt(policy)
        self._actions.policy = self._balancer.policy = policy
        if self._recorder is not None:
            self._recorder.adopt(policy)

    def _turn(self) -> float:
        self._tick()
        self._notify()
        return HURRY_SECONDS if self._actions.hurry else TICK_SECONDS

    def _tick(self) -> None:
        self._link.tick()
        now = time.monotonic()
        self._table.tick(now)
        self._actions.tick()
        if now >= self._next_readings:
            self._look_now(now)
        if now >= self._next_trim:
            self._next_trim = now + heap.EVERY_SECONDS
            heap.trim()

    def _look_now(self, now: float) -> None:
        self._last_look = now
        self._heal()
        self._look()
        self._next_readings = now + (HURRY_SECONDS if self._actions.hurry else READINGS_SECONDS)

    def _heal(self) -> None:
        problem = self._link.heal()
        if problem != self._not_ready:
            self._not_ready = problem
            self._table.version += 1
            if problem:
                logger.error("link: %s", problem)
            else:
                logger.info("link: engines reach this agent again")


def _switched_off() -> str:
    """Return why the environment lets nothing be done; empty where it does."""
    text = os.environ.get(OFF_VARIABLE, "")
    return "" if text.lower() in ("", "0", "false", "no") else f"{OFF_VARIABLE} in the agent's environment: {text}"


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
        sock.listen(1024)
    except OSError as error:
        sock.close()
        remedy = "choose another by --listen HOST:PORT or http.listen in the configuration (port 0 takes a free one)"
        if error.errno == errno.EADDRINUSE:
            raise KvtideError(f"http.listen: {config.listen}: the port is in use; {remedy}") from None
        raise KvtideError(f"http.listen: {config.listen}: {error.strerror}; {remedy}") from None
    return sock
