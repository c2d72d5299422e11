"""vLLM processes of this host that no agent hears of, and why."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from agent.doctor.findings import WHEEL, Finding, bad, note, warn
from agent.units import human_seconds

STARTING_SECONDS = 180.0  # so long may an engine load before its hooks are there
DISABLE, PLUGINS, PLUGIN = "KVTIDE_DISABLE", "VLLM_PLUGINS", "kvtide"


class Process(NamedTuple):
    """A process as this host shows it. ``environ``: None where it may not be read; ``age``: in seconds."""

    pid: int
    parent: int
    command: tuple[str, ...]
    environ: Mapping[str, str] | None
    age: float = math.inf


def running() -> Iterator[Process]:
    """Yield this host's processes; one that ends meanwhile, or may not be looked at, is left out."""
    now = time.time()
    for each in psutil.process_iter(["ppid", "cmdline", "create_time"]):
        try:
            environ = each.environ()
        except psutil.Error:
            environ = None
        command = each.info["cmdline"]
        if command:
            began = each.info["create_time"]
            age = math.inf if began is None else now - began
            yield Process(each.pid, each.info["ppid"] or 0, tuple(command), environ, age)


def findings(processes: Iterable[Process], known: frozenset[int] | None) -> Iterator[Finding]:
    """Yield a finding for each vLLM server none of whose processes is in ``known``, the pids that an agent hears of.

    None: there is no agent that could.
    """
    servers = {each.pid: each for each in processes if is_vllm(each.command)}
    families: dict[int, set[int]] = {}
    for pid in servers:
        root = pid
        while servers[root].parent in servers:
            root = servers[root].parent
        families.setdefault(root, set()).add(pid)
    for root, pids in sorted(families.items()):
        if known is None or not pids & known:
            yield _unheard(servers[root], agent=known is not None)


def is_vllm(command: tuple[str, ...]) -> bool:
    """Return whether a command line is of a vLLM server or of one of its processes."""
    if command[0].startswith("VLLM::"):  # what vLLM calls its processes
        return True
    names = [Path(word).name for word in command[:2]]
    if "vllm" in names:
        return "serve" in command[1:4]
    return "-m" in command and any(word.startswith("vllm.entrypoints") for word in command)


def _unheard(process: Process, *, agent: bool) -> Finding:
    check = f"vLLM, pid {process.pid}"
    environ = process.environ or {}
    if environ.get(DISABLE, "").lower() not in ("", "0", "false", "no"):
        return note(check, f"hooks are switched off: {DISABLE}={environ[DISABLE]}", f"unset {DISABLE}")
    if PLUGINS in environ and PLUGIN not in environ[PLUGINS].split(","):
        text = f"vLLM may load other plugins only: {PLUGINS}={environ[PLUGINS]}"
        return bad(check, text, f"add {PLUGIN} to {PLUGINS}")
    prefix = _prefix(process, environ)
    return _installed(process, check, prefix, agent=agent)


def _installed(process: Process, check: str, prefix: Path | None, *, agent: bool) -> Finding:
    if prefix is None:
        text = "no agent hears of it, and its environment can't be seen from here"
        return warn(check, text, "run kvtide doctor as root, or where the engine runs")
    if not any(prefix.glob("lib/python3*/site-packages/kvtide-*.dist-info")):
        text = f"kvtide is not installed beside it, in {prefix}"
        return bad(check, text, f"{prefix}/bin/python -m pip install {WHEEL}, then restart it (docs/release.md)")
    if not agent:
        return note(check, f"kvtide is installed in {prefix}; without an agent nobody hears of it", "start the agent")
    if process.age < STARTING_SECONDS:
        text = f"started {human_seconds(max(process.age, 0.0))} ago, and no agent hears of it yet"
        return note(check, text, "vLLM takes a while to load: look again in a minute or two")
    why = "it was started before that, or finds another socket or key"
    text = f"kvtide is installed in {prefix}, but no agent hears of it: {why}"
    return bad(check, text, "restart it; compare KVTIDE_SOCKET with the agent's link.socket")


def _prefix(process: Process, environ: Mapping[str, str]) -> Path | None:
    """Return the environment that it runs in: by its own word, or by where its Python is."""
    if virtual := environ.get("VIRTUAL_ENV"):
        return Path(virtual)
    program = Path(process.command[0])
    if program.is_absolute() and program.parent.name == "bin":
        return program.parent.parent
    return None
