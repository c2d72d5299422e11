"""Ten nodes with one coordinator: those that ramp up together stay, and of those that leak three go at most."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent.balancer.lease_file import FileCoordinator
from tests.unit.balancer.made import Clock
from tests.unit.balancer.nodes import GrowingNode, Grows

NODES = 10
SETTLED = 150  # seconds: past the policy's grace, and with a minute of numbers


class Fleet:
    """Ten nodes, one engine each. ``least`` and ``most_out``: of all that any second has shown."""

    def __init__(self, directory: Path, make: Callable[[int], Grows]) -> None:
        self.clock = Clock()
        self.nodes = [
            GrowingNode(self.clock, FileCoordinator(directory, f"n{number}", 0.30, self.clock.wall), make(number))
            for number in range(NODES)
        ]
        self.least, self.most_out = 100, 0

    async def run(self, seconds: int, step: int = 2) -> None:
        """Let ``seconds`` pass; the nodes look each ``step`` of them."""
        for _ in range(seconds // step):
            self.clock.now += step
            for node in self.nodes:
                await node.look(step)
            told = [node.percent() for node in self.nodes]
            self.least = min(self.least, *told)
            self.most_out = max(self.most_out, sum(percent < 50 for percent in told))

    def told(self) -> list[int]:
        return sorted(node.percent() for node in self.nodes)


async def test_ten_nodes_that_ramp_up_together_keep_all_their_share(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, lambda number: Grows())
    await fleet.run(SETTLED)
    for node in fleet.nodes:
        node.engines[0].ramp = 0.10
    await fleet.run(400)
    grown = [node.signals["m"] for node in fleet.nodes]
    assert all(each.growth is not None and each.growth.per_minute > 0.08 for each in grown)
    assert all(each.growth_above_page_seconds > 180 for each in grown), "they do grow, and for long"
    await fleet.run(200)
    assert (fleet.least, fleet.most_out) == (100, 0)


async def test_of_ten_that_leak_three_are_isolated_and_the_rest_halved(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, lambda number: Grows())
    await fleet.run(SETTLED)
    for node in fleet.nodes:
        node.engines[0].leak = 0.09
    await fleet.run(470)
    assert fleet.told() == [0, 0, 0, 50, 50, 50, 50, 50, 50, 50]
    assert fleet.most_out == 3
    refused = next(node for node in fleet.nodes if node.percent() == 50)
    assert "3 of 10 are below 50 % already, 3 may be" in refused.balancer.told("m").why
    assert refused.balancer.state.refused_total > 0
    assert refused.balancer.state.fleet == 10
    for node in fleet.nodes:
        node.engines[0].leak = 0.0
    await fleet.run(1200, step=5)
    assert fleet.told() == [100] * NODES, "it ends where the leak does"
    assert fleet.most_out == 3
