"""Alertmanager's routing and inhibition: read by amtool, and held to what must never be muted."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.policy.types import DEFAULT
from alerts import alertmanager, conditions, examples
from alerts.build import BUILT
from alerts.rule import Alert
from tests.bed.alertmanager import NEWER, program

ALERTS = [rule for group in conditions.groups(DEFAULT) for rule in group.rules if isinstance(rule, Alert)]
CONDITIONS = {alert.condition for alert in ALERTS}
OF_ONE_ENGINE = {"instance": "a:9477", "engine": "m", "gpu": "none"}


@pytest.mark.parametrize("name", ["alertmanager.yml", "alertmanager-examples.yml"])
@pytest.mark.parametrize(
    "newer", [False, pytest.param(True, marks=pytest.mark.skipif(not NEWER.exists(), reason="no newer one here"))]
)
def test_amtool_accepts_it(name: str, newer: bool) -> None:
    amtool = program("amtool", newer=newer)
    subprocess.run([amtool, "check-config", str(BUILT / name)], check=True, capture_output=True, timeout=60)


def test_amtool_refuses_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "alertmanager.yml"
    file.write_text(yaml.safe_dump(alertmanager.config() | {"receivers": []}))
    ran = subprocess.run([program("amtool"), "check-config", str(file)], check=False, capture_output=True, timeout=60)
    assert ran.returncode != 0


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ({"severity": "emergency", "condition": "oom"}, "kvtide-now"),
        ({"severity": "severe", "condition": "kv_pressure"}, "kvtide-soon"),
        ({"severity": "warning", "condition": "kv_orphan"}, "kvtide-ticket"),
        ({"severity": "warning", "condition": "watchdog"}, "kvtide-watchdog"),
    ],
)
def test_each_tier_has_its_receiver(labels: dict[str, str], receiver: str) -> None:
    for name in ("alertmanager.yml", "alertmanager-examples.yml"):
        chosen = [f"{key}={value}" for key, value in labels.items()]
        ran = subprocess.run(
            [program("amtool"), "config", "routes", "test", "--config.file", str(BUILT / name), *chosen],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.stdout.strip() == receiver


def matches(matchers: list[str], labels: dict[str, str]) -> bool:
    for matcher in matchers:
        name, sign, value = re.fullmatch(r'(\w+)(=~|!~|!=|=)"(.*)"', matcher).groups()  # type: ignore[union-attr]
        found = labels.get(name, "")
        hit = bool(re.fullmatch(value, found)) if "~" in sign else found == value
        if hit == sign.startswith("!"):
            return False
    return True


def mutes(source: dict[str, str], target: dict[str, str]) -> bool:
    """As Alertmanager decides it: a label that both lack counts as equal."""
    return any(
        matches(rule["source_matchers"], source)
        and matches(rule["target_matchers"], target)
        and all(source.get(name, "") == target.get(name, "") for name in rule["equal"])
        for rule in alertmanager.config()["inhibit_rules"]
    )


def labels_of(alert: Alert, **more: str) -> dict[str, str]:
    return OF_ONE_ENGINE | {"severity": alert.severity, "condition": alert.condition} | more


def test_nothing_mutes_what_must_be_heard() -> None:
    assert {*alertmanager.NEVER_MUTED} <= CONDITIONS
    for target in ALERTS:
        if target.condition in alertmanager.NEVER_MUTED:
            for severity in ("warning", target.severity):
                loud = labels_of(target, severity=severity)
                assert not any(mutes(labels_of(source, severity="emergency"), loud) for source in ALERTS), target.name


def test_a_worse_tier_mutes_the_milder_of_the_same_place_only() -> None:
    page, ticket = (
        next(alert for alert in ALERTS if alert.name == name)
        for name in ("KvtideBlocksOrphanedMany", "KvtideBlocksOrphaned")
    )
    assert mutes(labels_of(page), labels_of(ticket))
    assert not mutes(labels_of(ticket), labels_of(page))
    assert not mutes(labels_of(page), labels_of(ticket, engine="n"))
    assert not mutes(labels_of(page), labels_of(ticket, instance="b:9477"))


def test_an_engine_that_is_isolated_or_gone_mutes_what_no_longer_matters() -> None:
    isolated = OF_ONE_ENGINE | {"severity": "warning", "condition": "engine_isolated"}
    gone = OF_ONE_ENGINE | {"severity": "warning", "condition": "engine_missing"}
    pressure = OF_ONE_ENGINE | {"severity": "severe", "condition": "kv_pressure"}
    leak = OF_ONE_ENGINE | {"severity": "emergency", "condition": "kv_orphan"}
    assert mutes(isolated, pressure)
    assert mutes(gone, leak)
    assert not mutes(isolated, leak)
    assert not mutes(gone, leak | {"engine": "n"})


def test_inhibition_names_conditions_that_exist() -> None:
    for rule in alertmanager.config()["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            if matcher.startswith("condition"):
                assert {*re.findall(r"[a-z_]{3,}", matcher.partition('"')[2])} <= CONDITIONS


def shown(template: str, tmp_path: Path, instance: str, **status: str) -> str:
    """What Alertmanager makes of a template for alerts of these names, by how they stand."""
    alerts = [
        {
            "status": state,
            "labels": {"severity": "emergency", "respond_within": "now"},
            "annotations": {"summary": f"{name} is ill", "description": f"What {name} has.", "runbook_url": "book"}
            | {"dashboard": f"board of {name}"},
        }
        for name, state in status.items()
    ]
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"alerts": alerts, "commonLabels": {"instance": instance} if instance else {}}))
    (tmp_path / "none.tmpl").write_text("")
    options = ("--template.glob", str(tmp_path / "*.tmpl"), "--template.text", template, "--template.data", str(data))
    command = [program("amtool"), "template", "render", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def test_what_a_chat_shows(tmp_path: Path) -> None:
    (slack,) = examples.config()["receivers"][0]["slack_configs"]
    assert shown(slack["title"], tmp_path, "n0:9477", m="firing", n="resolved") == "n0:9477: m is ill; 1 firing, 1 over"
    assert shown(slack["title"], tmp_path, "n0:9477", n="resolved") == "n0:9477: 0 firing, 1 over"
    assert shown(slack["title"], tmp_path, "", m="firing") == "fleet: m is ill; 1 firing, 0 over"
    assert shown(slack["text"], tmp_path, "n0:9477", m="firing", n="resolved") == (
        "*emergency*, within now: m is ill\nWhat m has.\nbook\nboard of m\nover: n is ill"
    )


def test_examples_hold_no_secret() -> None:
    def walk(value: Any, key: str = "") -> None:
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(inner, (dict, list)):
                walk(inner, str(name))
            elif re.search(r"key|token|password|api_url", str(name)):
                assert str(name).endswith("_file"), (key, name)

    walk(examples.config())
    assert {"kvtide-now", "kvtide-soon", "kvtide-ticket", "kvtide-watchdog"} == {
        each["name"] for each in examples.config()["receivers"] if len(each) > 1
    }
