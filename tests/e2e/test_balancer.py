"""A real HAProxy obeys the agent-check: where requests go when an engine leaks, is isolated, and comes back.

The judge and the balancer are the agent's own, in a time that the test moves; HAProxy and requests are real.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent.balancer.lease_file import FileCoordinator
from exporters.agent_check import AgentCheck
from tests.bed.haproxy import ROOT, Backend, HaproxyServer, environment, program
from tests.unit.balancer.made import Clock
from tests.unit.balancer.nodes import GrowingNode, Grows

NAMES = ("leaks", "ramps", "calm", "calm2")  # of four engines one may be isolated
ANY = ("127.0.0.1", 0)
SETTLED = 150
PATIENCE_SECONDS = 120.0


class Rig:
    """Four backends behind HAProxy, their engines on one node, and the agent-check between."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.engines = {name: Grows(name) for name in NAMES}
        self.marks = folder / "marks.yaml"
        coordinator = FileCoordinator(folder, "n", 0.30, self.clock.wall)
        self.node = GrowingNode(self.clock, coordinator, *self.engines.values(), marks=self.marks)
        # One has a port of its own, the others are named by agent-send.
        self.check = AgentCheck(self.node.balancer.told, ANY, {"calm": ANY}, admin_words=True)
        self.hold = asyncio.Event()
        self.haproxy: HaproxyServer
        self._servers: list[asyncio.Server] = []
        self._folder = folder

    async def start(self) -> None:
        await self.check.start()
        (_, shared), (_, own) = self.check.addresses
        backends = []
        for name in NAMES:
            server = await asyncio.start_server(self._serve(name), *ANY)
            self._servers.append(server)
            port = server.sockets[0].getsockname()[1]
            backends.append(Backend(name, port, own) if name == "calm" else Backend(name, port, shared, name))
        self.haproxy = HaproxyServer(self._folder, backends)
        await asyncio.to_thread(self.haproxy.__enter__)

    async def stop(self) -> None:
        self.haproxy.__exit__(None, None, None)
        self.node.balancer.let_go()
        for server in [*self._servers, *self.check._servers]:
            server.close()

    async def seconds(self, count: int, until: Callable[[], bool] | None = None) -> int:
        """Let up to ``count`` seconds pass, or until it is so; return how many did."""
        for number in range(count):
            if until is not None and until():
                return number
            self.clock.now += 1.0
            await self.node.look()
        return count

    async def get(self, path: str = "/") -> str:
        """Return the name of the backend that a request has reached."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.haproxy.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        assert answer.startswith("HTTP/1.1 200"), answer
        return answer.rpartition("\r\n\r\n")[2]

    async def where(self, requests: int = 140) -> Counter[str]:
        return Counter([await self.get() for _ in range(requests)])

    async def obeyed(self, **percent: int) -> None:
        """Wait until HAProxy has these weights; what is not named has all."""
        wanted = dict.fromkeys(NAMES, 100) | percent
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while (found := {name: self.haproxy.weight(name) for name in NAMES}) != wanted:
            assert asyncio.get_running_loop().time() < deadline, f"{found} is not {wanted}"
            await asyncio.sleep(0.05)

    def _serve(self, name: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /slow"):
                await self.hold.wait()
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


async def test_a_leak_halves_then_isolates_and_recovery_gives_back_in_steps(
    rig: Rig, record_property: Callable[[str, object], None]
) -> None:
    await rig.seconds(SETTLED)
    await rig.obeyed()
    assert await rig.where() == dict.fromkeys(NAMES, 35)

    def unexplained() -> float:
        rate = rig.node.signals["leaks"].unexplained
        return 0.0 if rate is None else rate.per_minute

    # One leaks 8.5 % of its pool a minute; another grows faster, of its own requests.
    rig.engines["leaks"].leak, rig.engines["ramps"].ramp = 0.085, 0.10
    await rig.seconds(300, until=lambda: unexplained() > 0.05)
    assert unexplained() > 0.05
    assert rig.haproxy.weight("leaks") == 100
    passed = await rig.seconds(30, until=lambda: rig.node.percent("leaks") == 50)
    assert passed <= 3
    began = asyncio.get_running_loop().time()
    await rig.obeyed(leaks=50)
    record_property("halved_to_weight_seconds", asyncio.get_running_loop().time() - began)
    assert await rig.where() == {"leaks": 20, "ramps": 40, "calm": 40, "calm2": 40}

    # More than 8 % a minute, for three minutes.
    await rig.seconds(300, until=lambda: unexplained() > 0.08)
    slow = [asyncio.create_task(rig.get("/slow")) for _ in range(7)]  # one of seven goes to the leaking one
    lasted = await rig.seconds(400, until=lambda: rig.node.percent("leaks") == 0)
    assert 180 <= lasted <= 185
    assert rig.node.percent("ramps") == 100
    ramp = rig.node.signals["ramps"]
    assert ramp.growth is not None
    assert ramp.growth.per_minute > 0.08
    assert ramp.growth_above_page_seconds > 180, "it grows as fast, and for as long"
    await rig.obeyed(leaks=0)
    assert "DRAIN" in rig.haproxy.servers()["leaks"]["status"]
    assert await rig.where(90) == {"ramps": 30, "calm": 30, "calm2": 30}
    rig.hold.set()
    assert Counter(await asyncio.gather(*slow))["leaks"] == 1, "what it was at when it was isolated goes on"

    # The leak is mended: isolated for five minutes, then step by step.
    rig.engines["leaks"].leak = 0.0
    told = []
    for percent in (10, 25, 50, 75, 100):
        told.append(await rig.seconds(900, until=lambda percent=percent: rig.node.percent("leaks") == percent))
        await rig.obeyed(leaks=percent)
    assert told[0] >= 299
    assert told[1:] == [60, 60, 60, 60]
    assert await rig.where() == dict.fromkeys(NAMES, 35)
    assert rig.node.percent("ramps") == 100


async def test_a_person_drains_and_gives_back(rig: Rig) -> None:
    await rig.seconds(5)
    await rig.obeyed()
    rig.marks.write_text("calm2: maint\nramps: drain\n")
    await rig.seconds(1)
    await rig.obeyed(calm2=0, ramps=0)
    assert rig.haproxy.servers()["calm2"]["status"].startswith("MAINT")
    assert await rig.where(20) == {"leaks": 10, "calm": 10}
    rig.marks.unlink()
    await rig.seconds(1)
    await rig.obeyed()
    assert await rig.where(40) == dict.fromkeys(NAMES, 10)


async def test_an_agent_that_ends_leaves_drained_only_what_a_person_drains(rig: Rig) -> None:
    rig.marks.write_text("calm2: drain\n")
    await rig.seconds(SETTLED)
    rig.engines["leaks"].leak = 0.09
    await rig.seconds(600, until=lambda: rig.node.percent("leaks") == 0)
    await rig.obeyed(leaks=0, calm2=0)
    rig.node.balancer.let_go()
    await rig.check.close()
    await rig.obeyed(calm2=0)


def test_the_configuration_that_we_show_is_one() -> None:
    checked = subprocess.run(
        [program(), "-c", "-f", str(ROOT / "deploy" / "balancer" / "haproxy.cfg")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
