"""Grafana's provisioning: a data source for Prometheus, and a folder of boards that Grafana reads from disk."""

from __future__ import annotations

import yaml

FOLDER = "kvtide"
BOARDS_AT = "/etc/grafana/kvtide"  # where the boards lie for Grafana
PROMETHEUS = "http://127.0.0.1:9090"
SCRAPED_EACH = "15s"


def datasource() -> str:
    """Return the data source; ``timeInterval`` is what $__rate_interval is made of."""
    return _text(
        {
            "apiVersion": 1,
            "datasources": [
                {
                    "name": "Prometheus",
                    "uid": "kvtide-prometheus",
                    "type": "prometheus",
                    "access": "proxy",
                    "url": PROMETHEUS,
                    "jsonData": {"httpMethod": "POST", "timeInterval": SCRAPED_EACH},
                }
            ],
        }
    )


def dashboards() -> str:
    """Return the provider of boards."""
    return _text(
        {
            "apiVersion": 1,
            "providers": [
                {
                    "name": "kvtide",
                    "folder": FOLDER,
                    "folderUid": FOLDER,
                    "type": "file",
                    "allowUiUpdates": False,
                    "options": {"path": BOARDS_AT},
                }
            ],
        }
    )


def _text(content: dict[str, object]) -> str:
    text: str = yaml.safe_dump(content, sort_keys=False, width=110)
    return text
