"""The other process: the simulator's half beside vLLM, in an environment that has it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from agent.errors import ConfigError, KvtideError
from engine_hooks.simulator import pipe
from engine_hooks.simulator.spec import Spec

VARIABLE = "KVTIDE_ENGINE_PYTHON"
MODULE = "engine_hooks.simulator"
END_SECONDS = 10.0
SAID_BYTES = 4000  # of what it wrote to standard error, the end


class SimulatorError(KvtideError):
    """The simulator could not do its work; the text says why."""


def engine_python(chosen: Path | None = None) -> Path:
    """Return the interpreter that has vLLM: ``chosen``, else what KVTIDE_ENGINE_PYTHON says, else our own.

    Raises :class:`ConfigError` where there is none.
    """
    named = chosen or (Path(value) if (value := os.environ.get(VARIABLE, "").strip()) else None)
    if named is not None:
        if not os.access(named, os.X_OK) or named.is_dir():
            raise ConfigError(f"{named}: is no interpreter; name the Python of an environment that has vLLM")
        return named.absolute()  # not looked for in PATH, and no symbolic link resolved: a venv's Python is one
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            f"no vLLM here: name the Python of an environment that has it by --engine-python or {VARIABLE} "
            "(any vLLM, with or without a GPU; the package kvtide must be installed there too)"
        )
    return Path(sys.executable)


class Simulator:
    """A simulator's process, for any number of runs one after the other; also a context manager.

    Starting takes as long as importing vLLM does: many runs are cheaper in one.
    """

    def __init__(self, python: Path | None = None) -> None:
        self._python = engine_python(python)
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",  # the order of a set of names must be the same in every run
            "KVTIDE_DISABLE": "1",  # the simulator attaches the hooks itself
        }
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = subprocess.Popen(
                [str(self._python), "-m", MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env=environment,
                start_new_session=True,  # a terminal's ^C is ours to handle
            )
        except OSError as error:
            self._said.close()
            raise ConfigError(f"{self._python}: can't be started: {error.strerror}") from None

    def __enter__(self) -> Simulator:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()

    def run(self, spec: Spec) -> Iterator[pipe.Item]:
        """Yield what one run says, until its end; raises :class:`SimulatorError`, :class:`ConfigError` for the spec."""
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None  # noqa: S101 - they are pipes
        assert sink is not None  # noqa: S101
        if sink.closed:
            raise SimulatorError("this simulator was closed; start another")
        try:
            pipe.write(sink, spec)
            sink.flush()
            while (item := pipe.read_item(source)) is not None:
                if item.kind == pipe.FAILED:
                    raise ConfigError(item.body.decode(errors="replace"))
                if item.kind == pipe.END:
                    return
                yield item
        except (BrokenPipeError, pipe.PipeError):
            pass
        raise SimulatorError(self._why())

    def close(self) -> None:
        """End the process."""
        process = self._process
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            process.wait(END_SECONDS if process.poll() is None else 0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._said.close()

    def _why(self) -> str:
        code = self._process.wait()
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - SAID_BYTES))
        lines = [line.strip() for line in self._said.read().decode(errors="replace").splitlines() if line.strip()]
        said = lines[-1][:300] if lines else "it said nothing"
        return f"{MODULE} in {self._python} ended with code {code}: {said}"
