"""Loopback ports, plain GETs and Prometheus text, with the standard library alone."""

from __future__ import annotations

import socket
import urllib.request

# What is on this machine is reached directly, whatever proxy the environment names.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str, timeout: float = 5.0) -> str:
    """Return the body of a GET; raises ``OSError`` (``urllib.error.HTTPError`` is one) unless it is a 2xx."""
    with _direct.open(url, timeout=timeout) as response:
        body: bytes = response.read()
    return body.decode()


def free_port() -> int:
    """Return a TCP port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


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
