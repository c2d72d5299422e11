"""A real Prometheus on a loopback port, as a child process that leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bed import net, server
from tests.bed.server import POLL_SECONDS, START_SECONDS, UNPACKED, Server, answers

STABLE = UNPACKED / "prometheus" / "usr" / "bin"
NEWER = UNPACKED / "newer" / "usr" / "bin"  # of Debian's next release, where it could be had: Prometheus 3


class Sample(NamedTuple):
    """One value at a time in Unix seconds."""

    name: str
    labels: Mapping[str, str]
    value: float
    at: float


def program(name: str, *, newer: bool = False) -> str:
    """Return the path of ``prometheus`` or ``promtool``; raises ``RuntimeError`` where it is not here."""
    return server.program(NEWER / name) if newer else server.program(STABLE / name, name)


def write_history(folder: Path, samples: Iterable[Sample]) -> None:
    """Lay ``samples`` as blocks of a database under ``folder``, as if they had been scraped."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "history.openmetrics"
    with text.open("w", encoding="utf-8") as file:
        for name, labels, value, at in samples:
            inner = ",".join(f"{label}={json.dumps(text, ensure_ascii=False)}" for label, text in labels.items())
            file.write(f"{name}{{{inner}}} {value!r} {at:.3f}\n")
        file.write("# EOF\n")
    subprocess.run(
        [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", "-q", str(text), str(folder / "data")],
        check=True,
        capture_output=True,
        timeout=120,
    )
    text.unlink()


class PrometheusServer(Server):
    """Runs with the database under ``folder``. ``targets``: addresses that it scrapes each ``interval`` seconds.

    ``more``: of its configuration, beside or instead of that, such as rules. ``binary``: another program than the
    stable one; ``port``: its own, where that must be known before.
    """

    name = "prometheus"

    def __init__(
        self,
        folder: Path,
        *,
        targets: Sequence[str] = (),
        interval: float = 0.25,
        more: Mapping[str, object] | None = None,
        binary: str | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__(folder)
        every = f"{interval * 1000:.0f}ms"
        config = {
            "global": {"scrape_interval": every, "scrape_timeout": every},
            "scrape_configs": [{"job_name": "kvtide", "static_configs": [{"targets": list(targets)}]}],
            **(more or {}),
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        port = port or net.free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.start(
            [
                binary or program("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address=127.0.0.1:{port}",
            ]
        )

    def ready(self) -> bool:
        """Return whether it serves queries."""
        return answers(f"{self.url}/-/ready")

    def reload(self, timeout: float = START_SECONDS) -> None:
        """Let it read its rule files anew, and wait until it has."""
        before = self._reloads()
        self.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + timeout
        while self._reloads() == before:
            if time.monotonic() > deadline:
                raise TimeoutError(f"its files were not read anew within {timeout} s")
            time.sleep(POLL_SECONDS)

    def _reloads(self) -> int:
        return self._log.read_text().count("Completed loading of configuration file")

    def wait_scraped(self, timeout: float = START_SECONDS) -> None:
        """Wait until all its targets were read: it looks for them every five seconds."""
        deadline = time.monotonic() + timeout
        while True:
            answer = json.loads(net.get(f"{self.url}/api/v1/targets?state=active"))
            health = [each["health"] for each in answer["data"]["activeTargets"]]
            if health and set(health) == {"up"}:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"its targets after {timeout} s: {health}")
            time.sleep(POLL_SECONDS)
