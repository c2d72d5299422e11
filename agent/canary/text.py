"""The outcome for terminals: each gate, then the answer."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent.canary.gates import Outcome
from agent.faces.lines import BAD
from agent.plain import plain

GOOD = "#009e73"
_MARKS = {"passed": ("passed", GOOD), "failed": ("FAILED", f"bold {BAD}"), "not known": ("NOT KNOWN", "bold #e69f00")}


def render(outcome: Outcome, remarks: Sequence[str] = ()) -> RenderableType:
    """Return it, readable without colours."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for name in ("gate", "baseline", "candidate", ""):
        table.add_column(name, overflow="fold")
    for gate in outcome.gates:
        mark, style = _MARKS[gate.state]
        cells = (gate.name, gate.baseline, gate.candidate)
        table.add_row(*(Text(plain(cell)) for cell in cells), Text(mark, style=style))
    answer = "may go on" if outcome.passed else "may not go on"
    said = Text(
        plain(f"At {outcome.stage} % the candidate {answer}: {outcome.reason}."),
        style=f"bold {GOOD}" if outcome.passed else f"bold {BAD}",
    )
    return Group(table, Text(), said, *(Text(plain(remark), style="dim") for remark in remarks))
