"""What the profiles ``latency`` and ``throughput`` change in the default: one table each. The rest is the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Overrides = Mapping[str, Mapping[str, float | int]]

# A service that people wait for: what is felt is told and acted on sooner, and more room is kept free.
LATENCY: Overrides = {
    "use": {"warn_ratio": 0.80, "page_ratio": 0.90, "harm_seconds": 30.0},
    "serving": {"queue_warn": 25, "queue_page": 50, "latency_warn_times": 1.25, "latency_page_times": 2.0},
    "allocator": {"latency_warn_seconds": 0.020, "latency_page_seconds": 0.200},
    "actions": {"breaches": 2, "calm_seconds": 180.0},
}

# Work in bulk: a full pool and a long queue are what is wanted, and an action costs more than a minute's wait.
THROUGHPUT: Overrides = {
    "use": {"warn_ratio": 0.92, "page_ratio": 0.98, "harm_seconds": 120.0},
    "serving": {"queue_warn": 200, "queue_page": 400, "latency_warn_times": 2.5, "latency_page_times": 5.0},
    "allocator": {"latency_warn_seconds": 0.100, "latency_page_seconds": 1.0},
    "actions": {"breaches": 5, "calm_seconds": 60.0},
}

OVERRIDES: Mapping[str, Overrides] = {"latency": LATENCY, "throughput": THROUGHPUT}


def with_overrides(data: Any) -> Any:
    """Return settings of a policy, each key that they leave out as their profile has it."""
    profile = data.get("profile") if isinstance(data, dict) else None
    overrides = OVERRIDES.get(profile) if isinstance(profile, str) else None
    if overrides is None:
        return data
    told = dict(data)
    for section, keys in overrides.items():
        given = told.get(section, {})
        if isinstance(given, dict):  # else it is whole, or wrong, and is told so
            told[section] = {**keys, **given}
    return told
