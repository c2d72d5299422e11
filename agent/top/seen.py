"""What views are drawn from: what is seen, where the person looks, and the page that comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from agent.state import AgentState
from agent.top.history import History, Who
from agent.top.text import Line

View = Literal["node", "engine", "tenants", "blocks", "verdicts", "actions"]


class Played(NamedTuple):
    """Where a replay is: seconds from its begin, of how many that were read so far; ``loading``: more is being read.

    ``remark``: what of the file can't be shown as it was, and why; empty otherwise.
    """

    position: float
    length: float
    speed: float
    paused: bool
    loading: bool
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known now. ``state``: None before the first answer.

    ``source``: the agent's address or the bundle; ``age_seconds``: of the state, since it came. ``problem``: why there
    is none that is newer, since ``problem_since`` (Unix seconds); empty while answers come. ``frozen``: the person has
    stopped the screen. ``played``: None for a live agent.
    """

    source: str
    state: AgentState | None = None
    history: History = field(default_factory=History)
    age_seconds: float | None = None
    problem: str = ""
    problem_since: float = 0.0
    frozen: bool = False
    played: Played | None = None

    @property
    def stale(self) -> bool:
        """Whether what is shown may no longer be so."""
        return bool(self.problem)


@dataclass(slots=True)
class Where:
    """Where the person looks. ``engine``, ``tenant``: what was chosen on the way, None for all.

    ``pattern``: only rows that have it are listed; ``sought``: what a search went to. ``sorts``: by view, the place of
    the order in its list, and whether it is reversed. ``cursors``: by view, the key of the chosen row.
    """

    view: str = "node"
    engine: Who | None = None
    tenant: str | None = None
    pattern: str = ""
    sought: str = ""
    opened: str = ""
    sorts: dict[str, tuple[int, bool]] = field(default_factory=dict)
    cursors: dict[str, str] = field(default_factory=dict)
    way: list[tuple[str, Who | None, str | None]] = field(default_factory=list)

    def order(self, view: str) -> tuple[int, bool]:
        """Return a view's order."""
        return self.sorts.get(view, (0, False))

    def lists(self, *texts: str) -> bool:
        """Return whether the filter lets a row with these texts through; case does not matter."""
        wanted = self.pattern.casefold()
        return not wanted or any(wanted in text.casefold() for text in texts)


class Pick(NamedTuple):
    """A row that can be chosen: the line it is on, what it is, and what a search looks through."""

    line: int
    key: str
    text: str
    engine: Who | None = None
    tenant: str | None = None


@dataclass(slots=True)
class Page:
    """Lines of a view, and which of them can be chosen. ``orders``: what its rows can be sorted by, the first by
    itself.
    """

    lines: list[Line] = field(default_factory=list)
    picks: list[Pick] = field(default_factory=list)
    orders: tuple[str, ...] = ()

    def pick(self, row: Line, key: str, text: str = "", engine: Who | None = None, tenant: str | None = None) -> None:
        """Append a row that can be chosen."""
        self.picks.append(Pick(len(self.lines), key, text or key, engine, tenant))
        self.lines.append(row)


class Room(NamedTuple):
    """Cells and lines that a page has; ``height`` None where it may be as long as it likes."""

    width: int
    height: int | None = None
