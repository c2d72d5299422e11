"""``kvtide policy``: the thresholds in force, and what is wrong with a file of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.errors import ConfigError

app = typer.Typer(help="Show the thresholds that verdicts are made by, or check a file of them.", no_args_is_help=True)

_PROFILE = typer.Option(metavar="NAME", help="default or textbook: what the thresholds are held against.")


@app.command()
def show(
    file: Annotated[
        Path | None, typer.Argument(help="A policy file; without it, a profile with nothing changed.")
    ] = None,
    profile: Annotated[str | None, _PROFILE] = None,
) -> None:
    """Print the whole policy as YAML, with a comment for each key. What is printed is itself a policy file.

    Examples: kvtide policy show; kvtide policy show --profile textbook; kvtide policy show mine.yaml
    """
    from agent.policy.file import load, of_profile, text_of

    if file is not None and profile is not None:
        raise ConfigError("FILE and --profile: a file names its own profile; give one of the two")
    policy = load(file) if file is not None else of_profile("default" if profile is None else profile)
    typer.echo(text_of(policy), nl=False)


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The policy file.")]) -> None:
    """Say whether a policy file is right, and in what it differs from its profile. Exit code 2: it is not.

    Example: kvtide policy check mine.yaml
    """
    from agent.plain import plain
    from agent.policy.file import differences, load, of_profile
    from agent.retained import count_of

    policy = load(file)
    changed = differences(policy, of_profile(policy.profile))
    typer.echo(f"{plain(str(file))}: right; profile {policy.profile}, {count_of(len(changed), 'key')} changed")
    for key, (here, there) in changed.items():
        typer.echo(plain(f"  {key}: {here} (profile: {there})"))
