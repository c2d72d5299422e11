"""The boards, one a file; adding one: a file and its line here."""

from __future__ import annotations

from dashboards.board import Board
from dashboards.boards import actions, allocator, efficiency, engine, fleet, leaks, node, tenants

BOARDS: tuple[Board, ...] = (
    fleet.BOARD,
    node.BOARD,
    engine.BOARD,
    tenants.BOARD,
    leaks.BOARD,
    allocator.BOARD,
    actions.BOARD,
    efficiency.BOARD,
)
