"""The views by name, in the order of their numbers, and where enter leads from each."""

from __future__ import annotations

from collections.abc import Callable

from agent.state import AgentState
from agent.top.seen import Page, Room, Seen, Where
from agent.top.views import actions, blocks, engine, help, node, tenants, verdicts

Draw = Callable[[AgentState, Seen, Where, Room], Page]
VIEWS: dict[str, Draw] = {each.NAME: each.page for each in (node, engine, tenants, blocks, verdicts, actions)}
HELP = help.page
TITLES = {
    "node": "Node",
    "engine": "Engine",
    "tenants": "Tenants",
    "blocks": "Block ages",
    "verdicts": "Verdicts",
    "actions": "Actions",
}
INTO = {"node": "engine", "engine": "tenants", "tenants": "blocks", "blocks": "engine", "verdicts": "engine"}
