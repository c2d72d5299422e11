"""host_growth: memory of an engine's process or cgroup grows until the kernel kills it.

Against the cgroup's limit. Pages that the kernel can take back (files) are no growth: the source counts the working
set, and a cgroup that is mostly files is judged by its processes. A start takes its memory and stops: nothing is judged
in the policy's window after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.plain import plain
from agent.policy.types import HostPolicy
from agent.signals.types import HostSignals
from agent.sources.host.state import CgroupState, ProcessState
from agent.state import AgentState, Tier
from agent.subject import Subject
from agent.units import human_bytes, human_seconds
from agent.verdicts.base import Finding, View
from agent.verdicts.leaking import leaks, shape
from agent.verdicts.who import total_of, worst

ENOUGH = 0.85  # of the window: a rate over less says nothing of it; samples of a minute reach no more than that
FAR_SECONDS = 86400.0  # what ends later than that is for the slow estimate: a heap between two collections grows too
# What ends later than that must go on for longer: teeth that are about as far apart as samples look long and slow.
LATER_SECONDS, LATER_CONFIRM_SECONDS = 6 * 3600.0, 900.0
WARN_BYTES = 128 * 1024**2  # in ten minutes; less than that ends nobody
PAGE_BYTES = 1024**3
FILES = 0.5  # a cgroup with more of files than that may be full of what can be had back
MOST = 0.5  # of what grows: told once, as what makes that much of it
STALLED_RATIO = 0.2  # share of the last 10 s in which no process of the cgroup could run for want of memory
LIMIT_RATIO = 0.9
LIMIT = (
    "Raise the memory limit of the container or the group if the host has room, or restart the engine in a calm hour "
    "before the kernel does it. GPU levers (evicting, preempting) free none of it."
)
GROWTH = (
    "Find what grows (py-spy dump, memray attach; requests with images or logprobs are usual), and restart the process "
    "in a calm hour. GPU levers (evicting, preempting) free none of it."
)


class HostGrowth:
    """Fires on growth above the policy's rates, on a limit that is near, on a slow leak, and on stalls at the limit."""

    kind = "host_growth"
    confirm_seconds = 60.0
    clear_seconds = 300.0
    of_absence = False

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the processes, and the cgroups by the first of their processes, that grow."""
        return worst(_all(view))


def _all(view: View) -> Iterator[tuple[Subject, Finding]]:
    host = view.state.host
    found = [(_subject(row, view), finding) for row in view.signals.host if (finding := _of(row, view)) is not None]
    # A group may be at its limit long before the host is out of memory: of two that are as bad the sooner one is told.
    yield from sorted(found, key=lambda each: each[1].confirm_seconds or 0.0)
    for cgroup in host.cgroups if host is not None else ():
        finding = _stalled(cgroup)
        if finding is not None:
            yield _of_host(cgroup.engine, cgroup.role, cgroup.rank), finding


def _subject(row: HostSignals, view: View) -> Subject:
    """A group that grows by what one of its processes does is told as that process."""
    who = _grower(row, view)
    return _of_host(who.engine, who.role, who.rank)


def _of_host(engine: str, role: str, rank: int) -> Subject:
    # Of the host: its source sees it, whether that process reports to us or not.
    return Subject(scope="host", engine=engine, process=f"{role}/{rank}")


def _grower(row: HostSignals, view: View) -> HostSignals:
    """The process that makes most of what a cgroup grows by; the cgroup itself where none does."""
    if row.what != "cgroup":
        return row
    own = [each for each in view.signals.host if each.what == "process" and each.engine == row.engine]
    most = max(own, key=_grown, default=row)
    return most if _grown(most) >= MOST * _grown(row) > 0 else row


def _of(row: HostSignals, view: View) -> Finding | None:
    limits, textbook = view.policy.host, view.policy.profile == "textbook"
    tier = _by_rate(row, limits, textbook=textbook)
    soon = row.limit_seconds
    if soon is not None and tier is not None and soon.seconds < limits.limit_seconds:
        tier = "page"
    slowly = leaks(row.slow)
    if tier is None and slowly and not _tensors(_grower(row, view), view):
        tier = "warn"
    if tier is None or (not textbook and (_starting(row, view.state, limits) or _files(row, view))):
        return None
    later = soon is not None and soon.seconds >= LATER_SECONDS and not textbook and not slowly
    remedy = LIMIT if row.limit_bytes is not None and soon is not None else GROWTH
    confirm = LATER_CONFIRM_SECONDS if later else None
    return Finding(_sentence(row), remedy, _evidence(row), tier=tier, confirm_seconds=confirm)


def _by_rate(row: HostSignals, limits: HostPolicy, *, textbook: bool) -> Tier | None:
    rate, size = row.growth, row.bytes
    if rate is None or size is None or rate.low <= 0 or rate.seconds < ENOUGH * limits.warn_seconds:
        return None
    grown = rate.per_minute * size * limits.warn_seconds / 60
    soon = row.limit_seconds
    far = not textbook and soon is not None and soon.seconds >= FAR_SECONDS
    if not far and rate.per_minute > limits.page_per_minute and (textbook or grown >= PAGE_BYTES):
        return "page"
    if not far and rate.per_minute > limits.warn_per_minute and (textbook or grown >= WARN_BYTES):
        return "warn"
    # A slow rate on a great size can still be at the limit soon.
    near = soon is not None and soon.seconds < limits.limit_seconds
    return "page" if near and (textbook or grown >= WARN_BYTES) else None


def _starting(row: HostSignals, state: AgentState, limits: HostPolicy) -> bool:
    """Whether the process, or the first of the cgroup, has just been started: it loads and warms up."""
    process = _process(row, state)
    return (
        process is not None
        and process.started_at is not None
        and state.at - process.started_at < 2 * limits.warn_seconds
    )


def _process(row: HostSignals, state: AgentState) -> ProcessState | None:
    for process in state.host.processes if state.host is not None else ():
        if (process.engine, process.role, process.rank) == (row.engine, row.role, row.rank):
            return process
    return None


def _files(row: HostSignals, view: View) -> bool:
    """Whether what a cgroup grows by can be files, which the kernel takes back: they are that much, and its processes
    don't grow by as much as half of it.
    """
    if row.what != "cgroup" or view.state.host is None:
        return False
    who = (row.engine, row.role, row.rank)
    cgroup = next((each for each in view.state.host.cgroups if (each.engine, each.role, each.rank) == who), None)
    parts = (cgroup.parts or {}) if cgroup is not None else {}
    if row.bytes is None or "file" not in parts:
        return False
    # Of the working set, where there is one: what nobody used lately isn't in what grows.
    files, grown = parts["file"] - parts.get("shmem", 0) - _idle(cgroup), _grown(row)
    if files < grown:
        return False
    own = [each for each in view.signals.host if each.what == "process" and each.engine == row.engine]
    return sum(map(_grown, own)) < grown / 2 if own else files > FILES * row.bytes


def _idle(cgroup: CgroupState | None) -> int:
    """Bytes of files that the working set leaves out."""
    if cgroup is None or cgroup.current_bytes is None or cgroup.working_set_bytes is None:
        return 0
    return max(0, cgroup.current_bytes - cgroup.working_set_bytes)


def _tensors(row: HostSignals, view: View) -> bool:
    """Whether torch's allocator in that process leaks as much: allocator_growth tells it, and whose it is."""
    slow, size = row.slow, row.bytes or 0
    return slow is not None and any(
        leaks(each.slow)
        and (each.engine, each.role, each.rank) == (row.engine, row.role, row.rank)
        and each.slow is not None
        and each.slow.per_hour * (total_of(view.state, each.gpu) or 0) >= MOST * slow.per_hour * size
        for each in view.signals.allocators
    )


