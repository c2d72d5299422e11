"""Block ages: blocks that stay although no running request needs them, by age, and whose they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from agent.retained import NO_TENANT, count_of, kept_for, owner_of, past_lease, peers_of
from agent.state import AgentState, EngineState
from agent.top import bars
from agent.top.history import Who
from agent.top.seen import Page, Room, Seen, Where
from agent.top.text import Column, Line, cut_line, line, pad, paragraph, table
from agent.units import human_seconds
from engine_hooks.detail import Detail

NAME = "blocks"
ORDERS = ("blocks", "age", "kind", "tenant", "engine")
# Upper bounds in seconds, and what people say.
AGES = (
    (10.0, "under 10 s"),
    (60.0, "10 s to 1 min"),
    (600.0, "1 to 10 min"),
    (3600.0, "10 min to 1 h"),
    (21_600.0, "1 to 6 h"),
    (float("inf"), "6 h and more"),
)
UNKNOWN = "age not known"
LETTERS = {
    "orphaned": ("L", "bad"),
    "over-freed": ("F", "bad"),
    "delayed": ("D", "#56b4e9"),
    "pinned": ("P", "#e69f00"),
}
_WANTED = {"leaks", "delayed", "pins"}  # sections of a detail
_LABELS = 14
_SHOWN = 4


class Kept(NamedTuple):
    """Blocks that one request, peer or holder keeps. ``age``: of the oldest, None where it is not told."""

    kind: str
    engine: str
    tenant: str
    blocks: int
    age: float | None
    whose: str
    late: bool


def page(state: AgentState, _seen: Seen, where: Where, room: Room) -> Page:
    """Return histogram and table of the chosen engine and tenant, or of all."""
    found = Page(orders=ORDERS)
    engines = [
        each
        for each in state.engines
        if where.engine is None or (where.engine.hooked and where.engine.label == each.engine)
    ]
    peers = peers_of((each.engine, each.detail) for each in state.engines)
    every = [kept for each in engines for kept in _kept(each, peers)]
    rows = [each for each in every if where.tenant is None or each.tenant in (where.tenant, "")]
    title = "blocks kept that no running request needs"
    whose = [
        f"engine {where.engine.label}" if where.engine is not None else "",
        f"tenant {where.tenant}" if where.tenant is not None else "",
    ]
    title += f" ({', '.join(filter(None, whose))})" if any(whose) else ""
    found.lines += paragraph(title, room.width, "label")
    found.lines += _not_told(engines, state, where, room.width)
    if not rows:
        if engines and all(each.detail is not None and _WANTED.isdisjoint(each.detail.unsupported) for each in engines):
            found.lines.append(line(("None: all held blocks belong to requests that live.", "good")))
        return found
    found.lines += _histogram(rows, room.width)
    listed = [each for each in _ordered(rows, where) if where.lists(*_texts(each))]
    if not listed:
        found.lines += paragraph(f"No row has {where.pattern!r}; escape clears the filter.", room.width)
        return found
    _table(found, listed, room.width)
    return found


def _texts(each: Kept) -> tuple[str, ...]:
    return each.kind, each.engine, each.tenant, each.whose


def _kept(engine: EngineState, peers: Mapping[str, str]) -> Iterator[Kept]:
    if engine.detail is None:
        return
    detail: Detail = engine.detail
    for leak in detail.leaks or ():
        kind = "over-freed" if leak.kind == "over_freed" else "orphaned"
        tenant = "" if leak.tenant == NO_TENANT else leak.tenant
        yield Kept(kind, engine.engine, tenant, leak.blocks, leak.age_seconds, owner_of(leak), late=True)
    for kept in detail.delayed or ():
        named = [tenant for tenant in kept.tenants if tenant != NO_TENANT]
        whose = f"{count_of(kept.requests, 'request')}, for {kept_for(kept, peers)}"
        if kept.lease_seconds is not None:
            whose += f", lease {human_seconds(kept.lease_seconds)}"
        if kept.expired:
            whose += f", {kept.expired:,} past it"
        rest = kept.blocks - sum(kept.tenants[tenant] for tenant in named)
        late = past_lease(kept)
        for tenant in named:
            yield Kept("delayed", engine.engine, tenant, kept.tenants[tenant], kept.oldest_seconds, whose, late)
        if rest > 0:
            yield Kept("delayed", engine.engine, "", rest, kept.oldest_seconds, whose, late)
    for pin in detail.pins or ():
        if pin.references:
            whose = pin.holder if pin.known else f"{pin.holder}, can't be seen into"
            if pin.orphaned_after_seconds is not None:
                whose += f", leaked at {human_seconds(pin.orphaned_after_seconds)}"
            yield Kept("pinned", engine.engine, "", pin.references, pin.oldest_seconds, whose, late=False)


def _not_told(engines: list[EngineState], state: AgentState, where: Where, cells: int) -> list[Line]:
    """Say of which engines nothing is known here, and why."""
    told: list[str] = []
    if where.engine is not None and not where.engine.hooked:
        told.append("- an engine without hooks does not tell whose blocks are: install kvtide beside it.")
    elif not engines:
        gone = "- this engine is gone." if where.engine is not None else "- no engine with hooks is connected."
        told.append(gone)
    for each in engines:
        if each.detail is None:
            told.append(f"- {each.engine}: {each.reason or 'its first report has not come'}")
            continue
        missing = [f"{name}: {why}" for name, why in each.detail.unsupported.items() if name in _WANTED]
        told += [f"- {each.engine}: {why}" for why in missing]
    lines = [part for text in told[:_SHOWN] for part in paragraph(text, cells, "yellow")]
    if len(told) > _SHOWN:
        lines.append(line((f"- and {len(told) - _SHOWN} more engines", "yellow")))
    return lines


def _histogram(rows: list[Kept], cells: int) -> list[Line]:
    """Return blocks by age, a bar for each span, its letters by kind."""
    ages: dict[str, dict[str, int]] = {name: {} for name in (*(name for _, name in AGES), UNKNOWN)}
    for each in rows:
        name = UNKNOWN if each.age is None else next(word for bound, word in AGES if each.age < bound)
        ages[name][each.kind] = ages[name].get(each.kind, 0) + each.blocks
    if not ages[UNKNOWN]:
        del ages[UNKNOWN]
    most = max((sum(kinds.values()) for kinds in ages.values()), default=0)
    size = max(8, cells - _LABELS - 10)
    found: list[Line] = []
    for name, kinds in ages.items():
        total = sum(kinds.values())
        sizes = [(*LETTERS[kind], kinds.get(kind, 0)) for kind in LETTERS]
        drawn = bars.bar(sizes, most, size) if total else ((" " * size, ""),)
        text = f"{total:,}" if total else "0"
        found.append(cut_line((*line((pad(name, _LABELS), "label")), *drawn, *line(f" {text:>8}")), cells))
    present = {each.kind for each in rows}
    words = [(f"{letter} {kind}  ", style) for kind, (letter, style) in LETTERS.items() if kind in present]
    return [
        *found,
        cut_line(line(" " * _LABELS, *words, ("blocks; groups by their oldest", "dim")), cells),
        (),
    ]


def _ordered(rows: list[Kept], where: Where) -> list[Kept]:
    order, backwards = where.order(NAME)
    keys = {
        "blocks": lambda each: -each.blocks,
        "age": lambda each: -(each.age if each.age is not None else -1.0),
        "kind": lambda each: list(LETTERS).index(each.kind),
        "tenant": lambda each: each.tenant,
        "engine": lambda each: each.engine,
    }
    found = sorted(rows, key=lambda each: (not each.late, -each.blocks))
    found.sort(key=keys[ORDERS[order % len(ORDERS)]])
    return found[::-1] if backwards else found


def _table(found: Page, rows: list[Kept], cells: int) -> None:
    columns = (
        Column("kind", 8),
        Column("blocks", right=True),
        Column("age", right=True),
        Column("tenant", 6, 1),
        Column("engine", 6, 1),
        Column("whose", 20, 3),
    )
    drawn = [
        (
            (f"{LETTERS[each.kind][0]} {each.kind}", LETTERS[each.kind][1]),
            f"{each.blocks:,}",
            ("-" if each.age is None else human_seconds(each.age)) + ("!" if each.late else ""),
            each.tenant or "-",
            each.engine,
            each.whose,
        )
        for each in rows
    ]
    head, lines = table(columns, drawn, cells - 1)
    found.lines.append(((" ", ""), *head))
    for place, (each, row) in enumerate(zip(rows, lines, strict=True)):
        key = f"{each.kind}\n{each.engine}\n{each.tenant}\n{each.whose if each.kind != 'orphaned' else place}"
        text = " ".join(_texts(each))
        found.pick(((" ", ""), *row), key, text, Who(each.engine, hooked=True), each.tenant or None)
    found.lines.append(line((" ! leaked, or past its lease", "dim")))
