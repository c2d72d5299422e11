"""Fleet: which node, which engine, whose; and whether it is one node's fault at all."""

from __future__ import annotations

from agent.policy.types import Policy
from dashboards.board import Board, Row, link
from dashboards.boards import absent, ill
from dashboards.panels import BAD, above, lines, stat
from dashboards.query import Chosen, Query, counted, estimate
from dashboards.tables import Column, table
from dashboards.units import PLAIN, TIMES, Unit, of, share
from exporters import catalogue as c

some = Chosen("engine")
nodes = Chosen()
USED = share("of the KV pools")
TO_NODE = {"Node": ("Open this node", link("kvtide-node", instance="Node"))}
TO_BOTH = {**TO_NODE, "Engine": ("Open this engine", link("kvtide-engine", instance="Node", engine="Engine"))}


def _suffering(series: str) -> str:
    """Return ``series`` of the engines that suffer from their memory."""
    return f"max by (instance, engine) ({series} and on (instance, engine) {some(c.HARM)} == 1)"


def rows(policy: Policy) -> tuple[Row, ...]:
    """Return the board's rows."""
    restarts = above(policy.host.restarts_warn, policy.host.restarts_page)
    health = nodes.recorded("node:kvtide_health:min")
    used = nodes.recorded("node:kvtide_kv_used:ratio")
    held = nodes.recorded("node:kvtide_kv_held:bytes")
    paging = nodes.recorded("node:kvtide_verdicts:count", tier="page")
    now = f"max by (instance) ({nodes(c.BUILD_INFO)})"
    seen = f"max by (instance) (max_over_time({nodes(c.BUILD_INFO)}[$__range]))"
    return (
        Row(
            "Is it ill, since when, how long left, whose",
            (
                ill.health(policy, some, "engine|device|host"),
                ill.pages(nodes),
                ill.standing_for(nodes),
                ill.left(policy, some),
                stat(
                    "Nodes fallen silent",
                    "Nodes whose agent answered in the range that is shown and does not now.",
                    Query(f"count({seen} unless {now}) or 0 * count({seen})", "silent"),
                    unit=PLAIN,
                    steps=((1, BAD),),
                    none=absent.AGENT,
                ),
                stat(
                    "Engines needed / there",
                    "Pools that live requests will need in ten minutes over the pools there are; above 1 add engines. "
                    "A leak is not in it.",
                    Query(nodes.recorded("fleet:kvtide_scale_out:ratio"), "scale-out"),
                    unit=TIMES,
                    steps=above(1),
                    none=absent.RULES,
                ),
            ),
            across=6,
            high=4,
        ),
        Row(
            "Who",
            (
                ill.verdicts(nodes, TO_BOTH),
                table(
                    "Nodes",
                    "Each node with its worst health, the pages that stand there, and how full its KV pools are.",
                    {"instance": "Node"},
                    Column("Agent up for", f"max by (instance) (time() - {nodes(c.AGENT_START)})", ill.SECONDS),
                    Column("Worst health", f"max by (instance) ({health})", of(c.HEALTH_SCORE), ill.score(policy)),
                    Column("Pages", f"sum by (instance) ({paging})", PLAIN, ((1, BAD),)),
                    Column("KV pools held", f"max by (instance) ({used})", USED),
                    Column("KV held", f"max by (instance) ({held})", of(c.KV_HELD_BYTES)),
                    none=absent.AGENT,
                    links=TO_NODE,
                    worst_first="Worst health",
                    ascending=True,
                ),
            ),
            across=1,
            high=8,
        ),
        Row(
            "Is it one node, or all",
            (
                lines(
                    "Worst health, of the 15 worst nodes",
                    "A line that leaves the others is one node; all together are a roll-out, a client or a dependency.",
                    Query(f"bottomk(15, {health})", "{{instance}}"),
                    unit=of(c.HEALTH_SCORE),
                    steps=ill.score(policy),
                    none=absent.RULES,
                    top=100,
                ),
                lines(
                    "Nodes with the same verdict",
                    "Share of all nodes on which a verdict of one kind stands, notes aside; above the line kvtide does "
                    "nothing node by node.",
                    Query(nodes.recorded("fleet:kvtide_verdict_nodes:ratio"), "{{kind}}"),
                    unit=share("of the nodes"),
                    steps=((policy.actions.fleet_share, BAD),),
                    none=absent.VERDICTS,
                    top=1,
                ),
                lines(
                    "KV pools held, over the nodes",
                    "How full the pools of the fullest, the middle and the emptiest node are: a full pool alone is "
                    "no fault.",
                    Query(f"max({used})", "fullest node"),
                    Query(f"quantile(0.5, {used})", "median node"),
                    Query(f"min({used})", "emptiest node"),
                    Query(nodes.recorded("fleet:kvtide_kv_used:ratio"), "all pools together"),
                    unit=USED,
                    none=absent.RULES,
                    top=1,
                ),
                lines(
                    "Verdicts that stand",
                    "Confirmed verdicts on the nodes chosen, by who has to know of them.",
                    Query(f"sum by (tier) ({nodes.recorded('node:kvtide_verdicts:count')})", "{{tier}}"),
                    unit=of(c.VERDICTS),
                    none=absent.RULES,
                    stepped=True,
                ),
            ),
        ),
        Row(
            "Engines",
            (
                lines(
                    "Engines that report, and that do not",
                    "Engines whose own thread reports, and those that are silent or have lost their link.",
                    Query(f"count({some(c.ENGINE_UP)} == 1)", "report"),
                    Query(f"count({some(c.ENGINE_UP)} == 0)", "silent"),
                    Query(f"count({some(c.SCRAPED_UP)} == 1)", "scraped, without hooks"),
                    unit=Unit("short", "engines", 1),
                    none=absent.HOOKS,
                    stepped=True,
                ),
                table(
                    "Engines that suffer",
                    "Engines where in the last minute something waited for memory, was preempted or was refused.",
                    {"instance": "Node", "engine": "Engine"},
                    Column("Held", _suffering(some(c.KV_USE)), of(c.KV_USE)),
                    Column("Full in", _suffering(estimate(some, c.KV_EXHAUSTION)), ill.SECONDS),
                    Column("Restarts, 45 min", _suffering(some(c.ENGINE_RESTARTS)), PLAIN, restarts),
                    Column("Killed, in range", _suffering(counted(some(c.ENGINE_OOM_KILLS))), PLAIN, ((1, BAD),)),
                    none="No engine suffers from its memory",
                    links=TO_BOTH,
                    worst_first="Held",
                ),
            ),
        ),
    )


BOARD = Board(
    "kvtide-fleet",
    "kvtide / Fleet",
    "Which node, which engine, whose; and whether it is one node's fault at all.",
    rows,
)
