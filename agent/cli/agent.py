"""``kvtide agent``: the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def agent(
    *,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file; default /etc/kvtide/agent.yaml if it exists.")
    ] = None,
    socket: Annotated[
        Path | None, typer.Option(envvar="KVTIDE_SOCKET", help="Unix socket for the engines (link.socket).")
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(envvar="KVTIDE_KEY_FILE", help="Key shared with the engines (link.key_file).")
    ] = None,
    state_directory: Annotated[
        Path | None,
        typer.Option(envvar="KVTIDE_STATE_DIRECTORY", help="Where recordings are kept (recorder.directory)."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="PROFILE|FILE", help="The thresholds to judge by (policy).")
    ] = None,
    node: Annotated[
        str | None, typer.Option(envvar="KVTIDE_NODE", help="This node's name for the coordinator (balancer.node).")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT for metrics and state; port 0 takes a free one (http.listen).")
    ] = None,
) -> None:
    """Watch this node's engines until stopped.

    Example: kvtide agent --socket /tmp/kvtide.sock --listen 127.0.0.1:9477
    """
    import asyncio
    import contextlib
    import os
    import resource

    from agent import heap
    from agent.config import load
    from agent.daemon import Agent

    chosen = {
        "link.socket": socket,
        "link.key_file": key_file,
        "http.listen": listen,
        "recorder.directory": state_directory and state_directory.absolute(),
        "policy": policy,
        "balancer.node": node,
    }
    settings = load(config, {key: str(value) for key, value in chosen.items() if value is not None})

    def announce(url: str) -> None:
        typer.echo(f"kvtide agent: engines connect to {settings.link.socket}; look at {url}")

    async def serve() -> None:
        await Agent(settings).run(announce)

    # The engine comes first: a batch process does not preempt the engine's thread each time that a report wakes us.
    with contextlib.suppress(OSError):  # a sandbox may forbid it
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    # The default of 1,024 descriptors is soon used up by idle scrapers.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:  # a sandbox may forbid to ask
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    heap.settle()
    asyncio.run(serve())
