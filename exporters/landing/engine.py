"""One engine with hooks on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from agent.faces import allocator, devices, signals
from agent.faces.detail import lines_of
from agent.faces.lines import BAD, Line, largest, share_of
from agent.faces.verdicts import of_engine, pointer
from agent.oom.log import Failure
from agent.state import AgentState, EngineState, PoolState
from agent.tide import Moment
from agent.units import human_bytes, human_seconds
from engine_hooks.detail import Detail
from exporters.landing import tide
from exporters.landing.markup import item, lines, quiet, row, table

_NO_POOL = "<p>This engine has no KV pool.</p>"


def section_of(
    engine: EngineState,
    peers: Mapping[str, str],
    failed: Sequence[Failure],
    state: AgentState,
    moments: Sequence[Moment],
) -> str:
    """Return the box of one engine; ``failed``: what failed in its processes, ``moments``: its last half an hour."""
    head = f"<h2>{escape(engine.engine)}</h2>"
    about = f'<p class="quiet">vLLM {escape(engine.engine_version)}, pid {engine.pid}, {engine.phase}</p>'
    fallen = [*allocator.failures(failed, state.at)]
    if engine.phase != "live":
        return f"<section>{head}{about}<p>No values: {escape(engine.reason)}.</p>{lines(fallen)}</section>"
    audit = "" if engine.audit_supported else f"<p>No exact accounting: {escape(engine.audit_reason)}.</p>"
    pool = f"{tide.picture(moments, state.at)}{_pool(engine.pool)}" if engine.pool else _NO_POOL
    found = lines_of(engine.detail, peers) if engine.detail else []
    memory = [*fallen, *allocator.lines(engine.members, gpus=devices.any_gpu(state))]
    standing = of_engine(engine)
    if standing:
        verdicts = f'<div class="verdict">{escape(pointer(standing))}</div>'
    elif any(line.style == BAD for line in [*found, *memory]):
        verdicts = ""
    else:
        verdicts = '<div class="verdict resolved">Nothing is wrong.</div>'
    over_time = lines(signals.lines(state, engine.engine))
    told = _detail(engine.detail, found) if engine.detail else ""
    counts = f"<dl>{item('running', f'{engine.running}')}{item('waiting', f'{engine.waiting}')}</dl>"
    body = (head, about, verdicts, over_time, pool, counts, told, lines(memory), audit, _cost(engine))
    return f"<section>{''.join(body)}</section>"


def _detail(detail: Detail, found: list[Line]) -> str:
    told = lines(found)
    shown, rest = largest(detail.tenants)
    if not shown:
        return told
    rows = [row(tenant.tenant, (share_of(tenant), f"{tenant.running:,}", f"{tenant.waiting:,}")) for tenant in shown]
    more = quiet(f"{len(rest)} more tenants" if rest else "")
    return told + table(("tenant", "blocks", "running", "waiting"), rows) + more


def _cost(engine: EngineState) -> str:
    parts = []
    if engine.report_age_seconds is not None:
        parts.append(f"reported {human_seconds(engine.report_age_seconds)} ago")
    if engine.hooks is not None and engine.hooks.step_seconds:
        parts.append(
            f"hooks cost {engine.hooks.hook_seconds / engine.hooks.step_seconds:.2%} of the engine's step time"
        )
    return quiet("; ".join(parts))


def _pool(pool: PoolState) -> str:
    leaked = min(pool.orphaned or 0, pool.held)
    parts = (("held", pool.held - leaked), ("leak", leaked), ("cached", pool.cached_idle or 0))
    bar = "".join(
        f'<span class="{css}" style="width:{min(100, 100 * n / pool.capacity):.2f}%"></span>'
        for css, n in parts
        if n > 0
    )
    # The bar's parts do not overlap; in the numbers, what is orphaned is held, too.
    items = (
        ("", "held", pool.held),
        ("leak", "of it orphaned", pool.orphaned),
        ("held", "held by requests", None if pool.orphaned is None else pool.held - leaked),
        ("cached", "cached idle", pool.cached_idle),
        ("empty", "empty", pool.empty),
        ("", "capacity", pool.capacity),
    )
    cells = "".join(item(name, _blocks(pool, number), css) for css, name, number in items)
    return f'<div class="bar" role="img" aria-label="KV blocks">{bar}</div><dl>{cells}</dl>'


def _blocks(pool: PoolState, number: int | None) -> str:
    if number is None:
        return "not known"
    size = pool.bytes_of(number)
    return f"{number:,}" if size is None else f"{number:,} ({human_bytes(size)})"
