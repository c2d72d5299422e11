"""The built rules have none of the faults that linters know; and each check finds its fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.alerts import lint
from tests.unit.alerts.promql import RULES, Rule, read

ALERT = {"alert": "KvtidePoolFull", "for": "1m", "labels": {"severity": "warning"}, "annotations": {"summary": "x"}}


@pytest.mark.parametrize("check", lint.CHECKS, ids=lambda check: check.__name__)
def test_no_rule_has_this_fault(check: lint.Check) -> None:
    assert [f"{rule.name}: {said}" for rule in RULES for said in check(rule)] == []


def test_no_rule_is_there_twice_or_reads_what_comes_later() -> None:
    assert [*lint.twice(RULES)] == []
    assert [*lint.early(RULES)] == []


@pytest.mark.parametrize(
    ("check", "changed"),
    [
        (lint.comparison, {"expr": "kvtide_kv_use_ratio"}),
        (lint.comparison, {"expr": "kvtide_kv_use_ratio > bool 1"}),
        (lint.comparison, {"expr": "kvtide_kv_use_ratio > 1 or kvtide_memory_harm"}),
        (lint.template, {"annotations": {"summary": "{{ $labels.peer }}"}}),
        (lint.template, {"labels": {"severity": "warning", "much": "{{ $value }}"}}),
        (lint.template, {"expr": "sum(kvtide_kv_use_ratio) > 1", "annotations": {"summary": "{{ $labels.engine }}"}}),
        (lint.held, {"for": "30s"}),
        (lint.held, {"expr": 'absent(up{job="kvtide"})'}),
        (lint.kinds, {"expr": "rate(kvtide_kv_use_ratio[5m]) > 1"}),
        (lint.kinds, {"expr": "deriv(kvtide_audits_total[5m]) > 1"}),
        (lint.kinds, {"expr": "kvtide_audits_total > 1"}),
        (lint.kinds, {"expr": "rate(kvtide_audits_total[2m]) > 1"}),
        (lint.series, {"expr": "kvtide_kv_used_ratio > 1"}),
        (lint.series, {"expr": 'kvtide_kv_use_ratio{gpu="0"} > 1'}),
        (lint.series, {"expr": "engine:kvtide_kv_full:ratio > 1"}),
        (lint.regexps, {"expr": 'kvtide_kv_use_ratio{engine=~"^m.*"} > 1'}),
        (lint.regexps, {"expr": 'kvtide_kv_use_ratio{engine=~"m"} > 1'}),
        (lint.joins, {"expr": "kvtide_kv_use_ratio > 1 and on (gpu) kvtide_gpu_memory_use_ratio"}),
        (lint.joins, {"expr": "kvtide_kv_use_ratio / sum by (instance) (kvtide_kv_use_ratio) > 1"}),
        (lint.fragile, {"expr": "topk(3, kvtide_kv_use_ratio) > 1"}),
        (lint.naming, {"alert": "blocks_leak"}),
    ],
)
def test_each_check_finds_its_fault(check: lint.Check, changed: Mapping[str, Any]) -> None:
    sound = Rule("kvtide-kv", ALERT | {"expr": "kvtide_kv_use_ratio > 1"})
    assert [*check(sound)] == []
    assert [*check(Rule("kvtide-kv", sound.body | changed))] != []


def test_rules_that_are_twice_or_in_the_wrong_order_are_found() -> None:
    recording = read("kvtide-recording.yml")
    assert [*lint.twice([*recording, recording[0]])] != []
    renamed = Rule(recording[0].group, recording[0].body | {"record": "engine:kvtide_other:ratio"})
    assert [*lint.twice([*recording, renamed])] != []
    assert [*lint.early(recording[::-1])] != []
