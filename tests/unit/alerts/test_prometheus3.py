"""Nothing in the rules depends on what Prometheus 3 has changed, after its migration guide.

Where Prometheus 3 could be had, test_rules runs the alerts' cases by its promtool too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import promql_parser as promql
import pytest

from alerts import alertmanager, prometheus
from engine_hooks.detail import Histogram
from exporters import catalogue as c
from exporters.collectors.base import Sample
from exporters.text import Text
from tests.unit.alerts.promql import RULES, Rule, walk

# The same value whether the sample at the window's begin is in it (2) or not (3), but for one interval's worth.
RANGED = {"rate", "increase", "last_over_time", "max_over_time", "quantile_over_time"}
LEGACY = r"[a-zA-Z_:][a-zA-Z0-9_:]*"


def selectors(rule: Rule) -> Iterator[Any]:
    return (node for node in walk(rule.tree) if isinstance(node, promql.VectorSelector))


def bounds_that_change(rule: Rule) -> list[str]:
    """Bounds that are written otherwise once they are floats: le="1" is le="1.0" then, and matches nothing."""
    return [
        each.value
        for node in selectors(rule)
        for each in node.matchers.matchers
        if each.name in ("le", "quantile")
        if each.op not in (promql.MatchOp.Equal, promql.MatchOp.NotEqual) or repr(float(each.value)) != each.value
    ]


def dots(rule: Rule) -> list[str]:
    """Regular expressions in which a dot stands for a letter: since 3 for a new line as well."""
    return [
        each.value
        for node in selectors(rule)
        for each in node.matchers.matchers
        if each.op in (promql.MatchOp.Re, promql.MatchOp.NotRe)
        if "." in re.sub(r"\\.|\[[^]]*\]", "", each.value)
    ]


def counted(rule: Rule) -> list[str]:
    """Functions over windows whose value hangs on how many samples are in it, or that were renamed or left out."""
    return [
        node.func.name
        for node in walk(rule.tree)
        if isinstance(node, promql.Call)
        if node.func.experimental
        or (
            (any(isinstance(each, promql.MatrixSelector | promql.SubqueryExpr) for each in node.args))
            and node.func.name not in RANGED
        )
    ]


@pytest.mark.parametrize("check", [bounds_that_change, dots, counted])
def test_no_rule_depends_on_what_has_changed(check: Any) -> None:
    assert {rule.name: found for rule in RULES if (found := check(rule))} == {}


@pytest.mark.parametrize(
    ("check", "expr"),
    [
        (bounds_that_change, 'x_bucket{le="1"}'),
        (bounds_that_change, 'x_bucket{le=~"0.5|1"}'),
        (dots, 'x{engine=~"m.*"}'),
        (counted, "count_over_time(x[5m]) == 5"),
        (counted, "double_exponential_smoothing(x[5m], 0.5, 0.5)"),
    ],
)
def test_each_check_finds_its_fault(check: Any, expr: str) -> None:
    assert check(Rule("g", {"record": "r", "expr": expr})) != []
    assert check(Rule("g", {"record": "r", "expr": 'rate(x_bucket{le="1.0",a=~"b|c"}[5m])'})) == []


def test_what_was_renamed_is_not_known_any_more() -> None:
    with pytest.raises(ValueError, match="holt_winters"):
        promql.parse("holt_winters(x[5m], 0.5, 0.5)")


def test_the_page_writes_bounds_as_the_rules_ask_for_them() -> None:
    bounds = (0.5, 1.0, 30.0)
    text = Text().of([Sample(c.ADMISSION_WAIT, ("m",), Histogram(bounds=bounds, counts=(1, 1, 1, 1), sum=1.0))])
    written = [*re.findall(r'le="([^"]+)"', text)]
    assert written[-1] == "+Inf"
    assert written[:-1] == [repr(float(each)) for each in written[:-1]]


def test_names_are_those_that_every_prometheus_knows() -> None:
    for metric in c.CATALOGUE:
        assert all(re.fullmatch(LEGACY, name) for name in (metric.name, *metric.labels)), metric.name
    for rule in RULES:
        assert re.fullmatch(LEGACY, rule.name)


def test_the_configuration_names_nothing_that_is_gone() -> None:
    text = prometheus.render("15s")
    assert not re.search(r"api_version|external_labels|enable-feature|\$", text)
    # Alertmanager reads a matcher the same way by its old rules and by those for UTF-8: a name, and a text in quotes.
    config = alertmanager.config()
    matchers = [each for route in config["route"]["routes"] for each in route["matchers"]]
    for rule in config["inhibit_rules"]:
        matchers += [*rule["source_matchers"], *rule["target_matchers"]]
    assert all(re.fullmatch(r'[a-z_]+(=|!=|=~|!~)"[a-z_|]+"', each) for each in matchers), matchers
