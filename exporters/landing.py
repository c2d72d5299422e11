"""The landing page: one look at the node without Grafana. Plain HTML, no script, no external resource."""

from __future__ import annotations

import time
from collections.abc import Mapping
from html import escape

from agent.faces.detail import lines_of
from agent.faces.lines import BAD, Line, largest, share_of
from agent.faces.words import invitation, refusals
from agent.retained import peers_of
from agent.state import AgentState, EngineState, PoolState
from agent.units import human_bytes, human_seconds
from engine_hooks.detail import Detail

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.1rem;margin:0}
section{border:1px solid #8886;border-radius:.5rem;padding:.8rem 1rem;margin:1rem 0}
.bar{display:flex;height:1.2rem;border-radius:.3rem;overflow:hidden;background:#8883;margin:.5rem 0}
.key{display:inline-block;width:.8rem;height:.8rem;border-radius:.2rem;margin-right:.3rem;background:#8883}
.bar span{display:block}.held{background:#0072b2}.cached{background:#56b4e9}.leak{background:#d55e00}
.empty{background:#8883}
.verdict{border-left:.35rem solid #d55e00;padding:.3rem .8rem;margin:.6rem 0}
.resolved{border-color:#009e73}.quiet{opacity:.7}nav a{margin-right:1rem}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.4rem;margin:.5rem 0}
.lines{display:block}.lines div{display:flex;gap:.8rem}.lines dt{flex:0 0 5.5rem}.lines dd{overflow-wrap:anywhere}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.5rem 0}th,td{text-align:right;padding:0 .8rem}
th:first-child{text-align:left;padding-left:0;font-weight:400;overflow-wrap:anywhere}
dt{font-size:.85rem;opacity:.75}dd{margin:0;font-variant-numeric:tabular-nums}
"""


def page(state: AgentState) -> str:
    """Return the whole page for ``state``."""
    peers = peers_of((engine.engine, engine.detail) for engine in state.engines)
    engines = "".join(_engine(engine, peers) for engine in state.engines)
    if not engines:
        engines = (
            f"<section><h2>No engine is connected</h2><p>{escape(invitation(state.link))}</p>"
            f"<p>{escape(refusals(state.link))}</p></section>"
        )
    problem = "" if state.ready else f'<p class="verdict">Not ready: {escape(state.not_ready_reason)}</p>'
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>kvtide</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta http-equiv="refresh" content="2">'
        f"<style>{_STYLE}</style></head><body><h1>kvtide <small class=quiet>{escape(state.version)}</small></h1>"
        '<nav><a href="/metrics">Metrics</a><a href="/api/v1/state">State (JSON)</a>'
        f'<a href="/-/ready">Readiness</a></nav>{problem}{engines}</body></html>'
    )


def _engine(engine: EngineState, peers: Mapping[str, str]) -> str:
    verdicts = "".join(
        f'<div class="verdict {verdict.phase}"><strong>{escape(verdict.kind)}: {verdict.phase}</strong> since '
        f"{_clock_time(verdict.since)}<br>{escape(verdict.sentence)} {escape(verdict.remedy)}</div>"
        for verdict in engine.verdicts
    )
    head = f"<h2>{escape(engine.engine)}</h2>"
    about = f'<p class="quiet">vLLM {escape(engine.engine_version)}, pid {engine.pid}, {engine.phase}</p>'
    if engine.phase != "live":
        return f"<section>{head}{about}<p>No values: {escape(engine.reason)}.</p></section>"
    audit = "" if engine.audit_supported else f"<p>No exact accounting: {escape(engine.audit_reason)}.</p>"
    pool = _pool(engine.pool) if engine.pool else "<p>This engine has no KV pool.</p>"
    lines = lines_of(engine.detail, peers) if engine.detail else []
    if not verdicts and not any(line.style == BAD for line in lines):
        verdicts = '<div class="verdict resolved">Nothing is wrong.</div>'
    told = _detail(engine.detail, lines) if engine.detail else ""
    counts = f"<dl>{_item('running', f'{engine.running}')}{_item('waiting', f'{engine.waiting}')}</dl>"
    return f"<section>{head}{about}{verdicts}{pool}{counts}{told}{audit}{_cost(engine)}</section>"


def _detail(detail: Detail, lines: list[Line]) -> str:
    told = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(text)}</dd></div>" for label, text, _ in lines)
    told = f'<dl class="lines">{told}</dl>' if told else ""
    shown, rest = largest(detail.tenants)
    rows = "".join(
        f"<tr><th scope=row>{escape(row.tenant)}</th><td>{share_of(row)}</td><td>{row.running:,}</td>"
        f"<td>{row.waiting:,}</td></tr>"
        for row in shown
    )
    if not rows:
        return told
    more = f'<p class="quiet">{len(rest)} more tenants</p>' if rest else ""
    head = "".join(f"<th scope=col>{name}</th>" for name in ("tenant", "blocks", "running", "waiting"))
    return f"{told}<table><tr>{head}</tr>{rows}</table>{more}"


def _cost(engine: EngineState) -> str:
    parts = []
    if engine.report_age_seconds is not None:
        parts.append(f"reported {human_seconds(engine.report_age_seconds)} ago")
    if engine.hooks is not None and engine.hooks.step_seconds:
        parts.append(
            f"hooks cost {engine.hooks.hook_seconds / engine.hooks.step_seconds:.2%} of the engine's step time"
        )
    return f'<p class="quiet">{escape("; ".join(parts))}</p>'


def _clock_time(unix: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(unix))


def _pool(pool: PoolState) -> str:
    leaked = min(pool.orphaned or 0, pool.held)
    parts = (("held", pool.held - leaked), ("leak", leaked), ("cached", pool.cached_idle or 0))
    bar = "".join(
        f'<span class="{css}" style="width:{min(100, 100 * n / pool.capacity):.2f}%"></span>'
        for css, n in parts
        if n > 0
    )
    items = (
        ("held", "held", pool.held),
        ("leak", "orphaned", pool.orphaned),
        ("cached", "cached idle", pool.cached_idle),
        ("empty", "empty", pool.empty),
        ("", "capacity", pool.capacity),
    )
    cells = "".join(_item(name, _blocks(pool, number), css) for css, name, number in items)
    return f'<div class="bar" role="img" aria-label="KV blocks">{bar}</div><dl>{cells}</dl>'


def _item(name: str, value: str, css: str = "") -> str:
    key = f'<span class="key {css}"></span>' if css else ""
    return f"<div><dt>{key}{escape(name)}</dt><dd>{escape(value)}</dd></div>"


def _blocks(pool: PoolState, number: int | None) -> str:
    if number is None:
        return "not known"
    size = pool.bytes_of(number)
    return f"{number:,}" if size is None else f"{number:,} ({human_bytes(size)})"
