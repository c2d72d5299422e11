"""``kvtide doctor``: what of an installation does not work, and what mends it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.errors import KvtideError

POD = "KUBERNETES_SERVICE_HOST"  # every container of a pod has it


def doctor(
    url: Annotated[str, typer.Option(envvar="KVTIDE_URL", help="The agent's address.")] = "http://127.0.0.1:9477",
    config: Annotated[Path | None, typer.Option(help="The agent's configuration, where it has one of its own.")] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Look there, too, whether this agent is scraped and paged for.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="Of the Prometheus: file with a bearer token.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> int:
    """Look over this node's installation: each thing that does not work, with the command that mends it.

    Changes nothing. Ends with 0 where nothing is bad, with 1 where something is.

    Examples: kvtide doctor; sudo kvtide doctor --prometheus http://prometheus:9090
    """
    import os
    import time

    from agent.cli.client import AgentClient
    from agent.doctor import files, lost, of_state, processes, web
    from agent.doctor.findings import Finding

    found, told = files.configuration(config, os.environ)
    findings = [found]
    known: frozenset[int] | None = None
    state, unheard = None, ""
    try:
        state = AgentClient(url).state()
    except KvtideError as error:
        unheard = str(error)
    if told is not None:
        findings += files.link(told.link.socket, told.link.key_path, state.link.socket if state else "")
    if state is None:
        findings.append(Finding(check="agent", level="bad", text=unheard, mend="kvtide agent"))
    else:
        findings += [
            *of_state.findings(state, time.time(), pod=POD in os.environ),
            *lost.findings(state),
            *web.findings(state),
        ]
        members = [member.pid for engine in state.engines for member in engine.members]
        known = frozenset([*(engine.pid for engine in state.engines), *members])
    findings += processes.findings(processes.running(), known)
    if prometheus is not None:
        from agent.doctor.prometheus import findings as asked

        findings += asked(prometheus, url, token_file=token_file)
    else:
        text = "not looked at: --prometheus URL"
        findings.append(Finding(check="Prometheus", level="note", text=text))
    if as_json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(findings)).decode())
    else:
        from agent.doctor.text import render
        from agent.faces.terminal import for_reports

        for_reports().print(render(findings))
    return int(any(each.level == "bad" for each in findings))
