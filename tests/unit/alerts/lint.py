"""What a linter of rules finds before any series is there: each check yields complaints on one rule.

After the documented checks of cloudflare/pint, which isn't in the registries that the test bed installs from. What pint
asks a running Prometheus (is there such a series, has it such a label), the catalogue answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import promql_parser as promql

from alerts.rule import WHO
from exporters import catalogue as c
from tests.unit.alerts.promql import (
    COMPARES,
    METRICS,
    RECORDED,
    Rule,
    bare,
    family,
    is_scalar,
    labels,
    walk,
)

Check = Callable[[Rule], Iterator[str]]
PRESENT = {c.VERDICT.name}  # is there only while it stands: to name it is to compare it
FOR_COUNTERS, FOR_GAUGES = {"rate", "irate", "increase", "resets"}, {"delta", "idelta", "deriv", "predict_linear"}
# A counter's level, on purpose: an event that came with the series itself, and restarts that the agent counts anew.
LEVELS = {c.ACTIONS.name, c.ENGINE_OOM_KILLS.name}
SAMPLING = {"topk", "bottomk", "limitk", "limit_ratio", "count_values"}
REGEXES = (promql.MatchOp.Re, promql.MatchOp.NotRe)
LEAST_SECONDS = 60  # the longest scrape that the rules hold at


def comparison(rule: Rule) -> Iterator[str]:
    """An alert must say when: its expression leaves series out that are well (pint: alerts/comparison)."""

    def decides(node: Any) -> bool:
        node = bare(node)
        if isinstance(node, promql.BinaryExpr):
            sides = decides(node.lhs), decides(node.rhs)
            if str(node.op) in COMPARES:
                return node.modifier is None or not node.modifier.return_bool
            return all(sides) if str(node.op) == "or" else any(sides)
        if isinstance(node, promql.AggregateExpr):
            return decides(node.expr)
        if isinstance(node, promql.Call):
            return bool(node.func.name == "absent")
        return isinstance(node, promql.VectorSelector) and node.name in PRESENT

    if rule.alerts and rule.name != "KvtideWatchdog" and not decides(rule.tree):
        yield "fires on whatever is there"


def template(rule: Rule) -> Iterator[str]:
    """Texts name labels that the series have, and labels hold no numbers (pint: alerts/template)."""
    if not rule.alerts:
        return
    has = labels(rule.tree)
    for key, text in rule.body["annotations"].items():
        if key not in ("summary", "description"):
            continue  # links take an empty label as "all"
        named = {*re.findall(r"\$labels\.(\w+)", text.replace(WHO, ""))}
        if lost := named - has:
            yield f"{key}: {', '.join(sorted(lost))}: not a label of the result"
    for name, text in rule.body["labels"].items():
        if "$value" in text:
            yield f"label {name}: each new value would be a new alert"
        if lost := {*re.findall(r"\$labels\.(\w+)", text)} - has - {"engine", "gpu"}:
            yield f"label {name}: {', '.join(sorted(lost))}: not a label of the result"


def held(rule: Rule) -> Iterator[str]:
    """``for`` is nothing, or lasts a scrape at least; what is absent must be so for a while (alerts/for, absent)."""
    if not rule.alerts:
        return
    told = rule.body["for"]
    seconds = 0.0 if told == "0s" else promql.parse_duration(told).total_seconds()
    if 0 < seconds < LEAST_SECONDS and not rule.name.startswith("Textbook"):
        yield "for: less than one scrape"
    calls = [node.func.name for node in walk(rule.tree) if isinstance(node, promql.Call)]
    if "absent" in calls and seconds < 2 * LEAST_SECONDS:
        yield "absent() is true while Prometheus starts"


def kinds(rule: Rule) -> Iterator[str]:
    """Rates are of counters, slopes of gauges, and a counter's level says little (promql/rate, promql/counter)."""

    def type_of(name: str) -> str:
        found = METRICS.get(family(name))
        return "counter" if found is not None and (found.type != "gauge") else "gauge"

    ranged = set()
    for node in walk(rule.tree):
        if not isinstance(node, promql.Call):
            continue
        for each in node.args:
            if not isinstance(each, promql.MatrixSelector):
                continue
            name = str(each.vector_selector.name)
            ranged.add(name)
            if node.func.name in FOR_COUNTERS and type_of(name) != "counter":
                yield f"{node.func.name}({name}): not a counter"
            if node.func.name in FOR_GAUGES and type_of(name) == "counter":
                yield f"{node.func.name}({name}): a counter"
            if each.range.total_seconds() < 4 * LEAST_SECONDS:
                yield f"{name}: a window of less than four scrapes"
    for node in walk(rule.tree):
        if not isinstance(node, promql.VectorSelector) or node.name in ranged | LEVELS:
            continue
        if type_of(str(node.name)) == "counter":
            yield f"{node.name}: the level of a counter"


