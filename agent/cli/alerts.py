"""``kvtide alerts``: rules and routing are written, checked, and compared with what a Prometheus runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.as_json import AsJson, say

app = typer.Typer(
    help="Write the rules for Prometheus and the routing for Alertmanager, or check what is there.",
    no_args_is_help=True,
)

Policy = Annotated[str, typer.Option(metavar="PROFILE|FILE", help="Whose thresholds: a profile or a policy file.")]
Runbooks = Annotated[str, typer.Option(help="What comes before a runbook's name in an alert's link.")]
Grafana = Annotated[str, typer.Option(help="Address of the Grafana that has the boards.")]
_RUNBOOKS = "docs/runbooks/"


@app.command()
def build(
    out: Annotated[Path, typer.Option(help="The folder to write to.")],
    policy: Policy = "default",
    runbooks: Runbooks = _RUNBOOKS,
    grafana: Grafana = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Write the files for a policy. A file that is as it would be written is left alone.

    Example: kvtide alerts build --out /etc/prometheus/kvtide --grafana https://grafana.example
    """
    from agent.cli.alert_files import built, write
    from agent.plain import plain
    from agent.retained import count_of

    written = write(out, built(policy, runbooks, grafana))
    if as_json:
        say({"written": [str(out / name) for name in written]})
        return
    for name in written:
        typer.echo(plain(str(out / name)))
    typer.echo(f"{count_of(len(written), 'file')} written")


@app.command()
def check(
    folder: Annotated[Path | None, typer.Argument(help="A folder that was written by build.")] = None,
    policy: Policy = "default",
    runbooks: Runbooks = _RUNBOOKS,
    grafana: Grafana = "",
    *,
    url: Annotated[str | None, typer.Option(help="A Prometheus: are our rules what it has loaded?")] = None,
    token_file: Annotated[Path | None, typer.Option(help="Of that Prometheus: file with a bearer token.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a folder, or a running Prometheus, has the rules for this policy. Exit code 1: it has not.

    promtool and amtool read the files too where they are installed.

    Examples: kvtide alerts check /etc/prometheus/kvtide; kvtide alerts check --url http://127.0.0.1:9090
    """
    from agent.cli.alert_files import built, read_by_programs, stale
    from agent.cli.loaded_rules import loaded, told
    from agent.plain import plain

    files = built(policy, runbooks, grafana)
    lines: list[str] = []
    wrong = False
    if folder is not None:
        for name, what in stale(folder, files).items():
            lines.append(f"{folder / name}: {what}")
            wrong = True
    for line, right in read_by_programs(folder, files):
        lines.append(line)
        wrong |= not right
    if url is not None:
        found = loaded(url, token_file, files)
        lines += told(found)
        wrong |= not found.right
    if as_json:
        say({"right": not wrong, "lines": lines})
    else:
        for line in lines:
            typer.echo(plain(line))
    if wrong:
        raise typer.Exit(1)
