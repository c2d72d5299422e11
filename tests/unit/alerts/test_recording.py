"""What is computed once, by the real promtool: the scale-out signal above all, which a leak must not move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporters import catalogue as c
from tests.unit.alerts.promtool import Series, after, always, of, ramp, run

TEN_MINUTES = 600
AT = "20m"
RECORDING = ("kvtide-recording.yml",)  # what is asked for here needs no alerts


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
        names=RECORDING,
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
        names=RECORDING,
    )


def test_what_may_be_a_leak_buys_no_nodes_either(tmp_path: Path) -> None:
    run(
        tmp_path,
        [
            asked([*engine("m", 900), of(c.KV_PINNED, 500, engine="m")], fleet__kvtide_scale_out__ratio=0.5),
            asked(
                [
                    *engine("m", 900),
                    of(c.DELAYED_EXPIRED, 300, engine="m", peer="p", direction="send"),
                    of(c.DELAYED_EXPIRED, 200, engine="m", peer="q", direction="send"),
                ],
                fleet__kvtide_scale_out__ratio=0.5,
            ),
            # Whatever a scrape adds to all that it finds on a node, as an operator does.
            asked(
                [
                    replace(each, labels={"namespace": "kvtide"} | dict(each.labels))
                    for each in (
                        *engine("m", 900),
                        of(c.DELAYED_EXPIRED, 500, engine="m", peer="p", direction="send"),
                    )
                ],
                fleet__kvtide_scale_out__ratio=0.5,
            ),
            # More references than blocks: nothing is at work, not less than nothing.
            asked([*engine("m", 900), of(c.KV_PINNED, 2000, engine="m")], fleet__kvtide_scale_out__ratio=0),
            # What was given back twice is still used.
            asked([*engine("m", 400), of(c.KV_OVER_FREED, 100, engine="m")], fleet__kvtide_scale_out__ratio=0.5),
        ],
        15,
        names=RECORDING,
    )


def rising(leaks: bool) -> list[Series]:
    """From 20 % of the pool on, a twentieth of it a minute: asked for, or leaked and found to be so a minute later."""
    slope = 0.05 / 60
    held = ramp(200, 1000 * slope, 1000)
    return [
        of(c.KV_HELD, held, engine="m"),
        of(c.KV_CAPACITY, 1000, engine="m"),
        of(c.KV_ORPHANED, lambda at: max(0.0, held(at - 60) - 200) if leaks else 0, engine="m"),
        of(c.KV_GROWTH, slope, engine="m", bound="estimate"),
        of(c.KV_UNEXPLAINED_GROWTH, slope if leaks else 0, engine="m", bound="estimate"),
    ]


def test_a_ramp_calls_for_engines_long_before_the_pool_is_full_and_a_leak_never_does(tmp_path: Path) -> None:
    """Groups are judged in any order: what one reads of another may be a scrape old, which bounds leave room for."""

    def each_minute(series: Sequence[Series], *so: str) -> dict[str, Any]:
        return {
            "interval": "15s",
            "input_series": [each.as_yaml(15, 1200) for each in series],
            "promql_expr_test": [
                {"expr": f"sum({what})", "eval_time": f"{minute}m", "exp_samples": [{"labels": "{}", "value": 1}]}
                for minute in (3, 4, 5, 6)
                for what in so
            ],
        }

    asks, used = "fleet:kvtide_scale_out:ratio", "fleet:kvtide_kv_used:ratio"
    run(
        tmp_path,
        [
            # It asks from a third of the pool on; at nine tenths pressure comes, and that is at 14 min.
            each_minute(rising(leaks=False), f"{asks} > bool 1.04", f"{used} <= bool 0.5"),
            # The same slope: only the minute's worth that is not known yet is in it.
            each_minute(rising(leaks=True), f"{asks} < bool 0.33", f"{used} >= bool 0.33"),
        ],
        15,
        names=RECORDING,
    )


def test_how_many_engines_there_should_be(tmp_path: Path) -> None:
    absent = {
        "interval": "15s",
        "input_series": [each.as_yaml(15, 1200) for each in engine("page", 990, orphaned=None)],
        "promql_expr_test": [
            {"expr": f"fleet:kvtide_scale_out:{what}", "eval_time": AT, "exp_samples": []}
            for what in ("ratio", "engines")
        ],
    }
    run(
        tmp_path,
        [
            asked(engine("m", 400), fleet__kvtide_scale_out__engines=0.5),
            asked([*engine("m", 800), *engine("n", 800)], fleet__kvtide_scale_out__engines=2),
            # One that can't be accounted for is kept; ones that can't be at all say nothing.
            asked(
                [*engine("m", 800), *engine("page", 990, orphaned=None)],
                fleet__kvtide_scale_out__engines=2,
                fleet__kvtide_scale_out__ratio=1,
            ),
            absent,
        ],
        15,
        names=RECORDING,
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
        names=RECORDING,
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
