"""The first row of every board: is it ill, since when, how long is left, whose is it."""

from __future__ import annotations

from agent.policy.types import Policy
from dashboards.boards import absent
from dashboards.panels import BAD, Panel, Steps, below, stat
from dashboards.query import Chosen, Query, estimate, since, who
from dashboards.tables import Column, table
from dashboards.units import PLAIN, of
from exporters import catalogue as c

SUBJECT = "instance, engine, tenant, gpu, process, kind"
SECONDS = of(c.STALLED_SECONDS)


def score(policy: Policy) -> Steps:
    """Return the tiers of health."""
    return below(policy.score.warn_below, policy.score.severe_below, policy.score.emergency_below)


def health(policy: Policy, select: Chosen, scopes: str) -> Panel:
    """Return the worst health, and whose it is."""
    worst = select(c.HEALTH_SCORE, form="kvtide", scope=f"~{scopes}")
    return stat(
        "Worst health",
        "The lowest score of those chosen, of 100; below the yellow line someone should look, red means now.",
        Query(who(f"bottomk(1, {worst})", "scope", "gpu", "engine"), "{{who}} on {{instance}}"),
        unit=of(c.HEALTH_SCORE),
        steps=score(policy),
        none="No score: nothing is judged",
        name=True,
    )


def pages(select: Chosen, kinds: str = ".+") -> Panel:
    """Return how many verdicts page."""
    found = select(c.VERDICT, phase="confirmed", tier="page", kind=f"~{kinds}")
    counted = select(c.VERDICTS, phase="confirmed", tier="page")
    return stat(
        "Pages",
        "Confirmed verdicts that page, each subject once; the table below or on the fleet board names them.",
        # Where agents answer and none pages it is 0; where none answers it is absent.
        Query(f"count(max by ({SUBJECT}) ({found})) or 0 * sum({counted})", "pages"),
        unit=PLAIN,
        steps=((1, BAD),),
        none=absent.AGENT,
    )


def standing_for(select: Chosen, kinds: str = ".+") -> Panel:
    """Return since when the oldest of what pages or warns has stood."""
    found = select(c.VERDICT, phase="confirmed", tier="~warn|page", kind=f"~{kinds}")
    return stat(
        "Standing for",
        "How long the oldest verdict that warns or pages has stood, as far back as the range that is shown.",
        Query(f"max({since(found)})", "longest"),
        unit=SECONDS,
        none=absent.VERDICTS,
    )


def left(policy: Policy, select: Chosen) -> Panel:
    """Return how long the first pool to fill has left, and whose it is."""
    return stat(
        "Time left",
        "Until the first KV pool is full if it goes on like this; only shown where a forecast can be made.",
        Query(f"bottomk(1, {estimate(select, c.KV_EXHAUSTION)})", "{{engine}} on {{instance}}"),
        unit=SECONDS,
        steps=below(policy.growth.forecast_seconds * 2, policy.growth.forecast_seconds),
        none=absent.FORECAST,
        name=True,
    )


def verdicts(select: Chosen, links: dict[str, tuple[str, str]], kinds: str = ".+") -> Panel:
    """Return what stands: what, whose, and since when."""
    found = select(c.VERDICT, phase="confirmed", tier="~warn|page", kind=f"~{kinds}")
    return table(
        "What is wrong, and whose it is",
        "Each confirmed verdict that warns or pages, with how long it has stood in the range that is shown.",
        {
            "tier": "Tier",
            "kind": "What",
            "instance": "Node",
            "engine": "Engine",
            "tenant": "Tenant",
            "gpu": "GPU",
            "process": "Process",
        },
        Column("Standing for", f"max by (tier, {SUBJECT}) ({since(found)})", SECONDS),
        none=absent.VERDICTS,
        links=links,
        worst_first="Standing for",
    )
