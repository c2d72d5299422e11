"""PromQL for boards, by the names of the catalogue and of the recording rules, held to what the variables chose."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.policy.types import DEFAULT
from alerts import recording
from alerts.rule import Recording
from exporters import catalogue as c
from exporters.catalogue import Metric

RECORDED = frozenset(
    rule.record
    for group in (*recording.groups(DEFAULT), *recording.names())
    for rule in group.rules
    if isinstance(rule, Recording)
)
# What each level of recording rules keeps of the labels that variables choose by.
_KEPT = {"engine": ("instance", "engine"), "tenant": ("tenant",), "node": ("instance",), "fleet": ()}
_EVERYWHERE = ("job", "instance")
_DETAIL = frozenset(metric.name for metric in c.CATALOGUE if metric.detail)
_SUFFIX = re.compile(r"_(bucket|count|sum)\b")


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and what its series are called: Grafana's legend format."""

    expr: str
    legend: str


class Chosen:
    """Series of what the variables chose: of a job and a node always, of ``more`` where a metric has that label."""

    def __init__(self, *more: str) -> None:
        self._more = more

    def __call__(self, metric: Metric, suffix: str = "", **labels: str) -> str:
        """Return the selector of ``metric``; a label's value that begins with ~ or ! is matched as PromQL does."""
        by = [*_EVERYWHERE, *(label for label in self._more if label in metric.labels and label not in labels)]
        return _selector(metric.name + suffix, by, labels)

    def recorded(self, rule: str, **labels: str) -> str:
        """Return the selector of a recording rule's series. Raises ValueError where there is no such rule."""
        if rule not in RECORDED:
            raise ValueError(f"no recording rule is called {rule}")
        kept = _KEPT[rule.partition(":")[0]]
        return _selector(rule, [label for label in kept if label == "instance" or label in self._more], labels)


def _selector(name: str, by: list[str], labels: dict[str, str]) -> str:
    matchers = [f'{label}=~"${label}"' for label in by]
    for label, value in labels.items():
        operator = {"~": "=~", "!": "!="}.get(value[:1], "=")
        matchers.append(f'{label}{operator}"{value.lstrip("~!")}"')
    return f"{name}{{{','.join(matchers)}}}" if matchers else name


def of_detail(expr: str) -> bool:
    """Whether ``expr`` has a metric of the agent's second page, which not everybody scrapes."""
    names = {*re.findall(r"kvtide_\w+", expr)}
    return not _DETAIL.isdisjoint(names | {_SUFFIX.sub("", name) for name in names})


def usual(series: str) -> str:
    """Return a gauge as times of its mean of the last day."""
    return f"{series} / (avg_over_time({series}[1d:5m]) > 0)"


def who(expr: str, *labels: str) -> str:
    """Return ``expr`` with a label ``who`` of these labels that it has: a legend shows the name of what is lacking."""
    joined = ", ".join(f'"{label}"' for label in labels)
    return f'label_join({expr}, "who", " ", {joined})'


def rate(series: str) -> str:
    """Return a counter's rate, over a window that Grafana fits to the scrapes and to the zoom."""
    return f"rate({series}[$__rate_interval])"


def counted(series: str) -> str:
    """Return how much a counter counted in the range that is shown.

    One that began in that range has nothing before its first event, so that ``increase`` misses it: all it has counts.
    """
    return f"(({series} unless last_over_time({series}[1h] offset $__range)) or round(increase({series}[$__range])))"


def estimate(select: Chosen, metric: Metric, bound: str = "estimate") -> str:
    """Return a signal's estimate or one end of its interval, without the label that tells them apart."""
    return f"max without (bound) ({select(metric, bound=bound)})"


def quantile(share: float, buckets: str, by: str) -> str:
    """Return a quantile of a histogram; absent, not NaN, where nothing was counted."""
    return f"histogram_quantile({share:g}, sum by (le, {by}) ({rate(buckets)})) >= 0"


def standing(select: Chosen, *tiers: str) -> str:
    """Return confirmed verdicts of these tiers; which source they were read from is nobody's question here."""
    return select(c.VERDICT, phase="confirmed", tier="~" + "|".join(tiers))


def since(series: str) -> str:
    """Return for how long what is there now has been there, as far back as the range that is shown."""
    return f"time() - (min_over_time(timestamp({series})[$__range:$__interval]) and {series})"
