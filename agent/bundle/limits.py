"""What a state may have at most: a file can say anything, and who judges it keeps something of all that has a name.

All is some times what a live agent takes. Rows of an engine's own report have limits of their own, by their types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.bundle.header import Change
from agent.state import AgentState

ENGINES, SCRAPED, MEMBERS, GPUS, PROCESSES, FAILURES = 512, 2048, 2048, 256, 2048, 1024
NAME = 1024  # characters


def excess(record: AgentState | Change) -> str:
    """Return what of a record is more than any may be; empty where nothing is."""
    if isinstance(record, Change):
        about = record.verdict.subject
        names = (record.verdict.kind, about.engine, about.tenant, about.gpu, about.process, about.source)
        return _longest(names)
    for what, number, most in _numbers(record):
        if number > most:
            return f"it has {number:,} {what}, and {most:,} is the most"
    return _longest(_names(record))


def _numbers(state: AgentState) -> Iterator[tuple[str, int, int]]:
    yield "engines", len(state.engines), ENGINES
    yield "engines' processes", sum(len(engine.members) for engine in state.engines), MEMBERS
    yield "PyTorch processes", len(state.processes), MEMBERS
    yield "failures", max(len(state.failures), len(state.failure_counts)), FAILURES
    if state.scrape is not None:
        yield "pages' engines", len(state.scrape.engines), SCRAPED
    if state.device is not None:
        yield "GPUs", sum(1 + len(gpu.instances) for gpu in state.device.gpus), GPUS
    if state.host is not None:
        yield "processes on the host", len(state.host.processes), PROCESSES
        yield "cgroups", len(state.host.cgroups), PROCESSES


def _names(state: AgentState) -> Iterator[str]:
    for engine in state.engines:
        yield engine.engine
        yield engine.instance
        for member in engine.members:
            yield member.role
            yield member.instance
    for member in state.processes:
        yield member.process
        yield member.instance
    for page in state.scrape.engines if state.scrape else ():
        yield page.engine
    for gpu in state.device.gpus if state.device else ():
        yield gpu.gpu
        yield gpu.uuid or ""
    for process in state.host.processes if state.host else ():
        yield process.engine
        yield process.role


def _longest(names: Iterator[str] | Sequence[str]) -> str:
    longest = max(map(len, names), default=0)
    return f"a name in it has {longest:,} characters, and {NAME:,} is the most" if longest > NAME else ""
