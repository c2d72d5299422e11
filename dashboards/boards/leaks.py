"""Leaks: what stays in the pool that should not, whose it was, how it got there, and how old it is."""

from __future__ import annotations

from agent.policy.types import Policy
from dashboards.board import Board, Row, link
from dashboards.boards import absent, ill
from dashboards.panels import BAD, above, lines, spans, stat
from dashboards.query import Chosen, Query, estimate, rate, since
from dashboards.tables import Column, table
from dashboards.units import PLAIN, Unit, of, share
from exporters import catalogue as c

engine = Chosen("engine")
tenant = Chosen("engine", "tenant")
WHOSE = "{{engine}} on {{instance}}"
KINDS = "kv_orphan|kv_over_freed|kv_delayed_free|kv_pinned|spec_residue"
TO_ENGINE = {"Engine": ("Open this engine", link("kvtide-engine", instance="Node", engine="Engine"))}
BLOCKS = of(c.KV_ORPHANED)


def rows(policy: Policy) -> tuple[Row, ...]:
    """Return the board's rows."""
    residue = above(policy.residue.warn_bytes, policy.residue.page_bytes)
    leaked, by = tenant(c.LEAKED), "instance, engine, kind, tenant, ending"
    lease = "instance, engine, peer, direction"
    pin = "instance, engine, holder, pool"
    return (
        Row(
            "Is it ill, since when, whose",
            (
                ill.pages(engine, KINDS),
                ill.standing_for(engine, KINDS),
                stat(
                    "Leaked",
                    "Memory of blocks that no request explains, on one rank of each engine.",
                    Query(f"sum({engine(c.KV_ORPHANED_BYTES)})", "leaked"),
                    unit=of(c.KV_ORPHANED_BYTES),
                    steps=((1, BAD),),
                    none="No pool can be accounted for",
                ),
                stat(
                    "Given back twice",
                    "Blocks with fewer references than holders: another request can be given the same memory. "
                    "Drain and restart that engine.",
                    Query(f"sum({engine(c.KV_OVER_FREED)})", "over-freed"),
                    unit=of(c.KV_OVER_FREED),
                    steps=((1, BAD),),
                    none="No pool can be accounted for",
                ),
                stat(
                    "Kept past the lease",
                    "Blocks kept for a transfer for longer than their lease: the signal was lost.",
                    Query(f"sum({engine(c.DELAYED_EXPIRED)})", "expired"),
                    unit=of(c.DELAYED_EXPIRED),
                    steps=above(1),
                    none="No engine here has a connector",
                ),
                stat(
                    "Most leaked by",
                    "The tenant that held most of the leaked blocks last: where to look first.",
                    Query(f"topk(1, sum by (tenant) ({tenant(c.LEAKED, kind='orphaned')}))", "{{tenant}}"),
                    unit=BLOCKS,
                    steps=((1, BAD),),
                    none="Nothing has leaked",
                    name=True,
                ),
            ),
            across=6,
            high=4,
        ),
        Row(
            "Whose, how, how old",
            (
                table(
                    "By blame",
                    "Leaked blocks by the tenant that held them last and how its request ended, with how long they "
                    "have been there in the range that is shown.",
                    {"engine": "Engine", "instance": "Node", "kind": "Kind", "tenant": "Tenant", "ending": "Ending"},
                    Column("Blocks", f"sum by ({by}) ({leaked}) > 0", BLOCKS),
                    Column("There for", f"max by ({by}) ({since(leaked)})", ill.SECONDS),
                    none="Nothing has leaked, or no pool can be accounted for",
                    links=TO_ENGINE,
                    worst_first="Blocks",
                ),
                ill.verdicts(engine, TO_ENGINE, KINDS),
            ),
            across=1,
            high=7,
        ),
        Row(
            "Orphans",
            (
                lines(
                    "Leaked share of the pool",
                    "Orphaned blocks over the pool: what is left serves fewer requests at a time.",
                    Query(f"{engine(c.KV_ORPHANED)} / {engine(c.KV_CAPACITY)}", WHOSE),
                    unit=share("of the pool"),
                    none="No pool can be accounted for",
                ),
                lines(
                    "Unexplained growth",
                    "Growth that live requests do not account for, now and over hours: leaks on their way.",
                    Query(f"3600 * {estimate(engine, c.KV_UNEXPLAINED_GROWTH)}", f"now, {WHOSE}"),
                    Query(f"3600 * {estimate(engine, c.KV_SLOW_UNEXPLAINED)}", f"over hours, {WHOSE}"),
                    unit=share("of the pool an hour"),
                    none=absent.HOOKS,
                ),
                lines(
                    "By tenant",
                    "Orphaned blocks by the tenant that held them last.",
                    Query(f"sum by (tenant) ({tenant(c.LEAKED, kind='orphaned')})", "{{tenant}}"),
                    unit=BLOCKS,
                    none="Nothing has leaked",
                    stacked=True,
                ),
                lines(
                    "By ending",
                    "Orphaned blocks by how the request ended that held them last: it names the path that forgets.",
                    Query(f"sum by (ending) ({tenant(c.LEAKED, kind='orphaned')})", "{{ending}}"),
                    unit=BLOCKS,
                    none="Nothing has leaked",
                    stacked=True,
                ),
                lines(
                    "Pools beside the main one",
                    "Orphaned and over-freed blocks of other pools, and leaked entries of encoder caches.",
                    Query(engine(c.POOL_ORPHANED), f"orphaned, pool {{{{pool}}}}, {WHOSE}"),
                    Query(engine(c.POOL_OVER_FREED), f"over-freed, pool {{{{pool}}}}, {WHOSE}"),
                    Query(engine(c.ENCODER_ENTRIES_ORPHANED), f"encoder entries, {WHOSE}"),
                    unit=Unit("short", "blocks or entries", 1),
                    none="No engine here has other pools",
                ),
                lines(
                    "Given back twice",
                    "Over-freed blocks; any at all means answers may be wrong.",
                    Query(engine(c.KV_OVER_FREED), WHOSE),
                    unit=of(c.KV_OVER_FREED),
                    steps=((1, BAD),),
                    none="No pool can be accounted for",
                    stepped=True,
                ),
            ),
        ),
        Row(
            "Kept for others",
            (
                table(
                    "Delayed frees, against their lease",
                    "Blocks of finished requests kept until a peer signals; older than the lease means it never will.",
                    {"engine": "Engine", "instance": "Node", "peer": "Peer", "direction": "Direction"},
                    Column("Blocks", f"max by ({lease}) ({engine(c.DELAYED_BLOCKS)})", of(c.DELAYED_BLOCKS)),
                    Column("Requests", f"max by ({lease}) ({engine(c.DELAYED_REQUESTS)})", PLAIN),
                    Column("Oldest", f"max by ({lease}) ({engine(c.DELAYED_OLDEST)})", ill.SECONDS),
                    Column("Lease", f"max by ({lease}) ({engine(c.DELAYED_LEASE)})", ill.SECONDS),
                    Column(
                        "Past it", f"max by ({lease}) ({engine(c.DELAYED_EXPIRED)})", of(c.DELAYED_EXPIRED), above(1)
                    ),
                    none="Nothing is kept for a transfer",
                    links=TO_ENGINE,
                    worst_first="Oldest",
                ),
                lines(
                    "Delayed frees",
                    "Blocks kept for transfers, by peer; a plateau is a lease at work, a slope is a lost signal.",
                    Query(engine(c.DELAYED_BLOCKS), f"{{{{peer}}}} {{{{direction}}}}, {WHOSE}"),
                    unit=of(c.DELAYED_BLOCKS),
                    none="Nothing is kept for a transfer",
                ),
                table(
                    "Pinned by connectors",
                    "References that a connector or an offload job holds; past the limit they count as leaked.",
                    {"engine": "Engine", "instance": "Node", "holder": "Holder", "pool": "Pool"},
                    Column("References", f"max by ({pin}) ({engine(c.PINNED_REFERENCES)})", of(c.PINNED_REFERENCES)),
                    Column("Oldest", f"max by ({pin}) ({engine(c.PINNED_OLDEST)})", ill.SECONDS),
                    Column("Limit", f"max by ({pin}) ({engine(c.PINNED_LIMIT)})", ill.SECONDS),
                    none="Nothing is pinned",
                    links=TO_ENGINE,
                    worst_first="Oldest",
                ),
                lines(
                    "Residue of interrupted requests",
                    "Memory that stays after aborted drafts and cancelled transfers, by node.",
                    Query(f"sum by (instance) ({engine(c.KV_RESIDUE)})", "{{instance}}"),
                    unit=of(c.KV_RESIDUE),
                    steps=residue,
                    none="No engine here drafts or transfers",
                ),
            ),
        ),
        Row(
            "How sure it is",
            (
                spans(
                    "Audit",
                    "Whether each pool can be accounted for exactly; where it can't, no leak is shown and none is "
                    "ruled out.",
                    Query(engine(c.AUDIT_SUPPORTED), WHOSE),
                    none=absent.HOOKS,
                    words={"0": ("can't be known", "orange"), "1": ("exact", "green")},
                ),
                lines(
                    "Audit passes, and drift",
                    "Passes over whole pools, and references that took a path nobody counts.",
                    Query(rate(engine(c.AUDITS)), f"passes, {WHOSE}"),
                    Query(
                        rate(engine(c.LEDGER_DRIFT)),
                        f"drifted references, {WHOSE}",
                    ),
                    unit=Unit("short", "a second", 0.1),
                    none=absent.HOOKS,
                ),
            ),
        ),
    )


BOARD = Board(
    "kvtide-leaks",
    "kvtide / Leaks",
    "What stays in the pool that should not, whose it was, how it got there, and how old it is.",
    rows,
    variables=("tenant",),
)
