"""Cases of what kvtide does by itself."""

from __future__ import annotations

from exporters import catalogue as c
from tests.unit.alerts.cases.base import AGENT, UP, E, pair
from tests.unit.alerts.promtool import Case, Series, after, always, between, of, verdict

FAILED = {"lever": "trim", "result": "failed"}
NODES = [Series("up", {"instance": f"n{n}:9477"}, always(1)) for n in range(10)]
ACTIONS: tuple[Case, ...] = (
    *pair("KvtideBreakerOpen", [of(c.BREAKER_OPEN, after(1, before=0))], {"closed": [of(c.BREAKER_OPEN, 0)]}),
    *pair(
        "KvtideActionsFail",
        [*AGENT, of(c.ACTIONS, after(1, 1500), **FAILED)],
        {
            "done": [*AGENT, of(c.ACTIONS, after(9), lever="trim", result="done")],
            "of before": [*AGENT, of(c.ACTIONS, 9, **FAILED)],
            "the agent began anew": [*AGENT, of(c.ACTIONS, lambda at: 9 if at < 1200 else None, **FAILED)],
        },
    ),
    Case(
        "KvtideActionsFail",
        "once more, after the agent began anew",
        [
            UP,
            of(c.AGENT_START, after(1200, 1200, before=0)),
            of(c.ACTIONS, lambda at: None if 1200 <= at < 1500 else 1, **FAILED),
        ],
    ),
    Case("KvtideActionsFail", "lost", [*AGENT, of(c.ACTIONS, after(5, 1500, 4), lever="trim", result="lost")]),
    *pair(
        "KvtideActionsBlocked",
        [of(c.ACTIONS_BLOCKED, after(1, before=0))],
        {"for ten minutes": [of(c.ACTIONS_BLOCKED, between(1, 600, 1200, 0))], "observes": [of(c.BREAKER_OPEN, 0)]},
    ),
    *pair(
        "KvtideFleetGuard",
        [
            *NODES,
            *(
                Series(c.VERDICT.name, labels | {"instance": f"n{n}:9477", "engine": "m"}, after(1))
                for n in range(3)
                for labels in [{"kind": "kv_orphan", "phase": "confirmed", "tier": "page"}]
            ),
        ],
        {
            "one node": [*NODES, Series(c.VERDICT.name, verdict("kv_orphan").labels, after(1))],
            "a small fleet": [
                *NODES[:3],
                Series(c.VERDICT.name, dict(verdict("kv_orphan").labels) | {"instance": "n0:9477"}, after(1)),
            ],
        },
        minutes=14,
    ),
    *pair(
        "KvtidePolicyRefused",
        [of(c.POLICY_LOADED, after(0, before=1))],
        {"loaded": [of(c.POLICY_LOADED, 1)], "put right": [of(c.POLICY_LOADED, between(0, 600, 800, 1))]},
    ),
    *pair(
        "KvtideEngineIsolated",
        [of(c.BALANCER_ISOLATED, after(1, before=0), **E), of(c.BALANCER_ENFORCING, 1)],
        {
            "worked out only": [of(c.BALANCER_ISOLATED, 1, **E), of(c.BALANCER_ENFORCING, 0)],
            "serves": [of(c.BALANCER_ISOLATED, 0, **E), of(c.BALANCER_ENFORCING, 1)],
        },
        **E,
    ),
)
