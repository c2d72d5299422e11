"""Prometheus' own configuration, with the rules: as it is usually run, a fast profile, and one with all the metrics."""

from __future__ import annotations

from typing import Any

import yaml

from exporters.catalogue.base import DETAIL_INTERVAL

RULES = ("kvtide-recording.yml", "kvtide-alerts.yml")
JOB = "kvtide"
AGENT = "127.0.0.1:9477"


def config(interval: str, *, detail: bool = False) -> dict[str, Any]:
    """Return a configuration that scrapes and judges each ``interval``; targets are to be filled in.

    ``detail``: what is on /metrics/detail as well, more rarely.
    """
    jobs: list[dict[str, Any]] = [{"job_name": JOB, "static_configs": [{"targets": [AGENT]}]}]
    if detail:
        jobs.append(
            {
                "job_name": f"{JOB}-detail",
                "metrics_path": "/metrics/detail",
                "scrape_interval": DETAIL_INTERVAL,
                "static_configs": [{"targets": [AGENT]}],
                # Boards find it beside the rest. `up` keeps the job's own name: two of one name would be in each
                # other's way.
                "metric_relabel_configs": [{"target_label": "job", "replacement": JOB}],
            }
        )
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [*RULES],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": ["127.0.0.1:9093"]}]}]},
        "scrape_configs": jobs,
    }


def render(interval: str, *, detail: bool = False) -> str:
    """Return it as YAML."""
    text: str = yaml.safe_dump(config(interval, detail=detail), sort_keys=False, width=110)
    return text