def series(rule: Rule) -> Iterator[str]:
    """Series that are made, with labels that they have (promql/series, rule/dependency)."""
    for node in walk(rule.tree):
        if isinstance(node, promql.VectorSelector):
            try:
                has = labels(node)
            except KeyError:
                yield f"{node.name}: nobody makes it"
                continue
            if lost := {each.name for each in node.matchers.matchers} - has:
                yield f"{node.name}: has no {', '.join(sorted(lost))}"


def regexps(rule: Rule) -> Iterator[str]:
    """Regular expressions that are some, and have no anchors: they have them anyway (promql/regexp)."""
    for node in walk(rule.tree):
        for each in node.matchers.matchers if isinstance(node, promql.VectorSelector) else ():
            if each.op not in REGEXES:
                continue
            if each.value.startswith("^") or each.value.endswith("$"):
                yield f"{each.name}: {each.value}: anchors that are there anyway"
            if not re.search(r"[|.*+?\[(\\]", each.value):
                yield f"{each.name}: {each.value}: no expression, but a text"


def joins(rule: Rule) -> Iterator[str]:
    """Sides that can match: labels matched by are on both, and no other tells them apart (vector_matching)."""
    for node in walk(rule.tree):
        if not isinstance(node, promql.BinaryExpr) or is_scalar(node.lhs) or is_scalar(node.rhs):
            continue
        try:
            left, right = labels(node.lhs), labels(node.rhs)
        except KeyError:
            continue  # told by another check
        matched = node.modifier.matching if node.modifier is not None else None
        named = frozenset(matched.labels) if matched is not None else frozenset()
        if matched is not None and matched.type == promql.LabelModifierType.Include:
            if lost := named - (left & right):
                yield f"{node.op}: {', '.join(sorted(lost))}: on one side only"
        elif str(node.op) != "or" and left - named != right - named:
            yield f"{node.op}: {', '.join(sorted((left ^ right) - named))}: on one side only"


def fragile(rule: Rule) -> Iterator[str]:
    """An alert of another series at each look is a new alert (promql/fragile)."""
    for node in walk(rule.tree):
        if rule.alerts and isinstance(node, promql.AggregateExpr) and str(node.op) in SAMPLING:
            yield f"{node.op}: other series at each look"


def naming(rule: Rule) -> Iterator[str]:
    """Recorded series say their level, metric and operation (rule/name)."""
    if rule.group.startswith("kvtide-recording") and not re.fullmatch(r"[a-z]+:kvtide_\w+:\w+", rule.name):
        yield "not level:metric:operation"
    if rule.alerts and not re.fullmatch(r"(Kvtide|Textbook)[A-Z]\w+", rule.name):
        yield "not a name of an alert"


CHECKS: tuple[Check, ...] = (comparison, template, held, kinds, series, regexps, joins, fragile, naming)


def early(rules: list[Rule]) -> Iterator[str]:
    """A group is judged in its order: what is read in it must be recorded before, or is one round old."""
    for at, rule in enumerate(rules):
        later = {each.name for each in rules[at:] if each.group == rule.group and not each.alerts}
        for node in walk(rule.tree):
            if isinstance(node, promql.VectorSelector) and node.name in RECORDED and node.name in later:
                yield f"{rule.name}: reads {node.name}, which comes later"


def twice(rules: list[Rule]) -> Iterator[str]:
    """Two rules of one name, or of one expression (rule/duplicate)."""
    seen: dict[object, str] = {}
    for rule in rules:
        what = (rule.body["expr"], rule.body.get("labels", {}).get("severity"))
        if rule.name in seen.values():
            yield f"{rule.name}: there are two"
        elif what in seen:
            yield f"{rule.name}: the same as {seen[what]}"
        seen[what] = rule.name
