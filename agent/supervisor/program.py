"""Runs a program to its end: no shell, bounded in time and in what is kept of its words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from agent.plain import plain
from agent.supervisor.base import SupervisorError

MOST_BYTES = 16 << 10  # of its output; what is beyond is read and dropped
MOST_WORDS = 300  # characters of it in a reason


async def run(argv: Sequence[str], seconds: float, extra: Mapping[str, str] | None = None) -> str:
    """Return what it has put out; raises :class:`SupervisorError` where it can't be run, fails or takes too long (it is
    killed then, with its children). ``extra``: added to the environment.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(extra or {})},
            start_new_session=True,
        )
    except OSError as error:
        raise SupervisorError(f"{argv[0]}: {error.strerror}") from None
    try:
        async with asyncio.timeout(seconds):
            said, code = await _end(process)
    except TimeoutError:
        raise SupervisorError(f"{argv[0]}: has not ended within {seconds:g} s") from None
    finally:
        if process.returncode is None:  # also where the agent ends meanwhile
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if code:
        raise SupervisorError(f"{argv[0]}: ended with {code}{said and f': {plain(said.strip(), MOST_WORDS)}'}")
    return said


async def _end(process: asyncio.subprocess.Process) -> tuple[str, int]:
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    kept = bytearray()
    # Its end counts, not that of the pipe: what it has started may hold that for ever.
    reading = asyncio.ensure_future(_read(process.stdout, kept))
    try:
        code = await process.wait()
        await asyncio.wait((reading,), timeout=0.2)
    finally:
        reading.cancel()
    return kept.decode(errors="replace"), code


async def _read(stream: asyncio.StreamReader, kept: bytearray) -> None:
    while part := await stream.read(4096):
        kept += part[: max(0, MOST_BYTES - len(kept))]
