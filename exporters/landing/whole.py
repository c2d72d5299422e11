"""The page as a whole: verdicts, engines, then what is around them."""

from __future__ import annotations

from html import escape

from agent.faces import allocator, devices
from agent.faces.words import nobody, refusals
from agent.retained import peers_of
from agent.state import AgentState
from agent.tide import Tides
from exporters.landing import actions, engine, node, verdicts, waterfall
from exporters.landing.markup import STYLE, lines, section


def page(state: AgentState, tides: Tides | None = None) -> str:
    """Return the whole page for ``state``; ``tides``: what was before."""
    problem = "" if state.ready else f'<p class="verdict">Not ready: {escape(state.not_ready_reason)}</p>'
    parts = (
        problem,
        verdicts.box(state),
        _engines(state, tides or Tides()),
        actions.box(state.actions),
        node.without_hooks(state),
        _processes(state),
        node.gpus(state),
    )
    body = "".join((*parts, waterfall.boxes(state), node.host(state)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>kvtide</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta http-equiv="refresh" content="2">'
        f"<style>{STYLE}</style></head><body><h1>kvtide <small class=quiet>{escape(state.version)}</small></h1>"
        '<nav><a href="/metrics">Metrics</a><a href="/api/v1/state">State (JSON)</a>'
        f'<a href="/-/ready">Readiness</a></nav>{body}</body></html>'
    )


def _engines(state: AgentState, tides: Tides) -> str:
    if not state.engines:
        head, *advice = nobody(state)
        turned_away = refusals(state.link)
        told = [*advice, turned_away] if turned_away else advice
        return section(head.removesuffix("."), *(f"<p>{escape(text)}</p>" for text in told))
    peers = peers_of((found.engine, found.detail) for found in state.engines)
    boxes = []
    for found in state.engines:
        failed = [failure for failure in state.failures if failure.engine == found.engine]
        boxes.append(engine.section_of(found, peers, failed, state, tides.of(found.engine)))
    return "".join(boxes)


def _processes(state: AgentState) -> str:
    engines = {found.engine for found in state.engines}
    others = [failure for failure in state.failures if failure.engine not in engines]
    told = lines(
        [*allocator.failures(others, state.at), *allocator.lines(state.processes, gpus=devices.any_gpu(state))]
    )
    return section("Other processes with PyTorch", told) if told else ""
