"""Receivers as examples: Slack, PagerDuty, a webhook. Secrets are files that Alertmanager reads, never text here."""

from __future__ import annotations

from typing import Any

import yaml

from alerts import alertmanager

SECRETS = "/etc/alertmanager/secrets"
# An alert on the fleet has no node. Who is woken reads what it is, and where all are over the last word must not read
# like the first.
_TITLE = (
    "{{ with .CommonLabels.instance }}{{ . }}{{ else }}fleet{{ end }}: "
    "{{ with .Alerts.Firing }}{{ (index . 0).Annotations.summary }}; {{ end }}"
    "{{ .Alerts.Firing | len }} firing, {{ .Alerts.Resolved | len }} over"
)
_TEXT = (
    "{{ range .Alerts.Firing }}*{{ .Labels.severity }}*, within {{ .Labels.respond_within }}: "
    "{{ .Annotations.summary }}\n{{ .Annotations.description }}\n{{ .Annotations.runbook_url }}\n"
    "{{ .Annotations.dashboard }}\n{{ end }}"
    "{{ range .Alerts.Resolved }}over: {{ .Annotations.summary }}\n{{ end }}"
)


def config() -> dict[str, Any]:
    """Return the configuration with a receiver of each sort filled in: on call, chat, tickets, dead man's switch."""
    pagerduty = {
        "routing_key_file": f"{SECRETS}/pagerduty",
        "severity": '{{ if eq .CommonLabels.severity "emergency" }}critical{{ else }}error{{ end }}',
        "description": _TITLE,
        "details": {"alerts": _TEXT},
    }
    slack = {
        "api_url_file": f"{SECRETS}/slack",
        "channel": "#gpu-memory",
        "send_resolved": True,
        "title": _TITLE,
        "text": _TEXT,
    }
    filled: dict[str, dict[str, Any]] = {
        "kvtide-now": {"pagerduty_configs": [pagerduty], "slack_configs": [slack]},
        "kvtide-soon": {"pagerduty_configs": [pagerduty]},
        "kvtide-ticket": {"webhook_configs": [{"url": "http://tickets.example/hook", "send_resolved": True}]},
        "kvtide-watchdog": {"webhook_configs": [{"url": "http://deadman.example/kvtide", "send_resolved": False}]},
    }
    found = alertmanager.config()
    found["receivers"] = [{"name": name, **filled[name]} for name in alertmanager.RECEIVERS]
    return found


def render() -> str:
    """Return it as YAML."""
    text: str = yaml.dump(config(), Dumper=_Plain, sort_keys=False, width=110)
    return text


class _Plain(yaml.SafeDumper):
    """Writes what is there twice twice: people copy parts of it."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write no anchors."""
        return True
