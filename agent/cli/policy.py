"""``kvtide policy``: the thresholds in force, and what is wrong with a file of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.as_json import AsJson, say
from agent.errors import ConfigError

app = typer.Typer(help="Show what verdicts and actions go by, explain it, or check a file of it.", no_args_is_help=True)

_PROFILE = typer.Option(metavar="NAME", help="default, latency, throughput or textbook.")


@app.command()
def show(
    file: Annotated[
        Path | None, typer.Argument(help="A policy file; without it, a profile with nothing changed.")
    ] = None,
    profile: Annotated[str | None, _PROFILE] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Print the whole policy as YAML, with a comment for each key. What is printed is itself a policy file.

    Examples: kvtide policy show; kvtide policy show --profile textbook; kvtide policy show mine.yaml
    """
    from agent.policy.file import load, of_profile, text_of

    if file is not None and profile is not None:
        raise ConfigError("FILE and --profile: a file names its own profile; give one of the two")
    policy = load(file) if file is not None else of_profile("default" if profile is None else profile)
    if as_json:
        say(policy.model_dump(mode="json"))
    else:
        typer.echo(text_of(policy), nl=False)


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The policy file.")], *, as_json: AsJson = False) -> None:
    """Say whether a policy file is right, and in what it differs from its profile. Exit code 2: it is not.

    Example: kvtide policy check mine.yaml
    """
    from agent.plain import plain
    from agent.policy.file import differences, load, of_profile
    from agent.retained import count_of

    policy = load(file)
    changed = differences(policy, of_profile(policy.profile))
    if as_json:
        told = {key: {"value": here, "profile": there} for key, (here, there) in changed.items()}
        say({"file": str(file), "profile": policy.profile, "changed": told})
        return
    typer.echo(f"{plain(str(file))}: right; profile {policy.profile}, {count_of(len(changed), 'key')} changed")
    for key, (here, there) in changed.items():
        typer.echo(plain(f"  {key}: {here} (profile: {there})"))


@app.command()
def explain(
    key: Annotated[
        str | None, typer.Argument(help="A key such as actions.breaches; without one, all are listed.")
    ] = None,
    policy: Annotated[
        str, typer.Option(metavar="PROFILE|FILE", help="Whose value is told: a profile or a policy file.")
    ] = "default",
    *,
    as_json: AsJson = False,
) -> None:
    """Tell what a key does, what may be there, what it is and where from, and who reads it.

    Examples: kvtide policy explain actions.budget_per_hour; kvtide policy explain use.page_ratio --policy latency
    """
    from agent.plain import plain
    from agent.policy.explain import all_keys, explained
    from agent.policy.file import PROFILES, choose
    from agent.settings_file import read

    chosen = choose(policy)
    if key is None:
        if as_json:
            say({name: field.description for name, field in all_keys().items()})
            return
        for name, field in all_keys().items():
            typer.echo(f"{name}: {field.description}")
        return
    given = {"profile": policy} if policy in PROFILES else read(Path(policy))
    told = explained(key, chosen, given, policy)
    if as_json:
        say(asdict(told))
        return
    typer.echo(f"{told.key}: {told.does}")
    typer.echo(f"  value:   {plain(str(told.value))} (from: {plain(told.source)})")
    typer.echo(f"  default: {told.default}")
    typer.echo(f"  allowed: {told.allowed}")
    typer.echo(f"  read by: {', '.join(told.readers)}")


@app.command()
def schema() -> None:
    """Print the JSON schema of a policy file, for editors and checks.

    Example: kvtide policy schema > kvtide-policy.schema.json
    """
    from agent.policy.explain import schema as of_the_file

    typer.echo(of_the_file())
