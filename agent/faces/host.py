"""The host's part of ``kvtide status``: memory, each engine's processes and cgroup, what is dead, driver calls."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent.faces.lines import BAD, SHOWN, Line
from agent.retained import count_of
from agent.sources.driver_calls.state import CallRow, DriverCallsState
from agent.sources.host.pages import NOT_YET
from agent.sources.host.state import CgroupState, HostState, KilledState, ProcessState
from agent.state import AgentState
from agent.units import human_bytes, human_seconds

WARN = "yellow"
NOTICED = 0.01  # locked memory, as a share of the host's: drivers and daemons lock a little everywhere
KILLED_SECONDS = 3600.0  # how long a kill is shown
YOUNG_SECONDS = 120.0  # of an agent: what takes turns has not come to everyone yet
_SHM = "/dev/shm"  # noqa: S108 - a word to print
_SOURCES = {"host": "host", "driver_calls": "driver calls"}
_WORDS = {"warn": WARN, "page": BAD}


def panel(state: AgentState) -> RenderableType | None:
    """Return the host as a panel; None where neither source has anything to say."""
    lines = lines_of(state)
    if not lines:
        return None
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, overflow="ellipsis", max_width=24)
    grid.add_column(overflow="fold")
    previous = ""
    for label, text, style in lines:
        # Text, for a plain string would be read as rich markup.
        grid.add_row(Text("" if label == previous else label, style="bold"), Text(text, style=style))
        previous = label
    styles = {line.style for line in lines}
    colour = next((style for style in (BAD, WARN) if style in styles), "grey50")
    return Panel(grid, title=Text("host"), title_align="left", border_style=colour)


def lines_of(state: AgentState) -> list[Line]:
    """Return what there is to say of the host and of driver calls."""
    lines = list(_host(state, state.host)) if state.host else []
    if state.driver_calls:
        lines += _driver(state.driver_calls)
    down = {source.source: source.reason for source in state.sources if not source.up and source.reads}
    return lines + [Line(label, f"not read: {down[name]}", WARN) for name, label in _SOURCES.items() if name in down]


def _host(state: AgentState, host: HostState) -> Iterator[Line]:
    now, age = state.at, state.at - state.started_at
    verdicts = state.judgement.verdicts if state.judgement is not None else ()
    loops = {each.subject.engine: each.tier for each in verdicts if each.kind == "restart_loop" and not each.ending}
    if text := _memory(host):
        yield Line("memory", text)
    for engine in dict.fromkeys(row.engine for row in host.processes):
        rows = [row for row in host.processes if row.engine == engine]
        yield Line(engine, _processes(host, engine, rows))
        yield from (_cgroup(row) for row in host.cgroups if row.engine == engine and row.current_bytes is not None)
        yield from _unknown(engine, rows, young=age < YOUNG_SECONDS)
    for restart in host.restarts:
        if restart.restarts:
            times = count_of(restart.restarts, "time")
            yield Line(
                "restarts",
                f"{restart.engine} started again {times} in 45 min",
                _WORDS.get(loops.get(restart.engine, ""), ""),
            )
    yield from (_killed(row) for row in host.killed[:SHOWN] if now - row.at < KILLED_SECONDS)
    for dead in (host.dead or ())[:SHOWN]:
        text = f"GPU {dead.gpu}: {human_bytes(dead.used_bytes)} are booked on process {dead.pid}, which is gone"
        yield Line("dead", text, BAD)
    if rest := (host.dead or ())[SHOWN:]:
        yield Line("dead", f"{human_bytes(sum(row.used_bytes for row in rest))} of {len(rest)} more", BAD)
    # Cgroups and pids are asked for engines' sake.
    for name in ("memory", "cgroups", "host_pids") if host.processes else ("memory",):
        if name in host.unavailable:
            yield Line("not known", f"{name.replace('_', ' ')}: {host.unavailable[name]}", "dim")


def _memory(host: HostState) -> str:
    parts, memory = [], host.memory or {}
    if "available" in memory and "total" in memory:
        parts.append(f"{human_bytes(memory['available'])} of {human_bytes(memory['total'])} available")
    if swap := memory.get("swap_total"):
        parts.append(f"swap {human_bytes(swap - memory.get('swap_free', 0))} of {human_bytes(swap)}")
    if (locked := memory.get("locked", 0)) >= NOTICED * memory.get("total", 0) > 0:
        parts.append(f"{human_bytes(locked)} locked")
    if host.shm:
        parts.append(f"{_SHM} {human_bytes(host.shm['used'])} of {human_bytes(host.shm['size'])}")
    if host.oom_kills_total:
        parts.append(f"{count_of(host.oom_kills_total, 'OOM kill')} since boot")
    return ", ".join(parts)


def _processes(host: HostState, engine: str, rows: list[ProcessState]) -> str:
    proportional = [row.proportional_bytes for row in rows if row.proportional_bytes is not None]
    resident = [row.resident_bytes for row in rows if row.resident_bytes is not None]
    parts = [_count(len(rows), "process", "processes")]
    if len(proportional) == len(rows):
        parts.append(f"{human_bytes(sum(proportional))} RAM")
    elif resident:
        parts.append(f"{human_bytes(sum(resident))} RAM, shared pages counted in each")
    if swap := sum(row.swap_bytes or 0 for row in rows):
        parts.append(f"{human_bytes(swap)} swapped")
    for children in host.children:
        if children.engine == engine and children.processes:
            words = _count(children.processes, "child", "children")
            parts.append(f"{words} with {human_bytes(children.resident_bytes)}")
    for row in rows:
        if row.shm_size_bytes is not None and row.shm_used_bytes is not None:
            if host.shm and host.shm["size"] == row.shm_size_bytes:
                break  # it is the host's, which is told above
            parts.append(f"{_SHM} {human_bytes(row.shm_used_bytes)} of {human_bytes(row.shm_size_bytes)}")
            break
    place = rows[0].place
    if place.container:
        parts.append(f"{place.runtime} {place.container[:12]}" + (f" in pod {place.pod}" if place.pod else ""))
    return ", ".join(parts)


def _cgroup(row: CgroupState) -> Line:
    text = f"cgroup holds {human_bytes(row.current_bytes or 0)}"
    if row.working_set_bytes is not None:
        text += f" ({human_bytes(row.working_set_bytes)} without idle cache)"
    if row.limit_bytes is None:
        text += ", no limit"
    elif row.limit_of == row.path:
        text += f" of {human_bytes(row.limit_bytes)}"
    else:
        held = "" if row.limit_current_bytes is None else f"{human_bytes(row.limit_current_bytes)} of "
        text += f"; the limit is that of {row.limit_of}: {held}{human_bytes(row.limit_bytes)}"
    kills = (row.events or {}).get("oom_kill", 0)
    if kills:
        text += f"; {_count(kills, 'process was', 'processes were')} killed for memory"
    return Line(row.engine, text, BAD if kills else "")


def _killed(row: KilledState) -> Line:
    at = time.strftime("%H:%M:%S", time.localtime(row.at))
    who = f"{row.engine} {row.role} {row.rank} (pid {row.pid})"
    if row.certain:
        return Line("killed", f"{who} was killed for memory before {at}", BAD)
    where = f"in {row.counted_by}" if row.counted_by else "on this host"
    return Line("killed", f"{who} ended before {at}, and {where} one was killed for memory", BAD)


def _unknown(engine: str, rows: list[ProcessState], *, young: bool) -> Iterator[Line]:
    """What could not be read of an engine's processes, each reason once. ``young``: a turn to come is no news."""
    names: dict[str, dict[str, None]] = {}
    for row in rows:
        for name, reason in row.unavailable.items():
            names.setdefault(reason, {})[name.replace("_", " ")] = None
    if names.pop(NOT_YET.reason, None) and not young:
        yield Line(engine, "PSS not read yet (processes take turns)", "dim")
    for reason, fields in names.items():
        yield Line(engine, f"not known: {', '.join(fields)}: {reason}", "dim")


def _driver(state: DriverCallsState) -> Iterator[Line]:
    if not state.attached:
        yield Line("driver calls", f"not timed: {state.reason}", "dim")
        return
    recent = [row for row in state.calls if row.recent_calls]
    recent.sort(key=lambda row: -(row.recent_p99_seconds or 0))
    yield from (_call(row) for row in recent[:SHOWN])
    if not recent:
        yield Line("driver calls", "none in 5 min", "dim")


def _call(row: CallRow) -> Line:
    text = f"{row.engine} {row.call}: {count_of(row.recent_calls, 'call')} in 5 min"
    if row.recent_p50_seconds is not None and row.recent_p99_seconds is not None:
        text += f", half within {_short(row.recent_p50_seconds)}, 99% within {_short(row.recent_p99_seconds)}"
    if row.failures_total:
        text += f", {row.failures_total:,} failed since tracing began"
    return Line("driver calls", text)


def _short(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:g} us"
    return f"{seconds * 1e3:g} ms" if seconds < 1 else human_seconds(seconds)


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
