"""Pieces of PromQL, by the names of the catalogue: a metric that is renamed there can't be forgotten here."""

from __future__ import annotations

from exporters import catalogue as c
from exporters.catalogue.base import Metric

JOB = 'job="kvtide"'
ENGINE = "on (instance, engine)"
GPU = "on (instance, gpu)"
HELD = "10m"  # for so long a verdict is held whose subject can't be seen


def verdict(kind: str, *tiers: str, without: str = "scope, phase, tier, source") -> str:
    """Return what is 1 while a verdict of ``kind`` is confirmed in one of ``tiers``; by whom it is about.

    ``without``: the labels that do not tell one subject from another.
    """
    chosen = f'tier="{tiers[0]}"' if len(tiers) == 1 else f'tier=~"{"|".join(tiers)}"'
    labels = f'kind="{kind}",phase="confirmed",{chosen}'
    return f"max without ({without}) ({c.VERDICT.name}{{{labels}}})"


def seen(metric: Metric, kind: str, by: str = ENGINE) -> str:
    """Return ``metric``; while a verdict of ``kind`` is held because its subject can't be seen, what it was last.

    A page on both must not end then, and page again when it is seen.
    """
    held = f'{c.VERDICT_HELD.name}{{kind="{kind}"}}'
    return f"({metric.name} or last_over_time({metric.name}[{HELD}]) and {by} {held})"


def happened(metric: Metric, minutes: int, labels: str = "") -> str:
    """Return how often a counter that begins with its first event has counted in ``minutes``; absent where not once.

    Such a series has nothing before its first event, so that ``increase`` misses it. It counts from nothing where its
    agent was scraped a window ago and had not had it since it started, as far back as six hours: an agent that began
    anew counts anew, one that is new to Prometheus has a past that is not known, and a source that failed for a while
    brings back what it had. It is looked for once a minute: so the window is a minute longer for the agent.
    """
    series, window = f"{metric.name}{{{labels}}}" if labels else metric.name, f"{minutes}m"
    began = f"max by (instance) ({c.AGENT_START.name})"
    return f"""(round(increase({series}[{window}])) > 0
        or ({series} > 0 unless max_over_time(timestamp({series})[6h:1m] offset {window})
            >= on (instance) group_left () {began})
        and on (instance) up{{{JOB}}} offset {minutes + 1}m == 1)"""


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
