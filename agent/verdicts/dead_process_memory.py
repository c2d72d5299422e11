"""dead_process_memory: memory of a GPU that the driver still books on processes which are not there any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from agent.sources.host.state import DeadHolder
from agent.subject import Subject
from agent.units import human_bytes
from agent.verdicts.base import Finding, View
from agent.verdicts.who import failed_on, memory_of, total_of
from engine_hooks.allocator import MEMORY, OOM

STARVED_RATIO = 0.05  # so little free beside it: what the dead hold is what the living miss
RECENT_SECONDS = 600.0
MOST_PIDS = 5
REMEDY = (
    "Find who shares it and lives (fuser -v /dev/nvidia*, children of the dead one, containers that were removed); "
    "ending that one gives it back. Ask its owner first: end nothing by guess. If nobody has it, the GPU must be reset "
    "when its engines are drained, or the node rebooted."
)


class DeadProcessMemory:
    """Fires on what the host's source has found in two scans in a row; pages where the GPU has no room beside it, and
    an allocation or a start failed for want of memory.
    """

    kind = "dead_process_memory"
    confirm_seconds = 30.0
    clear_seconds = 120.0  # the scan is the host's source's: it may be away while the GPU is seen
    of_absence = False

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the GPUs with memory of the dead; nothing where it can't be told who lives."""
        host = view.state.host
        by_gpu: dict[str, list[DeadHolder]] = defaultdict(list)
        for row in (host.dead or ()) if host is not None else ():
            by_gpu[row.gpu].append(row)
        for gpu, rows in sorted(by_gpu.items()):
            yield Subject(scope="gpu", gpu=gpu), _finding(gpu, rows, view)


def _finding(gpu: str, rows: list[DeadHolder], view: View) -> Finding:
    size, total = sum(row.used_bytes for row in rows), total_of(view.state, gpu)
    memory = memory_of(view.state, gpu)
    starved = memory is not None and memory.free < STARVED_RATIO * memory.total
    share = "" if not total else f", {size / total:.0%} of it,"
    pids = ", ".join(str(row.pid) for row in rows[:MOST_PIDS])
    rest = f" and {len(rows) - MOST_PIDS} more" if len(rows) > MOST_PIDS else ""
    which = f"process {pids}, which is" if len(rows) == 1 else f"processes {pids}{rest}, which are"
    text = f"{human_bytes(size)} of GPU {gpu}{share} are booked on {which} not there any more."
    evidence: dict[str, float] = {"dead_bytes": size, "processes": len(rows)}
    if total:
        evidence["dead_ratio"] = size / total
    if memory is not None:
        evidence["free_bytes"] = memory.free
        if starved:
            text += f" Only {human_bytes(memory.free)} are free beside it."
    return Finding(text, REMEDY, evidence, tier="page" if starved and _failing(gpu, view) else "warn")


def _failing(gpu: str, view: View) -> bool:
    """Whether memory of this GPU was refused lately: who failed on another one does not miss what is held here."""
    return any(
        failure.event.kind in (OOM, MEMORY)
        and view.state.at - failure.event.at < RECENT_SECONDS
        and failed_on(view.state, failure) == gpu
        for failure in view.state.failures
    )
