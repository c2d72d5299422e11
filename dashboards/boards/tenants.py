"""Tenants: who holds how much against what they may, how long their sessions live, and who crowds whom out."""

from __future__ import annotations

from agent.policy.types import Policy
from dashboards.board import Board, Row, link
from dashboards.boards import absent, ill
from dashboards.panels import BAD, above, bars, cells, heatmap, lines, stat
from dashboards.query import Chosen, Query, rate, usual
from dashboards.tables import Column, table
from dashboards.units import PLAIN, SHARE_PER_MINUTE, TIMES, each_second, of, share
from exporters import catalogue as c

tenant = Chosen("engine", "tenant")
engine = Chosen("engine")
WHOSE = "{{tenant}} on {{engine}}, {{instance}}"
KINDS = "tenant_surge|eviction_storm|workload_shift"
MOST = 10  # tenants that a panel shows: those that have most
BY = "tenant, instance, engine"


def _by(series: str) -> str:
    return f"sum by ({BY}) ({series})"


def rows(policy: Policy) -> tuple[Row, ...]:
    """Return the board's rows."""
    quota = ((policy.tenants.quota_warn_ratio, "orange"), (1.0, BAD))
    session = above(policy.tenants.session_warn_seconds, policy.tenants.session_page_seconds)
    used = tenant(c.TENANT_QUOTA_USE)
    tokens = f"sum by (tenant, kind) ({rate(tenant(c.TENANT_TOKENS))})"
    held_bytes = f"{tenant(c.TENANT_HELD)} * on (instance, engine) group_left () {engine(c.KV_BLOCK_BYTES)}"
    return (
        Row(
            "Is it ill, since when, whose",
            (
                ill.pages(tenant, KINDS),
                ill.standing_for(tenant, KINDS),
                stat(
                    "Nearest its quota",
                    "The tenant that uses most of its quota; at 100 % its new requests are refused where that is on.",
                    Query(f"topk(1, {used})", "{{tenant}}"),
                    unit=share("of its quota"),
                    steps=quota,
                    none="No tenant has a quota",
                    name=True,
                ),
                stat(
                    "Largest share",
                    "The tenant that holds most of a pool.",
                    Query(f"topk(1, {tenant(c.TENANT_SHARE)})", "{{tenant}}"),
                    unit=share("of the pool"),
                    steps=above(policy.tenants.surge_share_ratio),
                    none=absent.TENANTS,
                    name=True,
                ),
                stat(
                    "Most against its usual",
                    "The tenant whose share has grown most against its own mean of a day.",
                    Query(f"topk(1, {usual(tenant(c.TENANT_SHARE))})", "{{tenant}}"),
                    unit=TIMES,
                    steps=above(policy.tenants.surge_times),
                    none="Nothing was held in the last day",
                    name=True,
                ),
                stat(
                    "Longest sessions",
                    "The tenant whose sessions live longest, by their median: each holds memory between its turns.",
                    Query(f"topk(1, {tenant(c.TENANT_SESSION)})", "{{tenant}}"),
                    unit=of(c.TENANT_SESSION),
                    steps=session,
                    none="No session has ended",
                    name=True,
                ),
            ),
            across=6,
            high=4,
        ),
        Row(
            "Use against quota",
            (
                bars(
                    "Quota used",
                    "What each tenant holds of what it may; one without a quota is not here.",
                    Query(used, WHOSE),
                    unit=share("of its quota"),
                    steps=quota,
                    none="No tenant has a quota",
                    top=1.2,
                ),
                table(
                    "Tenants",
                    "What each tenant holds and does now, on each engine.",
                    {"tenant": "Tenant", "engine": "Engine", "instance": "Node"},
                    Column("Blocks held", _by(tenant(c.TENANT_HELD)), of(c.TENANT_HELD)),
                    Column("Quota", _by(tenant(c.TENANT_QUOTA)), of(c.TENANT_QUOTA)),
                    Column("Of quota", _by(used), of(c.TENANT_QUOTA_USE), quota),
                    Column("Running", _by(tenant(c.TENANT_RUNNING)), PLAIN),
                    Column("Waiting", _by(tenant(c.TENANT_WAITING)), PLAIN),
                    Column("Sessions", _by(tenant(c.TENANT_SESSIONS)), PLAIN),
                    Column("Leaked", _by(tenant(c.LEAKED)), of(c.LEAKED), ((1, BAD),)),
                    none=absent.TENANTS,
                    links={"Engine": ("Open this engine", link("kvtide-engine", instance="Node", engine="Engine"))},
                    worst_first="Blocks held",
                ),
            ),
            across=1,
            high=8,
        ),
        Row(
            "Memory",
            (
                cells(
                    "Memory heat map",
                    "KV memory of each tenant over time: a row that turns red is who fills the pools.",
                    Query(f"topk({2 * MOST}, sum by (tenant) ({held_bytes}))", "{{tenant}}"),
                    unit=of(c.KV_HELD_BYTES),
                    none=absent.TENANTS,
                ),
                lines(
                    "Share of the pool",
                    "Each tenant's share, shared blocks divided among those who use them.",
                    Query(f"topk({MOST}, {tenant(c.TENANT_SHARE)})", WHOSE),
                    unit=share("of the pool"),
                    none=absent.TENANTS,
                    top=1,
                    many=True,
                ),
                lines(
                    "Growth of the share",
                    "How fast each tenant's share grows.",
                    Query(f"topk({MOST}, 60 * deriv({tenant(c.TENANT_SHARE)}[5m]))", WHOSE),
                    unit=SHARE_PER_MINUTE,
                    none=absent.TENANTS,
                    many=True,
                ),
                lines(
                    "Against what is usual",
                    "Each tenant's share of the pool, as times of its own mean of a day.",
                    Query(f"topk({MOST}, {usual(tenant(c.TENANT_SHARE))})", WHOSE),
                    unit=TIMES,
                    steps=above(policy.tenants.surge_times),
                    none="Nothing was held in the last day",
                    many=True,
                ),
            ),
        ),
        Row(
            "Sessions",
            (
                heatmap(
                    "How long sessions live",
                    "Sessions that ended, by how long they had lived: cells that wander up are sessions that stay.",
                    f"sum by (le) (increase({engine(c.SESSION_LIFETIME, '_bucket')}[$__rate_interval]))",
                    of(c.SESSION_LIFETIME),
                    none="No session has ended",
                ),
                lines(
                    "Median life of sessions",
                    "By tenant; the lines are the policy's, for tenants that are not known to have long sessions.",
                    Query(f"topk({MOST}, {tenant(c.TENANT_SESSION)})", WHOSE),
                    unit=of(c.TENANT_SESSION),
                    steps=session,
                    none="No session has ended",
                    many=True,
                ),
                heatmap(
                    "Idle between turns",
                    "Time between two turns of one session: how long cached blocks must last to be of use again.",
                    f"sum by (le) (increase({engine(c.SESSION_IDLE, '_bucket')}[$__rate_interval]))",
                    of(c.SESSION_IDLE),
                    none="No session has had a second turn",
                ),
                lines(
                    "Sessions alive",
                    "Sessions that are alive, or idle for not too long.",
                    Query(f"topk({MOST}, {tenant(c.TENANT_SESSIONS)})", WHOSE),
                    unit=of(c.TENANT_SESSIONS),
                    none=absent.TENANTS,
                    many=True,
                ),
            ),
        ),
        Row(
            "Load",
            (
                lines(
                    "Requests",
                    "New requests of each tenant.",
                    Query(f"topk({MOST}, sum by (tenant) ({rate(tenant(c.TENANT_REQUESTS))}))", "{{tenant}}"),
                    unit=each_second(c.TENANT_REQUESTS),
                    none=absent.TENANTS,
                    many=True,
                ),
                lines(
                    "Tokens",
                    "Tokens of each tenant, asked for and generated.",
                    Query(f"topk({MOST}, {tokens})", "{{tenant}}, {{kind}}"),
                    unit=each_second(c.TENANT_TOKENS),
                    none=absent.TENANTS,
                    many=True,
                ),
                lines(
                    "Preempted",
                    "Requests of each tenant that were put back for memory: who pays for it.",
                    Query(f"topk({MOST}, sum by (tenant) ({rate(tenant(c.TENANT_PREEMPTED))}))", "{{tenant}}"),
                    unit=each_second(c.TENANT_PREEMPTED),
                    none=absent.TENANTS,
                    many=True,
                ),
                lines(
                    "How requests end",
                    "Ended requests by how: aborts and errors leave more behind than requests that finish.",
                    Query(f"sum by (ending) ({rate(tenant(c.TENANT_ENDED))})", "{{ending}}"),
                    unit=each_second(c.TENANT_ENDED),
                    none="No request has ended",
                ),
            ),
        ),
    )


BOARD = Board(
    "kvtide-tenants",
    "kvtide / Tenants",
    "Who holds how much against what they may, how long their sessions live, and who crowds whom out.",
    rows,
    variables=("tenant",),
)
