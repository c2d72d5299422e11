"""Finds servers of vLLM and SGLang among the processes of this host."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Callable, Iterable, Set
from typing import NamedTuple

import psutil

from agent.sources.scrape.serving import PORTS, Serving, serving_of
from agent.sources.scrape.state import PassedOver

ALL_EVERY = 6  # looks: a shell may have become a server since
MAX_SERVERS = 32


class Server(NamedTuple):
    """A server that listens: ``started`` tells two processes with one pid apart."""

    pid: int
    started: float
    url: str
    kind: str
    model: str


class Discovery:
    """``hooked``: pids of processes that report by hooks already, in this process's own view."""

    def __init__(self, hooked: Callable[[], Set[int]]) -> None:
        self._hooked = hooked
        self._looks = 0
        self._known: set[int] = set()  # pids that were looked at
        self._candidates: dict[int, tuple[psutil.Process, Serving]] = {}
        self._servers: dict[int, Server] = {}  # which port a process listens at is asked until it is known

    def look(self) -> tuple[list[Server], list[PassedOver]]:
        """Return the servers to scrape and those not to, with the reason; what does not listen yet is in neither."""
        self._find()
        servers, passed = [], []
        hooked = self._family() if self._candidates else set()
        for pid, (process, serving) in sorted(self._candidates.items())[:MAX_SERVERS]:
            try:
                found = "its hooks report" if pid in hooked else self._servers.get(pid) or _server(process, serving)
            except psutil.NoSuchProcess:
                continue
            if isinstance(found, Server):
                self._servers[pid] = found
                servers.append(found)
            elif found:
                passed.append(PassedOver(pid=pid, reason=found))
        return _unique(servers), passed

    def _find(self) -> None:
        for pid in [pid for pid, (process, _) in self._candidates.items() if not process.is_running()]:
            del self._candidates[pid]
            self._servers.pop(pid, None)
        pids = set(psutil.pids())
        if self._looks % ALL_EVERY == 0:
            self._known.clear()
        self._looks += 1
        self._known &= pids
        for pid in pids - self._known:
            self._known.add(pid)
            serving = serving_of(_command(pid))
            if serving is not None:
                with contextlib.suppress(psutil.Error):
                    self._candidates[pid] = (psutil.Process(pid), serving)
        # Children that were forked have their parent's command line.
        for pid in [pid for pid, (process, _) in self._candidates.items() if _parent(process) in self._candidates]:
            del self._candidates[pid]

    def _family(self) -> set[int]:
        """Return who reports by hooks, and their parents: a server may only have started those that report."""
        family: set[int] = set()
        for pid in self._hooked():
            family.add(pid)
            try:
                family |= {parent.pid for parent in psutil.Process(pid).parents()}
            except psutil.Error:
                continue
        return family


def _server(process: psutil.Process, serving: Serving) -> Server | str:
    """Return the server, or why it is not scraped, or nothing while it does not listen."""
    if not serving.page:
        return "it serves no HTTP port"
    if _elsewhere(process.pid):
        return "it is in another network namespace: give its URL in sources.scrape.engines"
    port = serving.port or PORTS[serving.kind]
    host = serving.host or "127.0.0.1"
    try:
        listening = {c.laddr.port: c.laddr.ip for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    except psutil.AccessDenied:
        pass  # its command line must do
    else:
        if not listening:
            return ""
        if port not in listening:
            if serving.port is not None or len(listening) > 1:
                return "" if serving.port else "which of its ports has the page is not known: give its URL"
            (port,) = listening  # from a file of settings
        host = listening[port]
    scheme = "https" if serving.tls else "http"
    return Server(process.pid, process.create_time(), f"{scheme}://{_reached(host)}:{port}", *serving[:2])


def _command(pid: int) -> list[str]:
    """Return a process's command line; empty where it is gone. psutil takes eight times as long, and there are many."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().decode(errors="replace").split("\0")
    except OSError:
        return []
    return words[:-1] if words[-1:] == [""] else words


def _parent(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.Error:
        return None


def _elsewhere(pid: int) -> bool:
    """Whether the process is in another network namespace; where that can't be seen it is taken to be in ours."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return False


def _reached(host: str) -> str:
    """Return the address by which one on this host reaches what listens at ``host``."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return str(address) if address.version == 4 else f"[{address}]"


def _unique(servers: Iterable[Server]) -> list[Server]:
    """Return one server for each URL, the oldest: who wraps another in the same command is started first."""
    found: dict[str, Server] = {}
    for server in sorted(servers, key=lambda server: server.started):
        found.setdefault(server.url, server)
    return list(found.values())
