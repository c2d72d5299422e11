"""Prometheus' own configuration, with the rules: as it is usually run, and a fast profile."""

from __future__ import annotations

from typing import Any

import yaml

RULES = ("kvtide-recording.yml", "kvtide-alerts.yml")
JOB = "kvtide"


def config(interval: str) -> dict[str, Any]:
    """Return a configuration that scrapes and judges each ``interval``; targets are to be filled in."""
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [*RULES],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": ["127.0.0.1:9093"]}]}]},
        "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": ["127.0.0.1:9477"]}]}],
    }


def render(interval: str) -> str:
    """Return it as YAML."""
    text: str = yaml.safe_dump(config(interval), sort_keys=False, width=110)
    return text
