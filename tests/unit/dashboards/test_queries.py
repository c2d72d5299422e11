"""Every expression: sound to Prometheus, of metrics that are exported, and no absence made a zero."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from dashboards.query import RECORDED, Chosen, of_detail
from exporters import catalogue as c
from exporters.catalogue.base import DETAIL_INTERVAL
from tests.bed.prometheus import program
from tests.unit.dashboards.support import BOARDS, CATALOGUE, NAME, Asked, asked, filled, panels, variables

EVERY = list(asked())
_SUFFIXES = ("_bucket", "_count", "_sum")
_RATE = re.compile(r"\b(?:rate|irate|increase|delta)\([^()]*?\[([^\]]+)\]")


def metric_of(name: str) -> str:
    """Return the family of a series: a histogram's have suffixes."""
    for suffix in _SUFFIXES:
        family = name.removesuffix(suffix)
        if family != name and family in CATALOGUE and CATALOGUE[family].type == "histogram":
            return family
    return name


@pytest.mark.parametrize("uid", BOARDS)
def test_a_board_asks_only_for_what_there_is(uid: str) -> None:
    unknown = {
        name
        for each in EVERY
        if each.board == uid
        for name in NAME.findall(each.expr)
        if metric_of(name) not in CATALOGUE and name not in RECORDED
    }
    assert not unknown


def test_a_histogram_is_asked_by_its_parts_alone() -> None:
    whole = {
        name
        for each in EVERY
        for name in NAME.findall(each.expr)
        if name in CATALOGUE and CATALOGUE[name].type == "histogram"
    }
    assert not whole


def test_labels_that_are_matched_or_summed_by_are_labels_of_the_metric() -> None:
    wrong = []
    for each in EVERY:
        for name, inner in re.findall(r"(kvtide_[a-z0-9_]+)\{([^}]*)\}", each.expr):
            if metric_of(name) not in CATALOGUE:
                continue
            has = {*CATALOGUE[metric_of(name)].labels, "job", "instance", "le"}
            wrong += [(each.by, name, label) for label in re.findall(r"(\w+)(?:=~|!~|!=|=)", inner) if label not in has]
    assert not wrong


def test_absence_is_never_made_a_zero() -> None:
    assert not [each for each in EVERY if re.search(r"\bvector\s*\(", each.expr)]


def test_a_zero_that_is_made_is_made_of_something_that_is_there() -> None:
    """``or 0 * x`` is 0 where x is there and absent where it is not: x must be held to the same choice."""
    for each in EVERY:
        for made in re.findall(r"\bor 0 \* (.*)", each.expr):
            assert 'instance=~"$instance"' in made, each


def test_rates_are_over_windows_that_grafana_fits() -> None:
    fixed = [(each.by, window) for each in EVERY for window in _RATE.findall(each.expr) if not window.startswith("$__")]
    assert not fixed
    assert any("$__rate_interval" in each.expr for each in EVERY)


def test_a_rate_of_what_is_scraped_rarely_has_a_window_of_its_own() -> None:
    """Four scrapes are in it then; one alone, as in that of the first page, has no rate, and the panel no data."""
    targets = [target for board in BOARDS.values() for panel in panels(board) for target in panel["targets"]]
    rare = [each for each in targets if "$__rate_interval" in each["expr"] and of_detail(each["expr"])]
    assert {each.get("interval") for each in rare} == {DETAIL_INTERVAL}
    assert {each.get("interval") for each in targets if each not in rare} == {None}


def test_a_counter_is_never_shown_as_it_stands_but_where_it_says_so_far() -> None:
    for each in EVERY:
        names = [name for name in NAME.findall(each.expr) if name in CATALOGUE and CATALOGUE[name].type == "counter"]
        if names and each.by != "Actions":
            assert "so far" in each.by or re.search(r"\b(rate|increase)\(", each.expr), each


def test_prometheus_can_read_every_expression(tmp_path: Path) -> None:
    rules = [
        {"record": f"board:panel:{number}", "expr": filled(each.expr), "labels": {"by": f"{each.board} {each.by}"}}
        for number, each in enumerate(EVERY)
    ]
    assert len(rules) > 150
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "boards", "rules": rules}]}, width=10_000))
    ran = subprocess.run(
        [program("promtool"), "check", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("uid", BOARDS)
def test_variables_that_are_asked_by_are_the_board_s(uid: str) -> None:
    has = {*variables(BOARDS[uid]), "__rate_interval", "__interval", "__range"}
    used = {name for each in EVERY if each.board == uid for name in re.findall(r"\$(\w+)", each.expr)}
    assert used <= has


def test_what_is_asked_is_held_to_the_nodes_that_were_chosen() -> None:
    free = [each for each in EVERY if "$instance" not in each.expr and "fleet:" not in each.expr]
    assert not free


def test_a_recording_rule_that_is_not_there_is_an_error() -> None:
    assert Chosen().recorded("node:kvtide_health:min") == 'node:kvtide_health:min{instance=~"$instance"}'
    with pytest.raises(ValueError, match="no recording rule"):
        Chosen().recorded("node:kvtide_health:max")


def test_a_selector_is_held_to_what_its_metric_has() -> None:
    chosen = Chosen("engine", "gpu")
    assert chosen(c.GPU_USE) == 'kvtide_gpu_memory_use_ratio{job=~"$job",instance=~"$instance",gpu=~"$gpu"}'
    assert chosen(c.KV_GROWTH, bound="low").endswith('engine=~"$engine",bound="low"}')
    assert chosen(c.GPU_THROTTLED, reason="!gpu_idle").endswith('reason!="gpu_idle"}')
    assert chosen(c.HEALTH_SCORE, scope="~kv|engine").endswith('scope=~"kv|engine"}')


def test_an_asked_expression_names_its_board() -> None:
    assert {each.board for each in EVERY} == {*BOARDS}
    assert all(isinstance(each, Asked) and each.by for each in EVERY)
