"""Cases of the host's memory, and of what the kernel killed."""

from __future__ import annotations

from exporters import catalogue as c
from tests.unit.alerts.cases.base import AGENT, ESTIMATE, E, judged, pair
from tests.unit.alerts.promtool import Case, Series, after, between, of

ROW = {"engine": "m", "role": "core", "rank": "0", "what": "cgroup"}
HOST: tuple[Case, ...] = (
    *judged("KvtideHostMemoryGrows", "host_growth", process="core/0"),
    *pair(
        "KvtideHostMemoryLimit",
        (
            filling := [
                of(c.HOST_LIMIT_TIME, 9000, **ROW, **ESTIMATE),
                of(c.HOST_SLOW, 1e-6, **ROW, bound="low"),
                of(c.HOST_LIMIT_USE, 0.7, **ROW),
            ]
        ),
        {
            "hours do not agree": [filling[0], of(c.HOST_SLOW, -1e-6, **ROW, bound="low"), filling[2]],
            "no hours yet": [filling[0], filling[2]],
            "far below": [*filling[:2], of(c.HOST_LIMIT_USE, 0.3, **ROW)],
            "in a day": [of(c.HOST_LIMIT_TIME, 86400, **ROW, **ESTIMATE), *filling[1:]],
            "teeth of a heap": [
                of(c.HOST_LIMIT_TIME, lambda at: 9000 if at % 600 < 300 else None, **ROW, **ESTIMATE),
                *filling[1:],
            ],
        },
        **E,
    ),
    *judged("KvtideHostMemoryFullSoon", "host_growth", tier="page", process="core/0"),
    *pair(
        "KvtideKilledForMemory",
        [*AGENT, of(c.ENGINE_OOM_KILLS, after(1, 1680), **E)],
        {
            "the agent began before Prometheus": [
                Series("up", {}, after(1)),
                of(c.AGENT_START, after(0)),
                of(c.ENGINE_OOM_KILLS, after(3), **E),
            ],
            "the same, between two minutes": [
                Series("up", {}, after(1, 615)),
                of(c.AGENT_START, after(0, 615)),
                of(c.ENGINE_OOM_KILLS, after(3, 615), **E),
            ],
            "the source failed for a while": [
                *AGENT,
                of(c.ENGINE_OOM_KILLS, lambda at: None if 600 <= at < 1300 else 3, **E),
            ],
            "of last night": [*AGENT, of(c.ENGINE_OOM_KILLS, 3, **E)],
            "a gap": [
                Series("up", {}, between(0, 600, 720, 1)),
                of(c.AGENT_START, 0),
                of(c.ENGINE_OOM_KILLS, lambda at: None if 600 <= at < 720 else 3, **E),
            ],
        },
        **E,
    ),
    Case(
        "KvtideKilledForMemory",
        "one more",
        [*AGENT, of(c.ENGINE_OOM_KILLS, after(4, 1680, before=3), **E)],
        labels=E | {"gpu": "none"},
    ),
    *pair(
        "KvtideRestartLoop",
        [of(c.ENGINE_RESTARTS, after(3, before=0), **E)],
        {"two": [of(c.ENGINE_RESTARTS, 2, **E)]},
        **E,
    ),
)