def _grown(row: HostSignals) -> float:
    """Bytes that came over the time that the estimates are of, zero where they may be none."""
    size, rate, slow = row.bytes or 0, row.growth, row.slow
    fast = size * rate.per_minute * rate.seconds / 60 if rate is not None and rate.low > 0 else 0.0
    return max(fast, size * slow.per_hour * slow.seconds / 3600 if slow is not None and leaks(slow) else 0.0)


def _stalled(cgroup: CgroupState) -> Finding | None:
    pressure, limit, current = cgroup.pressure, cgroup.limit_bytes, cgroup.limit_current_bytes
    if (
        pressure is None
        or pressure.full_ratio < STALLED_RATIO
        or not limit
        or current is None
        or current < LIMIT_RATIO * limit
    ):
        return None
    return Finding(
        f"The processes of engine {plain(cgroup.engine)} stood still for memory {pressure.full_ratio:.0%} of the last "
        f"10 s: their group holds {human_bytes(current)} of {human_bytes(limit)} that it may hold.",
        LIMIT,
        {"stalled_ratio": pressure.full_ratio, "limit_bytes": limit, "used_bytes": current},
        tier="warn",
    )


def _sentence(row: HostSignals) -> str:
    who = f"engine {plain(row.engine)}'s {plain(row.role)} {row.rank}"
    what = f"The memory group of {who}" if row.what == "cgroup" else f"Host memory of {who}"
    size = "" if row.bytes is None else f", {human_bytes(row.bytes)} now,"
    rate, slow = row.growth, row.slow
    if slow is not None and leaks(slow) and (rate is None or rate.per_minute <= 0 or rate.low <= 0):
        by = _amount(slow.per_hour, row.bytes, "an hour")
        grows = f"grows by {by}, for {human_seconds(slow.seconds)} now{shape(slow)}"
    elif rate is not None:
        by = _amount(rate.per_minute, row.bytes, "a minute")
        grows = f"grows by {by} ({rate.per_minute:.1%}), over {human_seconds(rate.seconds)}"
    else:
        grows = "grows"
    text = f"{what}{size} {grows}."
    if row.limit_bytes is not None and row.limit_ratio is not None:
        text += f" {row.limit_ratio:.0%} of its limit of {human_bytes(row.limit_bytes)} are used"
        text += (
            f"; at this rate it is reached in {human_seconds(row.limit_seconds.seconds)}." if row.limit_seconds else "."
        )
    elif row.limit_seconds is not None:
        text += f" At this rate the host's memory is out in {human_seconds(row.limit_seconds.seconds)}."
    return text


def _amount(ratio: float, size: int | None, per: str) -> str:
    return f"{ratio:.1%} {per}" if size is None else f"{human_bytes(ratio * size)} {per}"


def _evidence(row: HostSignals) -> dict[str, float]:
    known: dict[str, float | None] = {
        "bytes": row.bytes,
        "ratio_per_minute": row.growth.per_minute if row.growth is not None else None,
        "seconds": row.growth.seconds if row.growth is not None else None,
        "ratio_per_hour": row.slow.per_hour if row.slow is not None else None,
        "steps": row.slow.staircase or None if row.slow is not None else None,
        "limit_bytes": row.limit_bytes,
        "limit_ratio": row.limit_ratio,
        "limit_seconds": row.limit_seconds.seconds if row.limit_seconds is not None else None,
    }
    return {name: value for name, value in known.items() if value is not None}
