"""restart_loop: an engine that comes up again and again."""

from __future__ import annotations

from collections.abc import Iterable

from agent.plain import plain
from agent.sources.host.restarts import WINDOW_SECONDS
from agent.state import AgentState
from agent.subject import Subject
from agent.units import human_seconds
from agent.verdicts.base import Finding, View

REMEDY = "Stop restarting it and read the end of its log: what killed it last will kill it again."
REMEDY_KILLED = "Raise the memory limit of its container or lower what it takes; restarting it again changes nothing."


class RestartLoop:
    """Fires on the policy's number of restarts within its window; one restart is a restart, not a fault.

    The subject is the node's, not the engine's: an engine's verdicts end with its process, and this one must not.
    """

    kind = "restart_loop"
    confirm_seconds = 0.0
    clear_seconds = 0.0
    of_absence = False

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the engines that restarted too often."""
        host, policy = view.state.host, view.policy.host
        for row in host.restarts if host else ():
            if row.restarts < policy.restarts_warn:
                continue
            why, remedy = _why(row.engine, view.state, view.state.at - WINDOW_SECONDS)
            yield (
                Subject(scope="host", engine=row.engine),
                Finding(
                    f"Engine {plain(row.engine)} has restarted {row.restarts} times within "
                    f"{human_seconds(WINDOW_SECONDS)}.{why}",
                    remedy,
                    {"restarts": row.restarts, "window_seconds": WINDOW_SECONDS},
                    "page" if row.restarts >= policy.restarts_page else "warn",
                ),
            )


def _why(engine: str, state: AgentState, since: float) -> tuple[str, str]:
    """Return what is known of its last end, led by a space, and what helps."""
    killed = [each for each in (state.host.killed if state.host else ()) if each.engine == engine and each.at >= since]
    if killed:
        return f" The kernel killed its {killed[0].role} for want of memory.", REMEDY_KILLED
    failed = [each for each in state.failures if each.engine == engine and each.event.at >= since]
    if failed:
        judged = failed[0].judgement
        kind = failed[0].event.kind.replace("_", " ")
        return (f" {judged.sentence}", judged.remedy) if judged else (f" Its last failure: {kind}.", REMEDY)
    return "", REMEDY
