"""A real Prometheus on a loopback port, as a child process that leaves nothing behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.bed import net

ROOT = Path(__file__).parents[2]
UNPACKED = ROOT / "build" / "unpacked" / "prometheus" / "usr" / "bin"
START_SECONDS = 30.0
POLL_SECONDS = 0.05


class Sample(NamedTuple):
    """One value at a time in Unix seconds."""

    name: str
    labels: Mapping[str, str]
    value: float
    at: float


def program(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``."""
    path = UNPACKED / name
    found = str(path) if path.exists() else shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is not here: make setup lays it under {UNPACKED}")
    return found


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


class PrometheusServer:
    """Runs with the database under ``folder``. ``targets``: addresses that it scrapes each ``interval`` seconds.

    ``more``: of its configuration, beside or instead of that, such as rules.
    """

    def __init__(
        self,
        folder: Path,
        *,
        targets: Sequence[str] = (),
        interval: float = 0.25,
        more: Mapping[str, object] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        every = f"{interval * 1000:.0f}ms"
        config = {
            "global": {"scrape_interval": every, "scrape_timeout": every},
            "scrape_configs": [{"job_name": "kvtide", "static_configs": [{"targets": list(targets)}]}],
            **(more or {}),
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        port = net.free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / "prometheus.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    "--storage.tsdb.retention.time=100y",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"prometheus did not start:\n{self._log.read_text()}")
            time.sleep(POLL_SECONDS)

    def _ready(self) -> bool:
        try:
            net.get(f"{self.url}/-/ready")
        except (OSError, urllib.error.URLError):
            return False
        return True

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

    def stop(self) -> None:
        """End it."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
