"""A real ``kvtide agent`` of the agent environment, as a child process that leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.bed import net

ROOT = Path(__file__).parents[2]
KVTIDE = ROOT / ".venv" / "agent" / "bin" / "kvtide"
POLL_SECONDS = 0.02
START_SECONDS = STOP_SECONDS = 60.0
PATIENCE_SECONDS = 120.0  # for what comes about by itself, on a machine with much else to do
MAIN = "from agent.cli.main import main; main()"


class AgentProcess:
    """One agent on a free loopback port; ``folder`` gets all its files. ``env`` is added to ours.

    ``tree``: the sources of another version, which is run instead, with the packages of this one's environment.
    """

    def __init__(
        self,
        folder: Path,
        *,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        tree: Path | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "agent.sock"
        self.log = folder / "agent.log"
        self.kept = folder / "kept"
        program = [str(KVTIDE)] if tree is None else [str(KVTIDE.with_name("python")), "-c", MAIN]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*program, "agent", "--socket", str(self.socket), "--listen", "127.0.0.1:0", *args],
                cwd=tree,
                env={**os.environ, "KVTIDE_STATE_DIRECTORY": str(self.kept), **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the one who started it, who then ends it in order
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()  # printed once everything is up; empty when the agent ended
        if "://" not in line:
            self.process.wait(START_SECONDS)
            raise RuntimeError(f"the agent ended with {self.process.returncode}:\n{self.log.read_text()}")
        self.url = line.split()[-1]

    def engine_env(self) -> dict[str, str]:
        """Return what an engine needs in its environment to find this agent."""
        return {"KVTIDE_SOCKET": str(self.socket)}

    def get(self, path: str, timeout: float = net.PATIENCE_SECONDS) -> str:
        """Return the body of a GET; raises ``OSError`` unless it is a 2xx."""
        return net.get(self.url + path, timeout)

    def state(self) -> dict[str, Any]:
        """Return the state of the API."""
        state: dict[str, Any] = json.loads(self.get("/api/v1/state"))
        return state

    def engines(self) -> list[dict[str, Any]]:
        """Return the engines in the state."""
        engines: list[dict[str, Any]] = self.state()["engines"]
        return engines

    def engine(self) -> dict[str, Any]:
        """Return the only engine."""
        (engine,) = self.engines()
        return engine

    def verdicts(self, kind: str) -> list[dict[str, Any]]:
        """Return the verdicts of ``kind`` on the only engine."""
        return [verdict for verdict in self.engine()["verdicts"] if verdict["kind"] == kind]

    def pool(self) -> dict[str, Any] | None:
        """Return the only engine's pool, or None while it is not live."""
        pool: dict[str, Any] | None = self.engine()["pool"]
        return pool

    def metrics(self) -> dict[str, float]:
        """Return /metrics by name, summed over labels."""
        return net.parse_metrics(self.get("/metrics"))

    def wait(self, what: Callable[[], object], timeout: float = PATIENCE_SECONDS) -> float:
        """Wait until ``what`` holds; return the seconds waited. Raises ``TimeoutError`` with the last state.

        An engine that stands still for seconds has no numbers: where ``what`` stumbles over that, it does not hold.
        """
        began, stumbled = time.monotonic(), ""
        while time.monotonic() - began < timeout:
            try:
                if what():
                    return time.monotonic() - began
                stumbled = ""
            except (LookupError, TypeError, ValueError) as error:
                stumbled = f" ({error!r})"
            time.sleep(POLL_SECONDS)
        raise TimeoutError(f"not within {timeout} s{stumbled}: {json.dumps(self.state(), indent=1)}")

    def wait_live(self, timeout: float = PATIENCE_SECONDS) -> float:
        """Wait until one engine is live."""
        return self.wait(lambda: [engine["phase"] for engine in self.engines()] == ["live"], timeout)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        """End it in order; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return self._reap()

    def _reap(self) -> int:
        code = self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
