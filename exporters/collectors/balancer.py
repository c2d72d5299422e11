"""Weights at a load balancer."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, known


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield what load balancers are told, and how asking the coordinator goes."""
    balancer = state.balancer
    if balancer is None:
        return
    for each in balancer.engines:
        yield Sample(c.BALANCER_WEIGHT, (each.engine,), each.told.percent / 100 if each.told.serves else 0.0)
        yield Sample(c.BALANCER_ISOLATED, (each.engine,), not each.told.serves)
    yield Sample(c.BALANCER_ENFORCING, (), balancer.mode == "enforce")
    yield from known(c.BALANCER_FLEET, (), balancer.fleet)
    yield from known(c.BALANCER_EJECTED, (), balancer.ejected)
    yield Sample(c.BALANCER_REFUSED, (), balancer.refused_total)
    yield Sample(c.BALANCER_FAILED, (), balancer.failed_total)
