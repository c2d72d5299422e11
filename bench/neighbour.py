"""nvitop-exporter as a neighbour on the same driver: a process in an environment of its own, never imported."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.bed import net

FOLDER = Path(__file__).parents[1] / "build" / "nvitop-exporter"
PINS = (
    "nvitop-exporter==1.7.2",
    "nvitop==1.7.2",
    "nvidia-ml-py==13.615.71",
    "prometheus-client==0.26.0",
    "psutil==7.2.2",
)
INSTALL_SECONDS = 180.0
START_SECONDS = 30.0


class AbsentError(Exception):
    """It can't be installed here; the text says why."""


@contextmanager
def nvitop(env: Mapping[str, str], log: Path) -> Iterator[tuple[int, str]]:
    """Run it with ``env``; yield its pid and the URL of its page, on which all GPUs are. It looks once a second."""
    program = _installed()
    port = net.free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(program), "--bind-address", "127.0.0.1", "--port", str(port), "--interval", "1"],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait(process, url, log)
        yield process.pid, url
    finally:
        process.terminate()
        try:
            process.wait(5.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if "memory_used" in net.get(url):
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"nvitop-exporter shows no GPU:\n{log.read_text()}")


def _installed() -> Path:
    program = FOLDER / "bin" / "nvitop-exporter"
    stamp = FOLDER / ".installed"
    pins = "\n".join(PINS)
    if stamp.exists() and stamp.read_text() == pins:
        return program
    pip = [str(FOLDER / "bin" / "python"), "-m", "pip", "install", "-qq", "--no-input", "--disable-pip-version-check"]
    try:
        for command in ([sys.executable, "-m", "venv", "--clear", str(FOLDER)], [*pip, *PINS]):
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=INSTALL_SECONDS)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no word why"])[-1]
        raise AbsentError(f"{PINS[0]} can't be installed: {last}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AbsentError(f"{PINS[0]} can't be installed: {error}") from None
    stamp.write_text(pins)
    return program
