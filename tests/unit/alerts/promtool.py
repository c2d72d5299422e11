"""Series as people write them, made into unit tests of the real promtool."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from alerts.build import BUILT
from exporters import catalogue as c
from exporters.catalogue import Metric
from tests.bed.prometheus import program

NODE = {"instance": "node-a:9477", "job": "kvtide"}
RULES = ("kvtide-recording.yml", "kvtide-alerts.yml", "kvtide-textbook.yml")
FLEET = ("KvtideWatchdog", "KvtideAgentsAbsent", "KvtideFleetGuard")  # of no node
MINUTES = 30  # how long a case lasts
BREACH = 600  # seconds: when what is to fire begins

Value = Callable[[float], float | None]
FRUGAL = {"GOMAXPROCS": "1", "GOGC": "400"}  # a sixth of its time less: nobody waits for its memory
GONE = "stale"  # what Prometheus writes when a series isn't on the page any more


@dataclass(frozen=True)
class Series:
    """A series: ``value`` by seconds, None where it is not on the page."""

    name: str
    labels: Mapping[str, str]
    value: Value

    def as_yaml(self, interval: int, seconds: int) -> dict[str, str]:
        """What promtool reads. A label that is empty is none."""
        inner = ",".join(f'{name}="{value}"' for name, value in (NODE | dict(self.labels)).items() if value)
        words, here = [], False
        for at in range(0, seconds + 1, interval):
            found = self.value(at)
            words.append(repr(float(found)) if found is not None else GONE if here else "_")
            here = found is not None
        return {"series": f"{self.name}{{{inner}}}", "values": " ".join(words)}


@dataclass(frozen=True)
class Case:
    """What ``alert`` must make of ``series``: fire at the end, with ``labels`` among its own; or never fire."""

    alert: str
    name: str
    series: Sequence[Series]
    fires: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    minutes: int = MINUTES

    @property
    def alone(self) -> bool:
        """Whether it is about a fleet, and must not share one."""
        return self.alert in FLEET

    def question(self, node: str) -> dict[str, Any]:
        """What to ask once its series were those of ``node``. ``ALERTS`` is written for an alert while it stands."""
        where = f',instance="{node}"' if node else ""
        firing = f'ALERTS{{alertname="{self.alert}",alertstate="firing"{where}}}'
        names = sorted(self.labels)
        query = f"count by ({', '.join(names)}) ({firing})" if self.fires else f"count_over_time({firing}[1d])"
        inner = ",".join(f'{name}="{self.labels[name]}"' for name in names)
        expected = [{"labels": f"{{{inner}}}", "value": 1}] if self.fires else []
        return {"expr": query, "eval_time": f"{self.minutes}m", "exp_samples": expected}


def asked_of(cases: Sequence[Case], interval: int, **added: str) -> Iterator[dict[str, Any]]:
    """Yield promtool's tests: cases of one node as nodes of one fleet, all judged at once; those of fleets alone.

    ``added``: labels that the scrape adds to all series.
    """
    together = [case for case in cases if not case.alone]
    nodes = {f"case-{number}:9477": case for number, case in enumerate(together)}
    yield {
        "name": "all",
        "interval": f"{interval}s",
        "input_series": [
            replace(each, labels=added | {"instance": node} | dict(each.labels)).as_yaml(interval, 60 * case.minutes)
            for node, case in nodes.items()
            for each in case.series
        ],
        "promql_expr_test": [case.question(node) for node, case in nodes.items()],
    }
    for case in cases:
        if case.alone:
            yield {
                "name": f"{case.alert}: {case.name}",
                "interval": f"{interval}s",
                "input_series": [each.as_yaml(interval, 60 * case.minutes) for each in case.series],
                "promql_expr_test": [case.question("")],
            }


def always(value: float) -> Value:
    """The same all the time."""
    return lambda _: value


def after(value: float, seconds: float = BREACH, before: float | None = None) -> Value:
    """Return what is ``value`` from ``seconds`` on."""
    return lambda at: value if at >= seconds else before


def between(value: float, begins: float, ends: float, other: float | None = None) -> Value:
    """Return what is ``value`` for a while."""
    return lambda at: value if begins <= at < ends else other


def ramp(start: float, per_second: float, most: float = float("inf")) -> Value:
    """Return what grows."""
    return lambda at: min(most, start + per_second * at)


def of(metric: Metric, value: Value | float, **labels: str) -> Series:
    """A series of the catalogue; raises for a label that it does not have."""
    unknown = labels.keys() - {*metric.labels}
    assert not unknown, f"{metric.name} has no {unknown}"
    return Series(metric.name, labels, value if callable(value) else always(value))


def verdict(
    kind: str, tier: str = "page", value: Value | None = None, phase: str = "confirmed", **about: str
) -> Series:
    """A verdict that stands from the breach on, unless ``value`` says when."""
    labels = {"engine": "m"} | about
    return of(c.VERDICT, value or after(1), kind=kind, tier=tier, phase=phase, scope="engine", **labels)


def run(
    folder: Path,
    tests: Sequence[Mapping[str, Any]],
    interval: int,
    names: Sequence[str] = RULES,
    *,
    newer: bool = False,
) -> None:
    """Run ``tests`` on the rules of ``names`` by promtool; raises ``AssertionError`` with what it says.

    ``newer``: by that of Prometheus 3.
    """
    file = folder / "tests.yml"
    whole = {
        "rule_files": [str(BUILT / name) for name in names],
        "evaluation_interval": f"{interval}s",
        "tests": [dict(each) for each in tests],
    }
    file.write_text(yaml.safe_dump(whole, sort_keys=False, width=10_000))
    ran = subprocess.run(
        [program("promtool", newer=newer), "test", "rules", str(file)],
        env=os.environ | FRUGAL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
