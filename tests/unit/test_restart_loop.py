"""An engine that comes up again and again; one restart is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.policy.types import DEFAULT, HostPolicy, Policy
from agent.signals.types import NodeSignals
from agent.sources.host.state import RestartState
from agent.state import AgentState
from agent.verdicts.base import Finding, View
from agent.verdicts.restart_loop import RestartLoop
from tests.unit.allocators import make_failure
from tests.unit.node_builders import make_killed
from tests.unit.timeline import UNIX, engine, host, state, times, watch


def judge(restarts: int, policy: Policy = DEFAULT, **parts: Any) -> Finding | None:
    killed = parts.pop("killed", ())
    row = RestartState(engine="m", restarts=restarts)
    view = View(state(0.0, host=host(restarts=(row,), killed=killed), **parts), NodeSignals(), policy)
    found = [*RestartLoop().judge(view)]
    return found[0][1] if found else None


@pytest.mark.parametrize(("restarts", "tier"), [(0, ""), (1, ""), (2, "warn"), (3, "page"), (9, "page")])
def test_tiers(restarts: int, tier: str) -> None:
    finding = judge(restarts)
    assert (finding.tier if finding else "") == tier


def test_the_policy_counts() -> None:
    assert judge(3, Policy(host=HostPolicy(restarts_warn=4, restarts_page=5))) is None


def test_it_says_why_where_that_is_known() -> None:
    finding = judge(3)
    assert finding is not None
    assert finding.sentence == "Engine m has restarted 3 times within 45 min."
    assert finding.evidence == {"restarts": 3, "window_seconds": 2700.0}
    killed = judge(3, killed=(make_killed(at=UNIX - 60),))
    assert killed is not None
    assert killed.sentence.endswith("within 45 min. The kernel killed its worker for want of memory.")
    assert "memory limit" in killed.remedy
    assert judge(3, killed=(make_killed(at=UNIX - 9000),)) == finding, "that was long before"
    failure = make_failure(engine="m")
    failed = judge(3, failures=(failure,))
    assert failed is not None
    assert failure.judgement is not None
    assert failure.judgement.sentence in failed.sentence


def test_it_outlives_the_engines_that_it_is_about() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(1800, 5):
            number = int(t // 300)
            row = RestartState(engine="m", restarts=number)
            up = t % 300 > 200
            yield state(t, engines=(engine(instance=f"i{number}"),) if up else (), host=host(restarts=(row,)))

    seen = watch(states())
    assert [(t, each.tier) for t, each in seen.confirmed if each.kind == "restart_loop"] == [
        (600.0, "warn"),
        (900.0, "page"),
    ]
