"""Cases of the agent and of its eyes."""

from __future__ import annotations

from exporters import catalogue as c
from tests.unit.alerts.cases.base import UP, E, judged, pair
from tests.unit.alerts.promtool import Case, Series, after, always, between, of, verdict


def enforced(alert: str, series: Series, **labels: str) -> tuple[Case, ...]:
    """Only where kvtide acts, by its levers or through load balancers."""
    return (
        *pair(
            alert,
            [series, of(c.ACTIONS_MODE, 1, mode="enforce")],
            {
                "observes": [series, of(c.ACTIONS_MODE, 0, mode="enforce"), of(c.ACTIONS_MODE, 1, mode="observe")],
                "no fault": [of(c.ACTIONS_MODE, 1, mode="enforce")],
            },
            **labels,
        ),
        Case(alert, "by load balancers", [series, of(c.BALANCER_ENFORCING, 1)], labels=labels),
    )


def health(alert: str, below: float) -> tuple[Case, ...]:
    """A tier of the score, with harm; a busy engine at 60 without harm fires none."""
    score = {"scope": "engine", "engine": "m", "form": "kvtide"}
    bad, harm = of(c.HEALTH_SCORE, after(below - 1, before=90), **score), of(c.HARM, 1, **E)
    return pair(
        alert,
        [bad, harm],
        {
            "busy, and serves": [of(c.HEALTH_SCORE, 60, **score), of(c.HARM, 0, **E)],
            "at it": [of(c.HEALTH_SCORE, below, **score), harm],
            "the textbook's form": [of(c.HEALTH_SCORE, 0, **score | {"form": "textbook"}), harm],
            "of a moment": [of(c.HEALTH_SCORE, between(0, 600, 650, 90), **score), harm],
        },
        **E,
    )


AGENT: tuple[Case, ...] = (
    Case("KvtideWatchdog", "always", [UP], labels={"engine": "none", "gpu": "none"}, minutes=2),
    *pair(
        "KvtideAgentDown",
        [Series("up", {}, after(0, before=1))],
        {
            "one scrape": [Series("up", {}, between(0, 600, 660, 1))],
            "another job": [Series("up", {"job": "node"}, always(0))],
        },
    ),
    *pair("KvtideAgentsAbsent", [], {"there": [UP], "a gap": [Series("up", {}, between(0, 400, 520, 1))]}, minutes=10),
    *judged("KvtideEngineMissing", "engine_missing"),
    Case("KvtideEngineMissing", "a restart", [verdict("engine_missing", value=between(1, 600, 645))], fires=False),
    *enforced("KvtideEngineMissingEnforcing", verdict("engine_missing", "warn"), **E),
    *judged("KvtideSensorStale", "sensor_stale", engine="", source="device")[1:],
    Case("KvtideSensorStale", "fires", [verdict("sensor_stale", "warn", engine="", source="device")]),
    Case("KvtideSensorStale", "a node without GPUs", [of(c.SOURCE_UP, 0, source="device")], fires=False),
    *enforced("KvtideSensorStaleEnforcing", verdict("sensor_stale", "warn", engine="", source="device")),
    *judged("KvtideMetricImpossible", "bad_metric"),
    *judged("KvtideConfigMismatch", "config_mismatch"),
    *pair("KvtideHooksOff", [of(c.HOOKS_OFF, after(1, before=0), **E)], {"on": [of(c.HOOKS_OFF, 0, **E)]}, **E),
    *health("KvtideHealthLow", 60),
    *health("KvtideHealthSevere", 40),
    *health("KvtideHealthEmergency", 20),
)
