"""Actions: what kvtide has done or would do, what it refused and why, and what it holds now."""

from __future__ import annotations

from agent.policy.types import Policy
from dashboards.board import Board, Row, link
from dashboards.boards import absent
from dashboards.panels import BAD, WARNED, below, lines, spans, stat
from dashboards.query import Chosen, Query, counted
from dashboards.tables import Column, table
from dashboards.units import PLAIN, Unit, of, share
from exporters import catalogue as c

node = Chosen()
engine = Chosen("engine")
WHOSE = "{{engine}} on {{instance}}"


def rows(policy: Policy) -> tuple[Row, ...]:
    """Return the board's rows."""
    done, refused = counted(node(c.ACTIONS)), counted(node(c.ACTION_REFUSALS))
    bad = counted(node(c.ACTIONS, result="~failed|lost|expired"))
    any_node = f"count({node(c.BREAKER_OPEN)})"
    return (
        Row(
            "May it act, does it, is it stopped",
            (
                stat(
                    "Nodes by mode",
                    "What kvtide may do on each node: watch only, plan only, or act.",
                    Query(f"count by (mode) ({node(c.ACTIONS_MODE)} == 1)", "{{mode}}"),
                    unit=PLAIN,
                    none=absent.AGENT,
                    name=True,
                ),
                stat(
                    "Breakers open",
                    "Nodes on which actions failed or did not help, so that nothing more is done until a person "
                    "closes the breaker.",
                    Query(f"count({node(c.BREAKER_OPEN)} == 1) or 0 * {any_node}", "open"),
                    unit=PLAIN,
                    steps=((1, BAD),),
                    none=absent.AGENT,
                ),
                stat(
                    "Nodes blocked",
                    "Nodes that may act and can't: an off switch is on, or the journal can't be written.",
                    Query(f"sum({node(c.ACTIONS_BLOCKED)})", "blocked"),
                    unit=PLAIN,
                    steps=((1, WARNED),),
                    none="No node may act",
                ),
                stat(
                    "Actions left this hour",
                    "The node that has least left of its budget.",
                    Query(f"bottomk(1, {node(c.ACTIONS_BUDGET)})", "{{instance}}"),
                    unit=PLAIN,
                    steps=below(2, 1),
                    none="No node may act",
                    name=True,
                ),
                stat(
                    "Ended badly, in the range",
                    "Actions that failed, were lost or ran out.",
                    Query(f"sum({bad}) or 0 * {any_node}", "failed, lost, expired"),
                    unit=PLAIN,
                    steps=((1, BAD),),
                    none=absent.AGENT,
                ),
                stat(
                    "Held now",
                    "Levers that are held on engines at this moment.",
                    Query(f"sum({engine(c.ACTION_IN_FORCE)}) or 0 * {any_node}", "held"),
                    unit=PLAIN,
                    none=absent.AGENT,
                ),
            ),
            across=6,
            high=4,
        ),
        Row(
            "What was done, what was not",
            (
                lines(
                    "Actions so far, by outcome",
                    "Since each agent started, by how they ended; would is the end of a dry run.",
                    Query(f"sum by (result) ({node(c.ACTIONS)})", "{{result}}"),
                    unit=of(c.ACTIONS),
                    none=absent.ACTIONS,
                    stepped=True,
                ),
                table(
                    "Actions in the range",
                    "Which lever was pulled where, and how it ended.",
                    {"instance": "Node", "lever": "Lever", "result": "Outcome"},
                    Column("Actions", f"sum by (instance, lever, result) ({done}) > 0", PLAIN),
                    none=absent.ACTIONS,
                    worst_first="Actions",
                ),
                lines(
                    "Refusals so far, by code",
                    "Plans that were not run, by why; a reason that stays the same counts once.",
                    Query(f"sum by (reason) ({node(c.ACTION_REFUSALS)})", "{{reason}}"),
                    unit=of(c.ACTION_REFUSALS),
                    none="Nothing was refused",
                    stepped=True,
                ),
                table(
                    "Refusals in the range",
                    "Which lever was not pulled where, and why.",
                    {"instance": "Node", "lever": "Lever", "reason": "Why"},
                    Column("Refusals", f"sum by (instance, lever, reason) ({refused}) > 0", PLAIN),
                    none="Nothing was refused",
                    worst_first="Refusals",
                ),
            ),
        ),
        Row(
            "What is in force",
            (
                spans(
                    "Levers held",
                    "Which lever is held on which engine, and from when to when.",
                    Query(engine(c.ACTION_IN_FORCE), f"{{{{lever}}}}, {WHOSE}"),
                    none="No lever is held",
                    words={"1": ("held", "blue")},
                ),
                spans(
                    "Breaker",
                    "While it is open nothing is done; a person closes it: kvtide actions close-breaker.",
                    Query(node(c.BREAKER_OPEN), "{{instance}}"),
                    none=absent.AGENT,
                    words={"0": ("closed", "green"), "1": ("open", "red")},
                ),
                lines(
                    "Weight at the load balancer",
                    "Part of its usual share of new requests that each engine is to get; 0 is isolated.",
                    Query(engine(c.BALANCER_WEIGHT), WHOSE),
                    unit=share("of its usual share"),
                    steps=(),
                    none="No agent tells weights",
                    top=1,
                    stepped=True,
                ),
                lines(
                    "Engines let go, of the fleet",
                    "Engines below half their weight by the coordinator's count, and the engines it counts.",
                    Query(f"max({node(c.BALANCER_EJECTED)})", "let go"),
                    Query(f"max({node(c.BALANCER_FLEET)})", "of"),
                    unit=Unit("short", "engines", 1),
                    none="No engine needs the coordinator's grant",
                    stepped=True,
                ),
            ),
        ),
        Row(
            "Why it stopped",
            (
                table(
                    "Isolated engines",
                    "Engines that get no new requests, and whether that is told to load balancers or only worked out.",
                    {"engine": "Engine", "instance": "Node"},
                    Column(
                        "Weight",
                        f"max by (engine, instance) ({engine(c.BALANCER_WEIGHT)} and on "
                        f"(instance, engine) {engine(c.BALANCER_ISOLATED)} == 1)",
                        share("of its usual share"),
                    ),
                    Column(
                        "Told",
                        f"max by (engine, instance) ({engine(c.BALANCER_ISOLATED)} * on (instance) "
                        f"group_left () {node(c.BALANCER_ENFORCING)} and on (instance, engine) "
                        f"{engine(c.BALANCER_ISOLATED)} == 1)",
                        of(c.BALANCER_ENFORCING),
                    ),
                    none="No engine is isolated",
                    links={"Engine": ("Open this engine", link("kvtide-engine", instance="Node", engine="Engine"))},
                    worst_first="Engine",
                ),
                lines(
                    "Grants refused so far",
                    "Ejections that the coordinator did not grant, and calls of it that failed.",
                    Query(node(c.BALANCER_REFUSED), "not granted, {{instance}}"),
                    Query(node(c.BALANCER_FAILED), "failed calls, {{instance}}"),
                    unit=of(c.BALANCER_REFUSED),
                    none="No coordinator is asked",
                    stepped=True,
                ),
            ),
        ),
    )


BOARD = Board(
    "kvtide-actions",
    "kvtide / Actions",
    "What kvtide has done or would do, what it refused and why, and what it holds now.",
    rows,
)
