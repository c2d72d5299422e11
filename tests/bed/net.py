"""Loopback ports, plain GETs and Prometheus text, with the standard library alone."""

from __future__ import annotations

import random
import socket
import urllib.request
from pathlib import Path

PATIENCE_SECONDS = 30.0  # for one answer, on a machine with much else to do
LOWEST_PORT, USUAL_FIRST = 10_000, 32_768
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_claims: list[socket.socket] = []  # kept for as long as this process lives

# What is on this machine is reached directly, whatever proxy the environment names.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str, timeout: float = PATIENCE_SECONDS) -> str:
    """Return the body of a GET; raises ``OSError`` (``urllib.error.HTTPError`` is one) unless it is a 2xx."""
    with _direct.open(url, timeout=timeout) as response:
        body: bytes = response.read()
    return body.decode()


def free_port() -> int:
    """Return a TCP port of the loopback interface that nobody listens on now, and that is given to no other test.

    Some bind it half a minute later. So it is none of those that the kernel gives to whoever connects or binds port 0,
    and it is claimed for as long as this process lives, by a name in the kernel's abstract namespace of sockets.
    """
    first = int(_RANGE.read_text().split()[0])
    ports = range(LOWEST_PORT, first if first > LOWEST_PORT else USUAL_FIRST)
    for port in random.sample(ports, len(ports)):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with socket.socket() as probe:
            try:
                claim.bind(f"\0kvtide-port-{port}")
                probe.bind(("127.0.0.1", port))
            except OSError:
                claim.close()
                continue
        _claims.append(claim)
        return port
    raise RuntimeError(f"no port of {ports} is free")


def parse_metrics(text: str) -> dict[str, float]:
    """Sum the samples of a Prometheus text by name, labels left out."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            # The value follows the last "}" or, without labels, the name; a timestamp may follow the value.
            name = line.partition("{")[0].partition(" ")[0]
            value = line.rpartition("}")[2].split()
            sums[name] = sums.get(name, 0.0) + float(value[0] if "{" in line else value[1])
    return sums
