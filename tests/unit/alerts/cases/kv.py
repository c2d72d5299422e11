"""Cases of the KV pool."""

from __future__ import annotations

from exporters import catalogue as c
from tests.unit.alerts.cases.base import ESTIMATE, E, judged, pair, tooth
from tests.unit.alerts.promtool import Case, after, between, of, ramp, verdict

KV: tuple[Case, ...] = (
    *pair(
        "KvtideBlocksOrphaned",
        [of(c.KV_ORPHANED, after(6, before=0), **E), of(c.KV_CAPACITY, 1000, **E)],
        {
            "a few": [of(c.KV_ORPHANED, after(4, before=0), **E), of(c.KV_CAPACITY, 1000, **E)],
            "gone in time": [of(c.KV_ORPHANED, between(90, 600, 1140, 0), **E), of(c.KV_CAPACITY, 1000, **E)],
            "not known": [of(c.KV_CAPACITY, 1000, **E), of(c.KV_HELD, 1000, **E)],
            "a gap begins it anew": [
                of(c.KV_ORPHANED, lambda at: None if at % 480 >= 420 else 6, **E),
                of(c.KV_CAPACITY, 1000, **E),
            ],
        },
        **E,
    ),
    *pair(
        "KvtideBlocksOrphanedMany",
        [of(c.KV_ORPHANED, after(101, before=0), **E), of(c.KV_CAPACITY, 1000, **E)],
        {
            "a tenth": [of(c.KV_ORPHANED, after(100, before=0), **E), of(c.KV_CAPACITY, 1000, **E)],
            "full and all of it known": [of(c.KV_ORPHANED, 0, **E), of(c.KV_HELD, 990, **E)],
        },
        **E,
    ),
    *judged("KvtideLeakInferred", "kv_orphan"),
    Case(
        "KvtideLeakInferred",
        "of another pool",
        [verdict("kv_orphan", "warn"), of(c.KV_ORPHANED, 0, **E)],
        labels=E | {"gpu": "none"},
    ),
    Case(
        "KvtideLeakInferred",
        "counted one by one",
        [verdict("kv_orphan", "warn"), of(c.KV_ORPHANED, 3, **E)],
        fires=False,
    ),
    *judged("KvtideBlocksOverFreed", "kv_over_freed", of(c.KV_OVER_FREED, after(2, before=0), **E), tier="page"),
    Case("KvtideBlocksOverFreed", "another pool", [verdict("kv_over_freed")], labels=E | {"gpu": "none"}),
    *pair(
        "KvtideEngineStalled",
        [verdict("kv_stall"), of(c.STILL, ramp(0, 1), **E)],
        {
            "for half a minute": [verdict("kv_stall"), of(c.STILL, between(45, 600, 645, 0), **E)],
            "paused, says the detector": [of(c.STILL, ramp(0, 1), **E)],
            "one long document": [of(c.STILL, tooth(0, 40), **E)],
        },
        **E,
    ),
    *pair(
        "KvtidePoolUnderPressure",
        [verdict("kv_pressure"), of(c.KV_USE, 0.99, **E), of(c.HARM, 1, **E)],
        {
            "full and no harm": [verdict("kv_pressure"), of(c.KV_USE, 0.99, **E), of(c.HARM, 0, **E)],
            "a burst": [
                verdict("kv_pressure", value=between(1, 600, 700)),
                of(c.KV_USE, 0.99, **E),
                of(c.HARM, 1, **E),
            ],
            "a warning": [verdict("kv_pressure", "warn"), of(c.KV_USE, 0.99, **E), of(c.HARM, 1, **E)],
            "full, and serves": [of(c.KV_USE, 0.99, **E), of(c.HARM, 1, **E)],
        },
        **E,
    ),
    *pair(
        "KvtidePoolExhaustedSoon",
        (
            exhausted := [
                of(c.KV_EXHAUSTION, 300, **E, **ESTIMATE),
                of(c.KV_USE, after(0.8, before=0.2), **E),
                of(c.KV_UNEXPLAINED_GROWTH, 0.0009, **E, **ESTIMATE),
                of(c.KV_GROWTH, 0.001, **E, **ESTIMATE),
                of(c.ENGINE_START, -7200, **E),
            ]
        ),
        {
            "half empty": [*exhausted[:1], of(c.KV_USE, 0.6, **E), *exhausted[2:]],
            "a long document explains it": [
                *exhausted[:2],
                of(c.KV_UNEXPLAINED_GROWTH, 0.0001, **E, **ESTIMATE),
                *exhausted[3:],
            ],
            "in an hour": [of(c.KV_EXHAUSTION, 3600, **E, **ESTIMATE), *exhausted[1:]],
            "warm-up": [
                of(c.KV_EXHAUSTION, between(300, 0, 100), **E, **ESTIMATE),
                of(c.KV_USE, 0.8, **E),
                *exhausted[2:4],
                of(c.ENGINE_START, 0, **E),
            ],
            "teeth": [of(c.KV_EXHAUSTION, lambda at: 300 if at % 120 < 60 else None, **E, **ESTIMATE), *exhausted[1:]],
        },
        **E,
    ),
    *pair(
        "KvtideTransferKept",
        [
            of(c.DELAYED_OLDEST, ramp(0, 1), **E, peer="d", direction="send"),
            of(c.DELAYED_LEASE, 480, **E, peer="d", direction="send"),
        ],
        {
            "inside twice the lease": [
                of(c.DELAYED_OLDEST, ramp(0, 1, 900), **E, peer="d", direction="send"),
                of(c.DELAYED_LEASE, 480, **E, peer="d", direction="send"),
            ],
            "no lease": [of(c.DELAYED_OLDEST, ramp(0, 1), **E, peer="d", direction="send")],
        },
        **E,
    ),
    *pair(
        "KvtideTransfersFillPool",
        (
            filled := [
                verdict("kv_delayed_free", "warn"),
                of(c.DELAYED_BLOCKS, 700, **E, peer="d", direction="send"),
                of(c.DELAYED_EXPIRED, 0, **E, peer="d", direction="send"),
                of(c.DELAYED_LEASE, 480, **E, peer="d", direction="send"),
                of(c.KV_CAPACITY, 1000, **E),
            ]
        ),
        {
            "a few past the lease": [
                *filled[:2],
                of(c.DELAYED_EXPIRED, 7, **E, peer="d", direction="send"),
                *filled[3:],
            ],
            "a step in flight has no lease": [*filled[:3], *filled[4:]],
            "levels off": filled[1:],
        },
        **E,
    ),
    Case(
        "KvtideTransfersFillPool",
        "a tenth past the lease",
        [verdict("kv_delayed_free"), filled[1], of(c.DELAYED_EXPIRED, 200, **E, peer="d", direction="send"), filled[4]],
        labels=E | {"gpu": "none"},
    ),
    *judged("KvtideBlocksPinned", "kv_pinned", of(c.PINNED_OLDEST, 900, **E, holder="x", pool="kv")),
    *pair(
        "KvtideResidueLarge",
        [of(c.KV_RESIDUE, after(30e6, before=0), engine="m"), of(c.KV_RESIDUE, 30e6, engine="n")],
        {"little": [of(c.KV_RESIDUE, 49e6, **E)], "gone": [of(c.KV_RESIDUE, between(90e6, 600, 1100, 0), **E)]},
    ),
)
