"""Clients of an agent under measurement, in a process of their own: what they do must not hold up one another, nor who
measures.

``python -m bench.asking URL SECONDS`` reads a JSON list of clients from its standard input, and prints for each how
long its answers took.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.bed.agent import ROOT

END_SECONDS = 60.0  # beyond the time for which they ask
_OK = b"HTTP/1.1 200 "


@dataclass(frozen=True, slots=True)
class Client:
    """Asks for ``paths`` in turn, once in ``period`` seconds, over one connection; the first time after ``offset``."""

    paths: tuple[str, ...]
    period: float
    offset: float = 0.0
    compressed: bool = False


@dataclass(slots=True)
class Asked:
    """``times``: seconds from each request to the last byte of its answer, by path; an answer that is no 200 counts as
    none.
    """

    asked: int = 0
    answered: int = 0
    times: dict[str, list[float]] = field(default_factory=dict)


def ask(url: str, clients: Sequence[Client], seconds: float) -> list[Asked]:
    """Have all of ``clients`` ask for ``seconds``; return what became of it, in their order.

    Raises ``subprocess.CalledProcessError`` where a connection ended.
    """
    done = subprocess.run(
        [sys.executable, "-m", "bench.asking", url, str(seconds)],
        cwd=ROOT,
        input=json.dumps([asdict(each) for each in clients]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=seconds + END_SECONDS,
    )
    return [Asked(**each) for each in json.loads(done.stdout)]


async def _run(address: str, client: Client, seconds: float) -> Asked:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    accepts = "gzip" if client.compressed else "identity"
    found = Asked(times={path: [] for path in client.paths})
    await asyncio.sleep(client.offset)
    due = time.monotonic()
    end = due + seconds
    while time.monotonic() < end:
        path = client.paths[found.asked % len(client.paths)]
        found.asked += 1
        began = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept-Encoding: {accepts}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        await reader.readexactly(size)
        if head.startswith(_OK.lower()) and size:
            found.answered += 1
            found.times[path].append(time.perf_counter() - began)
        due = max(due + client.period, time.monotonic())
        await asyncio.sleep(due - time.monotonic())
    writer.close()
    return found


async def _all(url: str, clients: Sequence[Client], seconds: float) -> list[Asked]:
    address = urlsplit(url).netloc
    return await asyncio.gather(*(_run(address, client, seconds) for client in clients))


def _client(row: dict[str, Any]) -> Client:
    return Client(**row | {"paths": tuple(row["paths"])})


if __name__ == "__main__":
    rows = asyncio.run(_all(sys.argv[1], [_client(row) for row in json.load(sys.stdin)], float(sys.argv[2])))
    print(json.dumps([asdict(row) for row in rows]))
