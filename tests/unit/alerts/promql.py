"""Rules as trees, and which labels what they compute can have: told from the catalogue, without a Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import promql_parser as promql
import yaml

from alerts.build import BUILT
from exporters.catalogue import CATALOGUE

FILES = ("kvtide-recording.yml", "kvtide-alerts.yml", "kvtide-textbook.yml", "kvtide-names.yml")
TARGET = frozenset({"instance", "job"})  # what a scrape adds
OWN = {"up": TARGET}
METRICS = {metric.name: metric for metric in CATALOGUE}
COMPARES = frozenset({"==", "!=", ">", "<", ">=", "<="})
SETS = frozenset({"and", "or", "unless"})


@dataclass(frozen=True)
class Rule:
    """A rule as it is built, and the group that it is in."""

    group: str
    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What is recorded, or how the alert is called."""
        return str(self.body.get("record") or self.body["alert"])

    @property
    def alerts(self) -> bool:
        """Whether it is an alert."""
        return "alert" in self.body

    @cached_property
    def tree(self) -> Any:
        """Its expression."""
        return promql.parse(self.body["expr"])


def read(*names: str) -> list[Rule]:
    """Return the rules of these built files, in their order."""
    return [
        Rule(group["name"], body)
        for name in names or FILES
        for group in yaml.safe_load((BUILT / name).read_text())["groups"]
        for body in group["rules"]
    ]


RULES = read()
RECORDED = {rule.name: rule for rule in RULES if not rule.alerts}


def inner(node: Any) -> Iterator[Any]:
    """Yield what a node is made of."""
    if isinstance(node, promql.BinaryExpr):
        yield from (node.lhs, node.rhs)
    elif isinstance(node, promql.Call):
        yield from node.args
    elif isinstance(node, promql.MatrixSelector):
        yield node.vector_selector
    elif isinstance(node, promql.AggregateExpr | promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        yield node.expr


def walk(node: Any) -> Iterator[Any]:
    """Yield a node and all within it."""
    yield node
    for each in inner(node):
        yield from walk(each)


def bare(node: Any) -> Any:
    """Return what is in the parentheses."""
    while isinstance(node, promql.ParenExpr):
        node = node.expr
    return node


def family(name: str) -> str:
    """Return the metric that a series is of: a histogram's are three."""
    plain = re.sub(r"_(bucket|count|sum)$", "", name)
    return plain if plain in METRICS and METRICS[plain].type == "histogram" else name


def is_scalar(node: Any) -> bool:
    """Return whether a node is one number, without labels to match."""
    node = bare(node)
    if isinstance(node, promql.BinaryExpr):
        return is_scalar(node.lhs) and is_scalar(node.rhs)
    return isinstance(node, promql.NumberLiteral) or (
        isinstance(node, promql.Call) and node.func.name in ("scalar", "time")
    )


def labels(node: Any) -> frozenset[str]:
    """Return the labels that the result of a node can have; raises ``KeyError`` for a series that nobody makes."""
    node = bare(node)
    if isinstance(node, promql.SubqueryExpr):
        node = bare(node.expr)
    if isinstance(node, promql.VectorSelector):
        return _selected(node)
    if isinstance(node, promql.MatrixSelector):
        return _selected(node.vector_selector)
    if isinstance(node, promql.AggregateExpr):
        return _aggregated(node)
    if isinstance(node, promql.Call):
        return _called(node)
    if isinstance(node, promql.BinaryExpr):
        return _joined(node)
    return frozenset()


def _selected(node: Any) -> frozenset[str]:
    name = str(node.name)
    if name in OWN:
        return OWN[name]
    if name in RECORDED:
        return labels(RECORDED[name].tree)
    found = METRICS[family(name)]
    return TARGET | {*found.labels} | ({"le"} if name.endswith("_bucket") else set())


def _aggregated(node: Any) -> frozenset[str]:
    if node.modifier is None:
        return frozenset()
    named = frozenset(node.modifier.labels)
    within = labels(node.expr)
    return within & named if node.modifier.type == promql.AggModifierType.By else within - named


def _called(node: Any) -> frozenset[str]:
    if node.func.name in ("vector", "scalar", "time", "absent"):
        return frozenset()
    vectors = [each for each in node.args if not is_scalar(each) and not isinstance(each, promql.StringLiteral)]
    found = labels(vectors[0])
    if node.func.name in ("label_join", "label_replace"):
        return found | {node.args[1].val}
    return found


def _joined(node: Any) -> frozenset[str]:
    if is_scalar(node.lhs) or is_scalar(node.rhs):
        return labels(node.rhs if is_scalar(node.lhs) else node.lhs)
    left = labels(node.lhs)
    if str(node.op) == "or":
        return left | labels(node.rhs)
    matched = node.modifier.matching if node.modifier is not None else None
    if str(node.op) in SETS or matched is None:
        return left
    if node.modifier.card == promql.VectorMatchCardinality.ManyToOne:
        return left | frozenset(node.modifier.group_labels)
    named = frozenset(matched.labels)
    return left & named if matched.type == promql.LabelModifierType.Include else left - named
