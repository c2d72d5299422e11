"""Profiles, windows, modes, explanations, the schema, and loading again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from agent.actions.rules import RULES
from agent.cli.app import app
from agent.errors import ConfigError
from agent.policy.actions import LEVERS, inside
from agent.policy.admission import AdmissionPolicy
from agent.policy.explain import all_keys, explained, readers_of, schema
from agent.policy.file import differences, load, of_profile, text_of
from agent.policy.loaded import LoadedPolicy
from agent.policy.profiles import OVERRIDES
from agent.policy.types import DEFAULT, Policy


@pytest.mark.parametrize("profile", OVERRIDES)
def test_a_profile_changes_its_table_and_nothing_else(profile: str) -> None:
    changed = differences(of_profile(profile), DEFAULT)
    table = {f"{section}.{key}": value for section, keys in OVERRIDES[profile].items() for key, value in keys.items()}
    assert {key: here for key, (here, _) in changed.items() if key != "profile"} == table
    assert all(here != there for here, there in changed.values())


@pytest.mark.parametrize("profile", OVERRIDES)
def test_what_a_profile_prints_is_itself(profile: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text_of(of_profile(profile)))
    assert load(file) == of_profile(profile)


def test_latency_acts_sooner_and_throughput_later() -> None:
    latency, default, throughput = (of_profile(name) for name in ("latency", "default", "throughput"))
    for section, key in (("use", "page_ratio"), ("serving", "queue_page"), ("actions", "breaches")):
        values = [getattr(getattr(each, section), key) for each in (latency, default, throughput)]
        assert values == sorted(values)
        assert len(set(values)) == 3


def test_a_file_wins_over_its_profile(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("profile: latency\nserving: {queue_page: 70}\n")
    policy = load(file)
    assert (policy.serving.queue_page, policy.serving.queue_warn) == (70, 25)


@pytest.mark.parametrize(
    ("windows", "minute", "expected"),
    [
        (("22:00-06:00",), 23 * 60, True),
        (("22:00-06:00",), 5 * 60 + 59, True),
        (("22:00-06:00",), 6 * 60, False),
        (("22:00-06:00",), 12 * 60, False),
        (("08:00-09:00", "12:00-13:00"), 12 * 60 + 30, True),
        (("08:00-09:00",), 9 * 60, False),
        ((), 0, False),
        (("03:00-03:00",), 0, True),
    ],
)
def test_windows(windows: tuple[str, ...], minute: int, expected: bool) -> None:
    assert inside(windows, minute) is expected


@pytest.mark.parametrize("window", ["8:00-9:00", "24:00-01:00", "08:00", "08:00-09:60", ""])
def test_a_window_that_is_none(window: str) -> None:
    with pytest.raises(ValidationError):
        Policy.model_validate({"actions": {"maintenance": [window]}})


def test_modes_by_engine_win_over_modes_by_lever() -> None:
    actions = Policy.model_validate(
        {"actions": {"mode": "dry-run", "levers": {"trim": "enforce"}, "engines": {"m": {"trim": "observe"}}}}
    ).actions
    assert actions.mode_of("trim", "m") == "observe"
    assert actions.mode_of("trim", "n") == "enforce"
    assert actions.mode_of("preempt", "m") == "dry-run"
    assert actions.strongest() == "enforce"
    assert DEFAULT.actions.strongest() == "observe"


@pytest.mark.parametrize(
    ("tenant", "base", "expected"),
    [
        ("a", None, 250),
        ("gold", None, 750),
        ("cheap", None, 125),
        ("a", 40, 40),
        ("gold", 40, 120),
        ("whale", None, 1000),
    ],
)
def test_quotas_by_the_formula(tenant: str, base: int | None, expected: int) -> None:
    admission = AdmissionPolicy(
        sla_factors={"gold": 0.5, "whale": 9.0}, paid_factors={"gold": 2.0, "cheap": 0.5}, quota_ratio=0.25
    )
    assert admission.quota_of(tenant, 1000, base) == expected


def test_every_key_is_read_by_somebody() -> None:
    assert not [key for key in all_keys() if not readers_of(key)]


def test_explained() -> None:
    told = explained("use.page_ratio", of_profile("latency"), {"profile": "latency"}, "latency")
    assert (told.value, told.source, told.default) == (0.90, "profile latency", 0.95)
    assert "agent/verdicts/kv_pressure.py" in told.readers
    given = {"actions": {"breaches": 7}}
    told = explained("actions.breaches", Policy.model_validate(given), given, "mine.yaml")
    assert (told.value, told.source, told.allowed) == (7, "mine.yaml", "a whole number, >= 1")
    with pytest.raises(ConfigError, match=r"there is no such key; there are: actions\.breaches"):
        explained("breaches", DEFAULT, {}, "default")


def test_the_schema_has_every_key() -> None:
    told = json.loads(schema())
    assert set(told["properties"]) == set(Policy.model_fields)
    for lever in LEVERS:
        assert lever in schema()
    assert set(RULES) == set(DEFAULT.actions.ladder)
    result = CliRunner().invoke(app, ["policy", "schema"], standalone_mode=False)
    assert json.loads(result.output) == told


def test_loading_again_is_all_or_nothing(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("actions: {breaches: 4}")
    times = iter([1.0, 2.0, 3.0])
    taken: list[Policy] = []
    loaded = LoadedPolicy(str(file), lambda: next(times))
    file.write_text("actions: {breaches: 5, cooldown_seconds: bogus}")
    assert "actions.cooldown_seconds" in loaded.reload(taken.append)
    assert not taken
    assert loaded.policy.actions.breaches == 4
    assert (loaded.state.loaded_at, bool(loaded.state.problem)) == (1.0, True)
    file.write_text("actions: {breaches: 5}")
    assert loaded.reload(taken.append) == ""
    assert taken == [loaded.policy]
    assert loaded.policy.actions.breaches == 5
    assert (loaded.state.loaded_at, loaded.state.problem) == (2.0, "")


def test_one_that_can_not_be_taken_gives_the_old_one_back(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("actions: {breaches: 4}")
    loaded, taken = LoadedPolicy(str(file)), []

    def adopt(policy: Policy) -> None:
        taken.append(policy.actions.breaches)
        if policy.actions.breaches == 9:
            raise RuntimeError("no")

    file.write_text("actions: {breaches: 9}")
    assert loaded.reload(adopt) == "RuntimeError: no"
    assert taken == [9, 4]
