"""What a rule is, and how rules become the YAML that Prometheus reads.

A condition is one thing that can be wrong; its tiers share its name in the label ``condition``, so that the worse one
mutes the milder. ``engine`` and ``gpu`` are always set ("none" where they do not apply): to Alertmanager a label that
both sides lack counts as equal, and would mute what has nothing to do with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import yaml

# warning: within 30 minutes, a ticket. severe: 15 minutes, emergency: now; both page.
Severity = Literal["warning", "severe", "emergency"]
RESPOND_WITHIN: dict[Severity, str] = {"warning": "30m", "severe": "15m", "emergency": "now"}
PAGES: frozenset[Severity] = frozenset({"severe", "emergency"})

RUNBOOKS = "docs/runbooks/"  # where people find the pages: `python -m alerts.build --runbooks URL`
# An empty choice would be a choice, too: panels would ask for the node or the engine without a name.
_CHOSEN = (
    "?{{ with $labels.instance }}var-instance={{ . | urlquery }}{{ end }}"
    "{{ with $labels.engine }}&var-engine={{ . | urlquery }}{{ end }}"
)
_ALSO = {"kvtide-node": "gpu", "kvtide-tenants": "tenant", "kvtide-leaks": "tenant"}  # variables that few boards have
BOARDS = "/d/"  # of the Grafana that has the boards: `--grafana URL` puts its address before it

# Whom an alert is about, as people say it: "m worker/0", "train", "GPU 3", else the node.
WHO = (
    "{{ if $labels.engine }}{{ $labels.engine }}{{ with $labels.process }} {{ . }}{{ end }}"
    "{{ with $labels.role }} {{ . }}/{{ $labels.rank }}{{ end }}"
    "{{ else if $labels.process }}{{ $labels.process }}"
    "{{ else if $labels.gpu }}GPU {{ $labels.gpu }}{{ else }}{{ $labels.instance }}{{ end }}"
)


@dataclass(frozen=True, slots=True)
class Places:
    """Where the pages are that an alert links to: ``runbooks`` before a page's name, ``grafana`` before ``/d/``."""

    runbooks: str = RUNBOOKS
    grafana: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that is computed: ``record`` is its name, level:metric:operation."""

    record: str
    expr: str
    help: str

    def as_yaml(self) -> dict[str, Any]:
        """Return it as Prometheus reads it."""
        return {"record": self.record, "expr": _one_line(self.expr)}


@dataclass(frozen=True, slots=True)
class Alert:
    """One tier of one condition. ``summary`` and ``description`` are templates; the latter has numbers with units.

    ``held``: how long ``expr`` must hold (``for``), ``keep``: how long it goes on after that (``keep_firing_for``), as
    Prometheus writes durations. ``board``: uid of the dashboard to look at. ``runbook``: the page where it isn't the
    condition's.
    """

    name: str
    condition: str
    severity: Severity
    expr: str
    summary: str
    description: str
    held: str = "0s"
    keep: str = ""
    board: str = "kvtide-engine"
    runbook: str = ""

    def as_yaml(self, places: Places) -> dict[str, Any]:
        """Return it as Prometheus reads it."""
        rule: dict[str, Any] = {"alert": self.name, "expr": _one_line(self.expr), "for": self.held}
        if self.keep:
            rule["keep_firing_for"] = self.keep
        rule["labels"] = {
            "severity": self.severity,
            "respond_within": RESPOND_WITHIN[self.severity],
            "page": "yes" if self.severity in PAGES else "no",
            "condition": self.condition,
            "engine": _or_none("engine"),
            "gpu": _or_none("gpu"),
        }
        rule["annotations"] = {
            "summary": _one_line(self.summary),
            "description": _one_line(self.description),
            "runbook_url": f"{places.runbooks}{self.runbook or self.condition}.md",
            "dashboard": f"{places.grafana}{BOARDS}{self.board}{_CHOSEN}{_also(self.board)}",
        }
        return rule


def _also(board: str) -> str:
    name = _ALSO.get(board)
    return f"{{{{ with $labels.{name} }}}}&var-{name}={{{{ . | urlquery }}}}{{{{ end }}}}" if name else ""


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated together, in their order. ``interval``: how often; empty for Prometheus's own."""

    name: str
    rules: tuple[Recording | Alert, ...]
    interval: str = ""

    def as_yaml(self, places: Places) -> dict[str, Any]:
        """Return it as Prometheus reads it."""
        found: dict[str, Any] = {"name": self.name}
        if self.interval:
            found["interval"] = self.interval
        found["rules"] = [rule.as_yaml(places) if isinstance(rule, Alert) else rule.as_yaml() for rule in self.rules]
        return found


def render(groups: Iterable[Group], places: Places | None = None) -> str:
    """Return a rule file."""
    where = places or Places()
    text: str = yaml.dump(
        {"groups": [group.as_yaml(where) for group in groups]},
        Dumper=_Dumper,
        sort_keys=False,
        width=110,
        allow_unicode=True,
    )
    return text


class _Dumper(yaml.SafeDumper):
    """Two spaces more inside lists, as people write them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists too."""
        super().increase_indent(flow, False)


def _or_none(label: str) -> str:
    return f"{{{{ if $labels.{label} }}}}{{{{ $labels.{label} }}}}{{{{ else }}}}none{{{{ end }}}}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
