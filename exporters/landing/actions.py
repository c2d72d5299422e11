"""What the agent does and has done, on the page."""

from __future__ import annotations

import time
from html import escape

from agent.actions.types import ActionsState
from agent.faces.actions import stops
from agent.faces.effect import came_of
from exporters.landing.markup import quiet, row, section, table

MOST = 8


def box(actions: ActionsState | None) -> str:
    """Return the box; nothing where the agent only observes and never did anything."""
    if actions is None or (actions.mode == "observe" and not actions.recent and not actions.off):
        return ""
    left = "" if actions.budget_left is None else f", {actions.budget_left} left this hour"
    told = "".join(f'<div class="verdict">{escape(line)}</div>' for line in stops(actions))
    rows = []
    for each in actions.recent[:MOST]:
        came = ", ".join(part for part in (each.phase.replace("_", " "), came_of(each), each.reason) if part)
        who = each.plan.kind if each.by == "agent" else f"{each.by} (a person)"
        at = time.strftime("%H:%M:%S", time.localtime(each.at))
        rows.append(row(at, (each.plan.lever, str(each.plan.subject), who, came)))
    done = table(("at", "lever", "on", "for", "state"), rows, "named") if rows else quiet("Nothing was done yet.")
    return section("Actions", quiet(f"mode {actions.mode}{left}"), told, done)
