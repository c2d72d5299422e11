"""A fleet of two hundred nodes under one Prometheus: what is computed of all of them is right, and so is its guard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.fleet_scale import well
from exporters import catalogue as c
from exporters.exposition import Exposition
from tests.bed import net
from tests.bed.fleet import Fleet
from tests.unit.alerts.promtool import Series, always, of, run, verdict
from tests.unit.busy_node import busy_node

NODES = 200
DOWN = 10
MINUTES = 4


def node(number: int, tier: str) -> Iterator[Series]:
    """Two engines of 1,000 blocks each; the first is used by a fifth, the second as its number says. ``tier``: of the
    verdict that stands on both; empty for none.
    """
    where = {"instance": f"n{number}:9477"}
    alive = number >= DOWN
    yield Series("up", where, always(int(alive)))
    if not alive:
        return
    found = [
        sample
        for engine, held in (("a", 200), ("b", 5 * number))
        for sample in (
            of(c.KV_HELD, held, engine=engine),
            of(c.KV_CAPACITY, 1000, engine=engine),
            of(c.KV_ORPHANED, 0, engine=engine),
        )
    ]
    found.append(of(c.TENANT_HELD, 10, engine="a", tenant=f"t{number % 50}"))
    if tier:
        found += [verdict("kv_orphan", value=always(1), engine=engine, tier=tier) for engine in "ab"]
    for each in found:
        yield Series(each.name, where | dict(each.labels), each.value)


def _tier(number: int, standing: int) -> str:
    """Some page and some warn; on many more the same is a note, for which nothing is done."""
    if not 0 <= number < standing:
        return "note" if standing <= number < standing + 100 else ""
    return "page" if number % 2 else "warn"


@pytest.mark.parametrize(("paging", "guarded"), [(38, False), (39, True)])
def test_what_is_computed_of_a_fleet(paging: int, guarded: bool, tmp_path: Path) -> None:
    up = NODES - DOWN
    of_b = [5 * number for number in range(DOWN, NODES)]
    held = 200 * up + sum(of_b)

    def is_(expr: str, value: float | None, labels: str = "{}") -> dict[str, Any]:
        samples = [] if value is None else [{"labels": labels, "value": round(value, 4)}]
        return {"expr": f"round({expr}, 0.0001)", "eval_time": f"{MINUTES}m", "exp_samples": samples}

    guard = 'ALERTS{alertname="KvtideFleetGuard",alertstate="firing"}'
    test = {
        "interval": "30s",
        "input_series": [
            each.as_yaml(30, 60 * MINUTES)
            for number in range(NODES)
            for each in node(number, _tier(number - DOWN, paging))
        ],
        "promql_expr_test": [
            is_("sum(fleet:kvtide_nodes:count)", up),
            is_("sum(fleet:kvtide_kv_used:ratio)", held / (2000 * up)),
            # Two engines of a node with the same verdict are one node.
            is_("sum(fleet:kvtide_verdict_nodes:ratio)", paging / up),
            is_("sum(fleet:kvtide_scale_out:ratio)", held / 1000 / (0.8 * 2 * up)),
            is_("sum(fleet:kvtide_scale_out:engines)", held / 1000 / 0.8),
            is_("count(node:kvtide_kv_used:ratio)", up),
            is_("max(node:kvtide_kv_used:ratio)", (200 + of_b[-1]) / 2000),
            is_("count(tenant:kvtide_kv_held:blocks)", 50),
            is_("sum(tenant:kvtide_kv_held:blocks)", 10 * up),
            # One alert for the fleet, above a fifth of it.
            is_(f"count({guard})", 1 if guarded else None),
        ],
    }
    run(tmp_path, [test], 30)


def shard(name: str, *, nodes: int, engines: int, held: float, paging: float, tenant: float) -> Iterator[Series]:
    """What the Prometheus above a shard gets of it by federation."""
    told = {
        "fleet:kvtide_nodes:count": nodes,
        "fleet:kvtide_kv_held:blocks": held,
        "fleet:kvtide_kv_capacity:blocks": 1000 * engines,
        "fleet:kvtide_kv_used:ratio": held / (1000 * engines),
        "fleet:kvtide_scale_demand:pools": held / 1000,
        "fleet:kvtide_engines_accounted:count": engines,
        "fleet:kvtide_scale_out:engines": held / 1000 / 0.8,
    }
    where = {"shard": name, "instance": "", "job": ""}
    for record, value in told.items():
        yield Series(record, where, always(value))
    yield Series("tenant:kvtide_kv_held:blocks", where | {"tenant": "t"}, always(tenant))
    if paging:
        yield Series("fleet:kvtide_verdict_nodes:ratio", where | {"kind": "oom"}, always(paging / nodes))


@pytest.mark.parametrize(("paging", "guarded"), [(250, False), (260, True)])
def test_what_is_computed_of_many_shards(paging: int, guarded: bool, tmp_path: Path) -> None:
    """Shards of other sizes, of which one has all the faults, are judged as one fleet."""
    series = [
        *shard("a", nodes=900, engines=900, held=600_000, paging=paging, tenant=70),
        *shard("b", nodes=350, engines=700, held=40_000, paging=0, tenant=30),
    ]

    def is_(expr: str, value: float | None) -> dict[str, Any]:
        samples = [] if value is None else [{"labels": "{}", "value": round(value, 4)}]
        return {"expr": f"round({expr}, 0.0001)", "eval_time": f"{MINUTES}m", "exp_samples": samples}

    guard = 'ALERTS{alertname="KvtideGlobalGuard",alertstate="firing"}'
    test = {
        "interval": "30s",
        "input_series": [
            *(each.as_yaml(30, 60 * MINUTES) for each in series),
            Series("up", {"job": "kvtide-shards", "instance": "a"}, always(1)).as_yaml(30, 60 * MINUTES),
            Series("up", {"job": "kvtide-shards", "instance": "b"}, always(0)).as_yaml(30, 60 * MINUTES),
        ],
        "promql_expr_test": [
            is_("sum(global:kvtide_nodes:count)", 1250),
            is_("sum(global:kvtide_kv_used:ratio)", 640_000 / 1_600_000),
            is_("sum(global:kvtide_verdict_nodes:ratio)", paging / 1250),
            is_("sum(global:kvtide_scale_out:ratio)", 640 / (0.8 * 1600)),
            is_("sum(global:kvtide_scale_out:engines)", 800),
            is_("sum(global:kvtide_tenant_kv_held:blocks)", 100),
            is_(f"count({guard})", 1 if guarded else None),
            is_('count(ALERTS{alertname="KvtideShardSilent",alertstate="firing",instance="b"})', 1),
            is_('count(ALERTS{alertname="KvtideShardSilent",instance="a"})', None),
        ],
    }
    run(tmp_path, [test], 30, names=("kvtide-global.yml",))


def test_pages_of_a_fleet_are_those_of_a_node_and_their_numbers_move() -> None:
    """What the numbers in docs/scaling.md were measured with."""
    text = Exposition().render(busy_node(), compressed=False).decode()
    sound = well(text)

    def engines(page: str) -> set[str]:
        return {*re.findall(r'engine="(\w+)"', page)}

    def series(page: str) -> list[str]:
        return [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]

    assert {f"m{number}" for number in range(8)} <= engines(sound)
    assert "kvtide_verdict{" in text
    assert "kvtide_verdict{" not in sound
    assert len({*series(sound)}) == len(series(sound)) > 0.7 * len(series(text))
    with Fleet(2, sound, {1: text}) as fleet:
        (first,), (second,) = (each["targets"] for each in fleet.targets())
        assert first == second
        pages = [net.get(f"http://{first}/{number}/metrics") for number in (0, 0, 1)]
    assert series(pages[0]) == series(pages[1]) == series(sound)
    assert series(pages[2]) == series(text)
    assert pages[0] != pages[1]
