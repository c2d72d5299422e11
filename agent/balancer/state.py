"""Weights of engines at a load balancer, as values for the faces."""

from __future__ import annotations

from typing import Literal

from agent.subject import Value

# observe: weights stay. dry-run: what they would be is shown, and not told. enforce: they are told.
BalancerMode = Literal["observe", "dry-run", "enforce"]
# up: it gets its percentage of new requests. drain: none, sessions that it has go on. maint: none, and no checks.
WeightMode = Literal["up", "drain", "maint"]
# full: nothing is wrong. halved: 50 %. isolated: no new requests. restoring: more, step by step. person: set by one.
Step = Literal["full", "halved", "isolated", "restoring", "person"]


class Weight(Value, frozen=True, kw_only=True):
    """What a load balancer is to give an engine: ``percent`` of its usual share, 0 unless ``mode`` is up. ``since``:
    Unix time at which it became so; ``why``: for people.
    """

    percent: int = 100
    mode: WeightMode = "up"
    since: float
    why: str = ""
    step: Step = "full"

    @property
    def serves(self) -> bool:
        """Whether it gets new requests at all."""
        return self.mode == "up" and self.percent > 0


class EngineWeight(Value, frozen=True, kw_only=True):
    """``told`` is answered to load balancers; ``found`` is what the evidence asks for: the same, unless the mode, a
    person or an off switch says otherwise.
    """

    engine: str
    told: Weight
    found: Weight


class BalancerState(Value, frozen=True, kw_only=True):
    """All engines' weights. ``fleet``: engines that the coordinator knows of, ``ejected``: how many of them it has let
    go below 50 %, by its last answer; None while no engine here needs a grant, or it has not answered.
    ``refused_total``: ejections that it did not grant, failures included; ``failed_total``: calls of it that failed.
    ``problem``: what is wrong now with the coordinator or the marks file, empty otherwise.
    """

    mode: BalancerMode = "observe"
    coordinator: str = "none"
    engines: tuple[EngineWeight, ...] = ()
    fleet: int | None = None
    ejected: int | None = None
    refused_total: int = 0
    failed_total: int = 0
    problem: str = ""

    def told(self, engine: str) -> Weight | None:
        """Return what is answered for ``engine``, None where it is not known."""
        return next((each.told for each in self.engines if each.engine == engine), None)
