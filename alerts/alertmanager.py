"""Who hears of an alert: one notification for a node however many conditions hold; worse ones mute milder ones.

``group_wait`` is short because a person waits for the first word, and ``group_interval`` long because the fiftieth
condition of one incident is no news.
"""

from __future__ import annotations

from typing import Any

import yaml

# What nothing may mute: each is a fact of its own that somebody must act on.
NEVER_MUTED = ("oom", "oom_kill", "gpu_lost", "kv_over_freed", "breaker_open", "fleet_guard")
SAME_PLACE = ["instance", "engine", "gpu"]

RECEIVERS = ("kvtide-now", "kvtide-soon", "kvtide-ticket", "kvtide-watchdog")


def config() -> dict[str, Any]:
    """Return the configuration of Alertmanager, with receivers that are to be filled in."""
    unmuted = f'condition!~"{"|".join(NEVER_MUTED)}"'
    return {
        "route": {
            "receiver": "kvtide-ticket",
            "group_by": ["instance"],
            "group_wait": "5s",
            "group_interval": "5m",
            "repeat_interval": "4h",
            "routes": [
                {
                    "matchers": ['condition="watchdog"'],
                    "receiver": "kvtide-watchdog",
                    "group_wait": "0s",
                    "group_interval": "1m",
                    "repeat_interval": "5m",
                },
                {"matchers": ['severity="emergency"'], "receiver": "kvtide-now", "repeat_interval": "30m"},
                {"matchers": ['severity="severe"'], "receiver": "kvtide-soon", "repeat_interval": "1h"},
            ],
        },
        "inhibit_rules": [
            # The worse tier of a condition mutes its milder ones.
            {
                "source_matchers": ['severity="emergency"'],
                "target_matchers": ['severity=~"severe|warning"', unmuted],
                "equal": ["condition", *SAME_PLACE],
            },
            {
                "source_matchers": ['severity="severe"'],
                "target_matchers": ['severity="warning"', unmuted],
                "equal": ["condition", *SAME_PLACE],
            },
            # An engine that is taken out of the load balancer on purpose is under no pressure worth a word.
            {
                "source_matchers": ['condition="engine_isolated"'],
                "target_matchers": ['condition=~"kv_pressure|kv_exhaustion|preemption_thrash|allocation_latency"'],
                "equal": ["instance", "engine"],
            },
            # What a dead engine leaked is no more.
            {
                "source_matchers": ['condition="engine_missing"'],
                "target_matchers": ['condition=~"kv_orphan|kv_delayed_free|kv_pinned|spec_residue|kv_pressure|health"'],
                "equal": ["instance", "engine"],
            },
        ],
        "receivers": [{"name": name} for name in RECEIVERS],
    }


def render() -> str:
    """Return it as YAML."""
    text: str = yaml.safe_dump(config(), sort_keys=False, width=110)
    return text
