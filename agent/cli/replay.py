"""``kvtide replay``: judges what was recorded: bundles, and logs of nvidia-smi."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agent.errors import ConfigError


def replay(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Bundles (*.kvtide), or what nvidia-smi --query-gpu=... --format=csv -l N wrote; gzip or not.",
        ),
    ],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; a list where there are several files.")
    ] = False,
    policy: Annotated[
        str | None,
        typer.Option(metavar="PROFILE|FILE", help="Bundles: judge by this policy, not by the one that judged live."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Logs: names of the columns where the file has no header, as given to --query-gpu."),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(min=0.001, max=86400.0, help="Logs: seconds between samples where there is no timestamp column."),
    ] = None,
    total_mib: Annotated[
        float | None,
        typer.Option(min=1.0, help="Logs: the device's memory (MiB) where there is no memory.total column."),
    ] = None,
) -> None:
    """Judge what an agent has recorded, as it did live; or the memory in an old nvidia-smi log.

    Examples: kvtide replay incident.kvtide; kvtide replay gpu.csv --columns timestamp,index,memory.used
    """
    from agent.bundle.format import is_bundle

    # By its name one that is torn at its head, or empty, is no log: its reader says what is wrong with it.
    bundles = [is_bundle(file) or (file.suffix == ".kvtide" and file.is_file()) for file in files]
    _check(bundles, {"--policy": policy}, {"--columns": columns, "--interval": interval, "--total-mib": total_mib})
    results: list[Any] = []
    if any(bundles):
        from agent.policy.file import choose
        from agent.replay.bundles import replay_bundle

        chosen = None if policy is None else choose(policy)
    for file, bundle in zip(files, bundles, strict=True):
        if bundle:
            results.append(replay_bundle(file, chosen, policy or ""))
        else:
            from agent.replay.judge import replay_file

            results.append(replay_file(file, columns=columns, interval=interval, total_mib=total_mib))
    if as_json:
        import msgspec

        result = results[0] if len(results) == 1 else results
        typer.echo(msgspec.json.format(msgspec.json.encode(result)).decode())
        return

    from agent.faces.terminal import for_reports
    from agent.replay import bundle_text, text

    terminal = for_reports()
    for result, bundle in zip(results, bundles, strict=True):
        terminal.print(bundle_text.render(result) if bundle else text.render(result))


def _check(bundles: list[bool], of_bundles: dict[str, object], of_logs: dict[str, object]) -> None:
    """Refuse options that nothing would read."""
    for name, value in of_bundles.items():
        if value is not None and not any(bundles):
            raise ConfigError(f"{name}: is for bundles, and there is none among the files")
    for name, value in of_logs.items():
        if value is not None and all(bundles):
            raise ConfigError(f"{name}: is for logs of nvidia-smi, and all files are bundles")
