"""A real HAProxy on loopback ports, as a child process that leaves nothing behind."""

from __future__ import annotations

import csv
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from tests.bed import net, server
from tests.bed.server import UNPACKED, Server

ROOT = Path(__file__).parents[2]

_CONFIG = """
global
    stats socket {folder}/admin.sock mode 600 level admin
defaults
    mode http
    timeout connect 30s
    timeout client 60s
    timeout server 60s
frontend all
    bind 127.0.0.1:{port}
    default_backend engines
backend engines
    balance roundrobin
"""


class Backend(NamedTuple):
    """A server: its name, its port, and the port of its agent-check. ``ask``: what HAProxy sends to that."""

    name: str
    port: int
    agent_port: int
    ask: str = ""


class HaproxyServer(Server):
    """Balances over ``backends``; asks their agent-checks each 200 ms. The configuration is what the docs show."""

    name = "haproxy"

    def __init__(self, folder: Path, backends: Sequence[Backend]) -> None:
        super().__init__(folder)
        self.port = net.free_port()
        text = _CONFIG.format(folder=folder, port=self.port)
        for each in backends:
            ask = f'agent-send "{each.ask}\\n" ' if each.ask else ""
            text += (
                f"    server {each.name} 127.0.0.1:{each.port} weight 100 "
                f"agent-check agent-addr 127.0.0.1 agent-port {each.agent_port} agent-inter 1s {ask}\n"
            )
        self._config = folder / "haproxy.cfg"
        self._config.write_text(text)

    def __enter__(self) -> Self:
        self.start([program(), "-db", "-f", str(self._config)], environment())
        return self

    def ready(self) -> bool:
        """Return whether its stats socket answers."""
        try:
            self.ask("show info")
        except OSError:
            return False
        return True

    def ask(self, command: str) -> str:
        """Return what the stats socket answers."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(net.PATIENCE_SECONDS)
            sock.connect(str(self.folder / "admin.sock"))
            sock.sendall(f"{command}\n".encode())
            data = bytearray()
            while part := sock.recv(65536):
                data += part
        return data.decode()

    def servers(self) -> dict[str, dict[str, str]]:
        """Return the statistics of each server, by its name: ``weight``, ``status``, ``last_agt``..."""
        rows = csv.DictReader(self.ask("show stat engines 4 -1").lstrip("# ").splitlines())
        return {row["svname"]: row for row in rows}

    def weight(self, name: str) -> int:
        """Return the percentage that a server has, 0 while it gets no new requests."""
        row = self.servers()[name]
        return int(row["weight"]) if row["status"].startswith(("UP", "no check")) else 0


def program() -> str:
    """Return the path of ``haproxy``."""
    path = UNPACKED / "haproxy" / "usr" / "sbin" / "haproxy"
    return server.program(path, "haproxy", where=f"{os.environ.get('PATH', '')}:/usr/sbin")


def environment() -> dict[str, str]:
    """Return the environment in which it finds the libraries that are laid beside it."""
    return os.environ | {"LD_LIBRARY_PATH": ":".join(map(str, UNPACKED.glob("*/usr/lib/*-linux-gnu")))}
