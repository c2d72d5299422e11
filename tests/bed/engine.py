"""A real ``vllm serve`` of the engine environment, as a child process that leaves nothing behind.

Standard library only: tests use it from both environments.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.bed import net, processes, shared_memory

ROOT = Path(__file__).parents[2]
VLLM = ROOT / ".venv" / "engine" / "bin" / "vllm"
MODEL_DIR = ROOT / "build" / "tiny-model"
MODEL_NAME = "tiny"
CORE_TITLE = "VLLM::EngineCore"
LOG_TAIL_LINES = 40
POLL_SECONDS = 0.2
START_SECONDS = 600.0  # 25 to 50 s on two idle cores
HEALTH_SECONDS = 5.0  # then it is asked again

ENVIRONMENT = {
    # Nothing is looked up, reported or downloaded.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # 1 GiB of KV cache is far more than the tiny model needs; binding threads needs NUMA calls that
    # containers refuse.
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # One thread computes: two wait for each other some hundred times a step, and where others want the cores each wait
    # is a turn of the kernel's. With three busy processes a core a load that takes 20 s takes more than 300 s by two.
    "OMP_NUM_THREADS": "1",
    # What torch has compiled once; beside that each server has a folder for what vLLM never removes: see EngineServer.
    "TORCHINDUCTOR_CACHE_DIR": str(ROOT / "build" / "torchinductor"),
}
# For an engine whose requests must outlast what is done beside them (tests/bed/leak_plugin/kvtide_test_slow.py).
SLOW_STEPS = {"KVTIDE_TEST_STEP_SECONDS": "0.01"}
# float32 always: with bfloat16 a worker can die of an illegal instruction (AMX) on some machines.
ARGUMENTS = ("--dtype", "float32", "--enforce-eager", "--host", "127.0.0.1")


class EngineDiedError(RuntimeError):
    """The server ended before it was ready; the message ends with the last lines of its log."""


class EngineServer:
    """One vLLM server on a loopback port of its own; starts at once, ``wait_ready`` waits for it.

    ``num_blocks`` is the size of the KV pool in blocks (default: all of 1 GiB); ``block_size`` is in tokens and must
    be a multiple of 32 on the CPU, and ``num_blocks * block_size`` at least ``max_model_len``. The environment's own
    ``KVTIDE_*`` and ``VLLM_*`` settings do not reach the server; ``env`` does. Sockets and the like are in a folder of
    its own: vLLM leaves them there, killed or not.
    """

    def __init__(
        self,
        log: Path,
        *,
        block_size: int = 32,
        num_blocks: int | None = None,
        max_model_len: int = 2048,
        max_num_seqs: int | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        model: Path = MODEL_DIR,
    ) -> None:
        self.log = log
        self.port = net.free_port()
        command = [str(VLLM), "serve", str(model), "--served-model-name", MODEL_NAME, "--port", str(self.port)]
        command += [*ARGUMENTS, "--block-size", str(block_size), "--max-model-len", str(max_model_len)]
        if num_blocks is not None:
            command += ["--num-gpu-blocks-override", str(num_blocks)]
        if max_num_seqs is not None:
            command += ["--max-num-seqs", str(max_num_seqs)]
        log.parent.mkdir(parents=True, exist_ok=True)
        self._scratch = tempfile.mkdtemp(prefix="vllm-")  # short: paths of sockets have 107 characters
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [*command, *args],
                env=_environment({"TMPDIR": self._scratch, **(env or {})}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the API server, which leads the server's session."""
        return self._process.pid

    def pids(self) -> list[int]:
        """Return all living processes of this server."""
        return processes.members(self.pid)

    def core_pids(self) -> list[int]:
        """Return the EngineCore processes: one, or one for each data-parallel rank."""
        return [pid for pid in self.pids() if processes.title(pid).startswith(CORE_TITLE)]

    def core_pid(self) -> int:
        """Return the process id of the only EngineCore process."""
        (pid,) = self.core_pids()
        return pid

    def wait_ready(self, timeout: float = START_SECONDS) -> float:
        """Wait until the server answers; return the seconds waited. Fails at once when the process has ended."""
        began = time.monotonic()
        while time.monotonic() - began < timeout:
            if self._process.poll() is not None:
                raise EngineDiedError(f"vllm ended with {self._process.returncode}; {self.log}:\n{self.log_tail()}")
            try:
                self.get("/health", HEALTH_SECONDS)
            except OSError:
                time.sleep(POLL_SECONDS)
                continue
            return time.monotonic() - began
        raise TimeoutError(f"vllm not ready after {timeout} s; {self.log}:\n{self.log_tail()}")

    def get(self, path: str, timeout: float = net.PATIENCE_SECONDS) -> str:
        """Return the body of a GET; raises ``OSError`` (``urllib.error.HTTPError`` is one) unless it is a 2xx."""
        return net.get(self.url + path, timeout)

    def metrics(self) -> dict[str, float]:
        """Return vLLM's own /metrics by name (``vllm:num_requests_running``), summed over labels."""
        return net.parse_metrics(self.get("/metrics"))

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of the server's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def log_cause(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return so many lines of the log from its first traceback on; its last lines where there is none.

        An engine that dies leaves a traceback for each of its requests behind the one that matters.
        """
        text = self.log.read_text(errors="replace").splitlines()
        first = next((number for number, line in enumerate(text) if "Traceback" in line), None)
        return self.log_tail(lines) if first is None else "\n".join(text[max(0, first - 1) : first + lines])

    def kill(self) -> None:
        """End all of the server's processes with SIGKILL, as an OOM kill of the whole container would."""
        known = self.pids()
        left = shared_memory.mapped(known)
        processes.kill_session(self.pid, known)
        self._cleared(left)

    def stop(self, timeout: float = 15.0) -> None:
        """End the server in order, by SIGTERM; what is left after ``timeout`` seconds is killed."""
        known = self.pids()
        left = shared_memory.mapped(known)
        if self._process.poll() is None:
            # Only the API server is told, as by Kubernetes: a core that hears it too looks to it like a crash.
            self._process.terminate()
            deadline = time.monotonic() + timeout
            while self.pids() and time.monotonic() < deadline:
                self._process.poll()
                time.sleep(POLL_SECONDS)
        # Without its API server a core runs on for ever: nothing to wait for.
        processes.kill_session(self.pid, known)
        self._cleared(left)

    def _cleared(self, left: set[Path]) -> None:
        self._process.wait()
        shared_memory.remove(left)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KVTIDE_", "VLLM_"))}
    return {**kept, **ENVIRONMENT, **extra}
