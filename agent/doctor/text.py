"""What was found, for terminals: readable without colours, what has to be mended with its command."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent.doctor.findings import Finding
from agent.faces.lines import BAD
from agent.plain import plain
from agent.retained import count_of

_MARKS = {
    "ok": ("ok", "#009e73"),
    "note": ("note", "dim"),
    "warn": ("WARN", "bold #e69f00"),
    "bad": ("BAD", f"bold {BAD}"),
}


def render(findings: Sequence[Finding]) -> RenderableType:
    """Return a line for each, and a sentence that sums up."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    table.add_column(overflow="fold", ratio=3)
    for each in findings:
        mark, style = _MARKS[each.level]
        said = Text(plain(each.text))
        if each.mend and each.level != "ok":
            said.append(f"\n-> {plain(each.mend)}", style="bold" if each.level != "note" else "dim")
        table.add_row(Text(mark, style=style), Text(plain(each.check)), said)
    bad = sum(each.level == "bad" for each in findings)
    warned = sum(each.level == "warn" for each in findings)
    if bad or warned:
        said = Text(f"{bad} bad, {count_of(warned, 'warning')}.", style=f"bold {BAD}" if bad else "bold #e69f00")
    else:
        said = Text("All is as it should be.", style="bold #009e73")
    return Group(table, Text(), said)
