"""``kvtide actions fleet``: what a person orders for all nodes, and the fleet's verdicts, in files that agents read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Switch all nodes off and on, veto, undo and close breakers there: writes the file that the nodes' policies "
    "name as actions.off_switch_file, or what the agents read from their coordinator.",
    no_args_is_help=True,
)

File = Annotated[
    Path | None, typer.Option(envvar="KVTIDE_FLEET_FILE", help="That file; - prints it (the file is not read then).")
]
Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="An agent's YAML file instead: the place is that of its balancer.coordinator."),
]
Why = Annotated[str, typer.Option(help="For who looks.")]
Lever = Annotated[str, typer.Argument(help="Which lever; * for any.")]
Engine = Annotated[str, typer.Argument(help="On which engine; * for any.")]


@app.command()
def off(file: File = None, config: Config = None, *, why: Why = "") -> None:
    """Switch all actions off on all nodes, and take back what is in force.

    Example: kvtide actions fleet off --config /etc/kvtide/agent.yaml --why INC-1234
    """
    from agent.cli.fleet_file import change, who

    change(
        file, config, lambda orders, _now: {"off": f"switched off by {who()}{why and f': {why}'}"}, "off, on all nodes"
    )


@app.command()
def on(file: File = None, config: Config = None) -> None:
    """Switch actions on again on all nodes. A node that is off by itself stays so.

    Example: kvtide actions fleet on
    """
    from agent.cli.fleet_file import change

    change(file, config, lambda _orders, _now: {"off": ""}, "on, on all nodes")


@app.command()
def veto(
    lever: Lever = "*",
    engine: Engine = "*",
    file: File = None,
    config: Config = None,
    *,
    minutes: Annotated[float, typer.Option(min=0.1)] = 60.0,
) -> None:
    """Keep the agents from pulling a lever; what they have in force there is taken back.

    Example: kvtide actions fleet veto preempt --minutes 30
    """
    from agent.actions.fleet import with_veto
    from agent.actions.vetoes import Veto
    from agent.cli.fleet_file import change, known, who

    known(lever)
    change(
        file,
        config,
        lambda orders, now: {
            "vetoes": with_veto(
                orders, Veto(lever=lever, engine=engine, until=now + 60.0 * minutes, by=f"{who()}, for the fleet"), now
            ).vetoes
        },
        f"vetoed for {minutes:g} min: {lever} on {engine}, on all nodes",
    )


@app.command()
def undo(lever: Lever = "*", engine: Engine = "*", file: File = None, config: Config = None) -> None:
    """Take back what is in force now, persons' orders, too; what is begun later is not meant.

    Example: kvtide actions fleet undo reclaim_orphans
    """
    from agent.actions.fleet import FleetUndo
    from agent.cli.fleet_file import change, known, who

    known(lever)
    change(
        file,
        config,
        lambda _orders, now: {"undo": FleetUndo(before=now, by=who(), lever=lever, engine=engine)},
        f"undone: {lever} on {engine}, on all nodes",
    )


@app.command("close-breaker")
def close_breaker(file: File = None, config: Config = None) -> None:
    """Close the breakers that are open now, with new budgets; one that opens later stays open.

    Example: kvtide actions fleet close-breaker
    """
    from agent.cli.fleet_file import change, who

    change(file, config, lambda _orders, now: {"closed_at": now, "closed_by": who()}, "closed, on all nodes")


@app.command()
def shares(
    prometheus: Annotated[str, typer.Option("--from", help="A Prometheus with kvtide's recording rules.")],
    file: Annotated[Path, typer.Option(help="The file that the policies name as actions.fleet_file.")],
    *,
    every: Annotated[float | None, typer.Option(min=1.0, help="Again after so many seconds, for ever.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the bearer token for it.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates that it is checked by.")] = None,
) -> None:
    """Write on which share of nodes each verdict stands: above actions.fleet_share agents do nothing about it.

    Example: kvtide actions fleet shares --from http://prometheus:9090 --file /run/kvtide/fleet --every 15
    """
    from agent.cli.fleet_shares import keep_writing, write

    if every is None:
        write(prometheus, file, token_file=token_file, ca_file=ca_file)
    else:
        keep_writing(prometheus, file, every, token_file=token_file, ca_file=ca_file)
