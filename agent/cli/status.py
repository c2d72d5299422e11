"""``kvtide status``: the state as a table, once or live."""

from __future__ import annotations

from typing import Annotated

import typer

from agent.errors import KvtideError


def status(
    url: Annotated[str, typer.Option(envvar="KVTIDE_URL", help="The agent's address.")] = "http://127.0.0.1:9477",
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print the state as JSON, or with --waterfall the waterfalls, or the reason why there are none.",
        ),
    ] = False,
    waterfall: Annotated[
        bool, typer.Option("--waterfall", help="Show where each GPU's memory is, part by part.")
    ] = False,
    watch: Annotated[float | None, typer.Option(min=0.1, help="Redraw every so many seconds until Ctrl-C.")] = None,
) -> None:
    """Show the engines and GPUs of this node, where the memory is and what is wrong.

    Examples: kvtide status; kvtide status --watch 1; kvtide status --waterfall; kvtide status --json | jq .engines
    """
    from agent.cli.client import AgentClient

    client = AgentClient(url)
    if as_json and not waterfall:
        typer.echo(client.state_text())
        return

    from agent.faces import waterfall as falls

    if as_json:
        import msgspec

        state = client.state()
        reason = "" if state.waterfalls else str(falls.render(state))  # without any that is a sentence
        answer = msgspec.json.encode({"waterfalls": state.waterfalls, "reason": reason})
        typer.echo(msgspec.json.format(answer, indent=2).decode())
        return

    from agent.faces import status as whole
    from agent.faces.terminal import Terminal

    render = falls.render if waterfall else whole.render
    console = Terminal()
    if watch is None:
        console.print(render(client.state()))
        return

    import time

    from rich.live import Live
    from rich.text import Text

    with Live(render(client.state()), console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            time.sleep(watch)
            try:
                live.update(render(client.state()), refresh=True)
            except KvtideError as error:
                live.update(Text(str(error), style="bold"), refresh=True)
