"""Engines that report as vLLM's would, beside an agent under measurement, in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.bed.agent import ROOT, AgentProcess


@contextmanager
def engines(agent: AgentProcess, count: int, *options: str, seconds: float) -> Iterator[Any]:
    """Run ``count`` engines until the end of the block; yield what their process says of itself at its start.

    ``options``: more of ``python -m tests.bed.node``; ``seconds``: how long it may take to end.
    """
    command = [sys.executable, "-m", "tests.bed.node", "--engines", str(count), *options]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **agent.engine_env()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        try:
            yield json.loads(node.stdout.readline())
        finally:
            node.stdin.close()
            node.wait(seconds)
