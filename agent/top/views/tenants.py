"""Tenants: what each holds of which engine, against its quota, and its sessions."""

from __future__ import annotations

from typing import NamedTuple

from agent.faces.lines import share_of
from agent.retained import NO_TENANT
from agent.signals.types import TenantSignals
from agent.state import AgentState
from agent.top import bars
from agent.top.engines import rate_of
from agent.top.history import Who
from agent.top.seen import Page, Room, Seen, Where
from agent.top.text import Cell, Column, Line, line, paragraph, table
from agent.units import human_seconds
from engine_hooks.detail import TenantRow

NAME = "tenants"
ORDERS = ("held", "quota", "growth", "waiting", "sessions", "name")
_WIDE = 110  # columns for what is only nice to know


class _Tenant(NamedTuple):
    engine: str
    row: TenantRow
    signals: TenantSignals | None

    @property
    def quota(self) -> float | None:
        """Share of the quota that is used."""
        quota, held = self.row.quota_blocks, self.row.held
        return None if not quota or held is None else held / quota


def page(state: AgentState, _seen: Seen, where: Where, room: Room) -> Page:
    """Return the tenants of the chosen engine, or of all."""
    found = Page(orders=ORDERS)
    rows = _ordered(_tenants(state, where.engine), where)
    of = f"tenants of {where.engine.label}" if where.engine is not None else "tenants of all engines"
    found.lines.append(line((of, "label")))
    if not rows:
        found.lines += paragraph(_why_none(state, where.engine), room.width, "dim")
        return found
    listed = [each for each in rows if where.lists(each.row.tenant, each.engine)]
    if not listed:
        found.lines += paragraph(f"No tenant has {where.pattern!r}; escape clears the filter.", room.width)
        return found
    columns, lines = _columns(room.width), [_cells(each, room.width) for each in listed]
    head, drawn = table(columns, lines, room.width - 1)
    found.lines.append(((" ", ""), *head))
    for each, row in zip(listed, drawn, strict=True):
        key = f"{each.engine}\n{each.row.tenant}"
        text = f"{each.row.tenant} {each.engine}"
        found.pick(((" ", ""), *row), key, text, Who(each.engine, hooked=True), each.row.tenant)
    found.lines.append(())
    without = sum(each.row.quota_blocks is None for each in listed)
    if without:
        found.lines += paragraph(f"{without} of {len(listed)} have no quota.", room.width, "dim")
    return found


def _tenants(state: AgentState, chosen: Who | None) -> list[_Tenant]:
    signals = {
        (each.engine, each.tenant): each for each in (state.judgement.signals.tenants if state.judgement else ())
    }
    return [
        _Tenant(engine.engine, row, signals.get((engine.engine, row.tenant)))
        for engine in state.engines
        if chosen is None or (chosen.hooked and chosen.label == engine.engine)
        for row in (engine.detail.tenants if engine.detail is not None else None) or ()
    ]


def _why_none(state: AgentState, chosen: Who | None) -> str:
    if chosen is not None and not chosen.hooked:
        return "- an engine without hooks does not tell its tenants: install kvtide beside it."
    for engine in state.engines:
        if chosen is None or chosen.label == engine.engine:
            why = engine.detail.unsupported.get("tenants") if engine.detail is not None else engine.reason
            if why:
                return f"- {engine.engine}: {why}"
    return "- no request has come yet." if state.engines else "- no engine with hooks is connected."


def _ordered(rows: list[_Tenant], where: Where) -> list[_Tenant]:
    order, backwards = where.order(NAME)

    def growth(each: _Tenant) -> float:
        rate = each.signals.share_per_minute if each.signals else None
        return -1e9 if rate is None else rate

    keys = {
        "held": lambda each: -(each.row.held or 0.0),
        "quota": lambda each: -(each.quota if each.quota is not None else -1.0),
        "growth": lambda each: -growth(each),
        "waiting": lambda each: -each.row.waiting,
        "sessions": lambda each: -each.row.sessions,
        "name": lambda each: (each.row.tenant, each.engine),
    }
    found = sorted(rows, key=lambda each: (each.row.tenant, each.engine))
    found.sort(key=keys[ORDERS[order % len(ORDERS)]])
    return found[::-1] if backwards else found


def _columns(cells: int) -> list[Column]:
    found = [
        Column("tenant", 8, 2),
        Column("engine", 6, 1),
        Column("blocks", right=True),
        Column("of quota", 8, 1),
        Column("share", right=True),
        Column("run", right=True),
        Column("wait", right=True),
        Column("sess.", right=True),
        Column("life p50", right=True),
    ]
    if cells >= _WIDE:
        found += [
            Column("growth/min", right=True),
            Column("requests/min", right=True),
            Column("preempted", right=True),
            Column("tokens", right=True),
        ]
    return found


def _cells(each: _Tenant, cells: int) -> list[Cell]:
    row, told = each.row, each.signals
    quota = each.quota

    def drawn(size: int) -> Line:
        if quota is None:
            return (("-", "dim"),)
        word = f" {quota:.0%}" + ("!" if quota >= 1 else "")
        style = "bad" if quota >= 1 else "warn" if quota > 0.8 else "good"
        filled = min(1000, round(1000 * quota))
        inner = size - len(word)
        return (*bars.bar((("#", style, filled), (".", "grey50", 1000 - filled)), 1000, inner), (word, style))

    share = told.share_ratio if told else None
    life = told.session_median_seconds if told else None
    found: list[Cell] = [
        row.tenant if row.tenant != NO_TENANT else "none (not marked)",
        each.engine,
        "-" if row.held is None else share_of(row).replace(" of ", "/"),
        drawn,
        "-" if share is None else f"{share:.0%}",
        f"{row.running:,}",
        f"{row.waiting:,}",
        f"{row.sessions:,}",
        "-" if life is None else human_seconds(life),
    ]
    if cells >= _WIDE:
        growth = told.share_per_minute if told else None
        requests = told.requests_per_minute if told else None
        found += [
            "-" if growth is None else rate_of(growth),
            "-" if requests is None else f"{requests:,.0f}",
            f"{row.preempted_total:,}",
            f"{row.prompt_tokens_total + row.generated_tokens_total:,}",
        ]
    return found
