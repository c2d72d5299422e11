"""``kvtide replay``: what a log of nvidia-smi says about memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def replay(
    file: Annotated[Path, typer.Argument(help="What nvidia-smi --query-gpu=... --format=csv -l N wrote; gzip or not.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    columns: Annotated[
        str | None,
        typer.Option(help="Names of the columns where the file has no header, as given to --query-gpu."),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(min=0.001, max=86400.0, help="Seconds between samples where there is no timestamp column."),
    ] = None,
    total_mib: Annotated[
        float | None, typer.Option(min=1.0, help="The device's memory (MiB) where there is no memory.total column.")
    ] = None,
) -> None:
    """Judge the memory in an old nvidia-smi log: saw-tooth, floor, growth, staircases, and when it runs out.

    Examples: kvtide replay gpu.csv; kvtide replay gpu.csv --columns timestamp,index,memory.used --total-mib 81920
    """
    from agent.replay.judge import replay_file

    result = replay_file(file, columns=columns, interval=interval, total_mib=total_mib)
    if as_json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(result)).decode())
        return

    from agent.faces.terminal import for_reports
    from agent.replay.text import render

    for_reports().print(render(result))
