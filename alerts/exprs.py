"""Pieces of PromQL, by the names of the catalogue: a metric that is renamed there can't be forgotten here."""

from __future__ import annotations

from exporters import catalogue as c
from exporters.catalogue.base import Metric

JOB = 'job="kvtide"'
ENGINE = "on (instance, engine)"


def verdict(kind: str, *tiers: str, without: str = "scope, phase, tier, source") -> str:
    """Return what is 1 while a verdict of ``kind`` is confirmed in one of ``tiers``; by whom it is about.

    ``without``: the labels that do not tell one subject from another.
    """
    chosen = f'tier="{tiers[0]}"' if len(tiers) == 1 else f'tier=~"{"|".join(tiers)}"'
    labels = f'kind="{kind}",phase="confirmed",{chosen}'
    return f"max without ({without}) ({c.VERDICT.name}{{{labels}}})"


def happened(metric: Metric, window: str, labels: str = "") -> str:
    """Return how often a counter that begins with its first event has counted in ``window``; absent where not once.

    Such a series has nothing before its first event, so that ``increase`` misses it. It counts from nothing where its
    agent was scraped a window ago and had not had it for hours; an agent that is new to Prometheus has a past that is
    not known, and a source that failed for a while brings back what it had.
    """
    series = f"{metric.name}{{{labels}}}" if labels else metric.name
    return f"""(round(increase({series}[{window}])) > 0
        or ({series} > 0 unless max_over_time({series}[6h] offset {window}))
        and on (instance) up{{{JOB}}} offset {window} == 1)"""


def enforcing() -> str:
    """Return the nodes on which kvtide acts by itself, or tells load balancers what to do."""
    return f'({c.ACTIONS_MODE.name}{{mode="enforce"}} == 1 or on (instance) {c.BALANCER_ENFORCING.name} == 1)'


def by_process(metric: Metric) -> str:
    """Return ``metric`` with the label ``process`` that verdicts have: an engine's are role/rank there."""
    own = f'{metric.name}{{engine=""}}'
    return f'(label_join({metric.name}{{engine!=""}}, "process", "/", "role", "rank") or {own})'


def gauge(metric: Metric, **labels: str) -> str:
    """Return the series of ``metric`` with these labels."""
    chosen = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric.name}{{{chosen}}}" if chosen else metric.name


def estimate(metric: Metric) -> str:
    """Return a signal's estimate, without the label that tells it from its bounds."""
    return f'max without (bound) ({metric.name}{{bound="estimate"}})'


def percent(ratio: float) -> str:
    """Return a ratio as people write it."""
    return f"{100 * ratio:g} %"


def minutes(seconds: float) -> str:
    """Return a duration as Prometheus writes it."""
    return f"{seconds / 60:g}m" if seconds % 60 == 0 and seconds else f"{seconds:g}s"
