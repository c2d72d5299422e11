"""``kvtide record``: a bundle of the last minutes, from a running agent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.as_json import AsJson, say


def record(
    minutes: Annotated[
        float, typer.Option(min=0.1, max=1440.0, help="Minutes back with every state there is; one a minute before.")
    ] = 30.0,
    out: Annotated[
        Path | None, typer.Option(help="The file; default: kvtide-TIME.kvtide here. One that is there is not replaced.")
    ] = None,
    url: Annotated[str, typer.Option(envvar="KVTIDE_URL", help="The agent's address.")] = "http://127.0.0.1:9477",
    *,
    as_json: AsJson = False,
) -> None:
    """Save what this node's agent saw over the last minutes, to be looked at anywhere with: kvtide replay FILE.

    Examples: kvtide record; kvtide record --minutes 10 --out incident.kvtide
    """
    import time

    from agent.bundle.format import SUFFIX
    from agent.cli.client import AgentClient
    from agent.plain import plain
    from agent.units import human_bytes

    path = out or Path(time.strftime(f"kvtide-%Y%m%dT%H%M%SZ{SUFFIX}", time.gmtime()))
    size = AgentClient(url, timeout=60.0).save_recording(minutes, path)
    if as_json:
        say({"file": str(path), "bytes": size})
        return
    typer.echo(f"{plain(str(path))}: {human_bytes(size)}; look at it with: kvtide replay {plain(str(path))}")
