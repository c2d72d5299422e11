"""The fleet's verdicts, from its Prometheus into a file that the agents read: see actions.fleet_file."""

from __future__ import annotations

import re
import time
from pathlib import Path

import typer

from agent.backtest.prometheus.client import Prometheus, Series
from agent.balancer.words import replace
from agent.errors import KvtideError
from agent.plain import plain

NODES, SHARES = "fleet:kvtide_nodes:count", "fleet:kvtide_verdict_nodes:ratio"
TIMEOUT_SECONDS = 10.0
_KIND = re.compile(r"[a-z0-9_]{1,64}")


def write(url: str, file: Path, *, token_file: Path | None = None, ca_file: Path | None = None) -> None:
    """Write it once; raises :class:`KvtideError`, and the file stays as it was: it grows old, and nothing is done."""
    prometheus = Prometheus(url, timeout=TIMEOUT_SECONDS, token_file=token_file, ca_file=ca_file)
    try:
        _write(prometheus, file)
    finally:
        prometheus.close()


def keep_writing(
    url: str, file: Path, every: float, *, token_file: Path | None = None, ca_file: Path | None = None
) -> None:
    """Write it again and again; a failure is told when it begins and when it ends."""
    problem = ""
    while True:
        try:
            write(url, file, token_file=token_file, ca_file=ca_file)
            said = ""
        except KvtideError as error:
            said = str(error)
        if said != problem:
            typer.echo(plain(said or "the fleet's verdicts are written again"), err=True)
        problem = said
        time.sleep(every)


def _write(prometheus: Prometheus, file: Path) -> None:
    nodes = _last(prometheus, NODES)
    if not nodes or float(nodes[0].values[-1][1]) < 1:
        # Without it an empty answer would read as: no verdict stands anywhere.
        raise KvtideError(f"{prometheus.shown} knows no nodes ({NODES}): are kvtide's recording rules loaded?")
    lines = [
        f"{series.metric['kind']} {float(series.values[-1][1]):.4f}\n"
        for series in _last(prometheus, SHARES)
        if _KIND.fullmatch(series.metric.get("kind", ""))
    ]
    try:
        replace(file, "".join(sorted(lines)).encode())
    except OSError as error:
        raise KvtideError(f"{error.filename or file}: {error.strerror}") from None


def _last(prometheus: Prometheus, query: str) -> list[Series]:
    now = time.time()
    return [series for series in prometheus.range(query, now, now, 1.0) if series.values]
