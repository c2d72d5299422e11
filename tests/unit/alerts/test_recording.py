"""What is computed once, by the real promtool: the scale-out signal above all, which a leak must not move."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exporters import catalogue as c
from tests.unit.alerts.promtool import Series, after, always, of, ramp, run

TEN_MINUTES = 600
AT = "20m"


def engine(
    name: str, held: float, orphaned: float | None = 0.0, growth: float = 0.0, lost: float = 0.0
) -> list[Series]:
    """A pool of 1,000 blocks; ``growth`` and ``lost`` (what nobody explains) in shares of it a second."""
    known = [] if orphaned is None else [of(c.KV_ORPHANED, orphaned, engine=name)]
    return [
        *known,
        of(c.KV_HELD, held, engine=name),
        of(c.KV_CAPACITY, 1000, engine=name),
        of(c.KV_GROWTH, growth, engine=name, bound="estimate"),
        of(c.KV_UNEXPLAINED_GROWTH, lost, engine=name, bound="estimate"),
    ]


def asked(series: Sequence[Series], **expected: float) -> dict[str, Any]:
    """``expected``: values by the name of a series, its colons as double underscores."""
    return {
        "interval": "15s",
        "input_series": [each.as_yaml(15, 1200) for each in series],
        "promql_expr_test": [
            {"expr": f"round(sum({name.replace('__', ':')}), 0.001)", "eval_time": AT, "exp_samples": samples}
            for name, value in expected.items()
            for samples in [[{"labels": "{}", "value": value}]]
        ],
    }


def test_the_scale_out_signal(tmp_path: Path) -> None:
    run(
        tmp_path,
        [
            asked(engine("m", 400), fleet__kvtide_scale_out__ratio=0.5),
            asked([*engine("m", 400), *engine("n", 400)], fleet__kvtide_scale_out__ratio=0.5),
            asked(engine("m", 400, growth=0.6 / TEN_MINUTES), fleet__kvtide_scale_out__ratio=1.25),
            # One pool more at most, however steep.
            asked(engine("m", 400, growth=1.0), fleet__kvtide_scale_out__ratio=1.75),
            asked(engine("m", 900), fleet__kvtide_scale_out__ratio=1.125),
            # A signal that has no growth yet counts what is held, once.
            asked(engine("m", 400)[:3], fleet__kvtide_scale_out__ratio=0.5),
        ],
        15,
    )


def test_a_leak_buys_no_nodes(tmp_path: Path) -> None:
    run(
        tmp_path,
        [
            asked(engine("m", 990, orphaned=800), fleet__kvtide_scale_out__ratio=0.238),
            asked(engine("m", 400, growth=0.6 / 600, lost=0.6 / 600), fleet__kvtide_scale_out__ratio=0.5),
            # What can't be accounted for has no part in it.
            asked([*engine("m", 400), *engine("page", 990, orphaned=None)], fleet__kvtide_scale_out__ratio=0.5),
        ],
        15,
    )


def test_tenants_nodes_and_the_fleet(tmp_path: Path) -> None:
    nodes = [Series("up", {"instance": f"n{number}:9477"}, always(1)) for number in range(4)]
    page = {"engine": "m", "kind": "oom", "phase": "confirmed", "tier": "page"}
    run(
        tmp_path,
        [
            asked(
                [
                    of(c.TENANT_HELD, 100, engine="m", tenant="a"),
                    of(c.TENANT_HELD, 50, engine="n", tenant="a"),
                    of(c.TENANT_REQUESTS, ramp(0, 2), engine="m", tenant="a"),
                    of(c.KV_HELD_BYTES, 5e9, engine="m"),
                    of(c.KV_HELD_BYTES, 6e9, engine="n"),
                ],
                tenant__kvtide_kv_held__blocks=150,
                tenant__kvtide_requests__rate5m=2,
                node__kvtide_kv_held__bytes=11e9,
                engine__kvtide_kv_held_bytes__p90_30m=11e9,
            ),
            asked(
                [*nodes, Series(c.VERDICT.name, page | {"instance": "n0:9477"}, after(1))],
                fleet__kvtide_nodes__count=4,
                fleet__kvtide_verdict_nodes__ratio=0.25,
            ),
        ],
        15,
    )


def test_the_names_of_write_ups(tmp_path: Path) -> None:
    test = asked(
        [*engine("m", 500, orphaned=100), of(c.KV_TAIL_WASTE, 0.1, engine="m"), of(c.REFUSED, ramp(0, 3), engine="m")],
        kv_cache_leaked_blocks=100,
        effective_utilization=0.36,
        alloc_failure_rate=3,
        block_frag_ratio=0.1,
    )
    run(tmp_path, [test], 15, names=("kvtide-names.yml",))
