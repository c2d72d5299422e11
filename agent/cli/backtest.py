"""``kvtide backtest``: what a policy would have said of recorded history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.errors import ConfigError


def backtest(  # noqa: PLR0917 - each is an option
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE]...", help="More sources, as with --from.")
    ] = None,
    policy: Annotated[
        str, typer.Option(metavar="P", help="A policy file, or a profile: default, textbook.")
    ] = "default",
    against: Annotated[str | None, typer.Option(metavar="Q", help="A second policy, to see the difference.")] = None,
    from_: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="SOURCE", help="A bundle, or the URL of a Prometheus; repeat it."),
    ] = None,
    range_: Annotated[
        str | None,
        typer.Option("--range", help="Of a Prometheus: a duration that ends now (14d; default 2h), or START..END."),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(help="Of a Prometheus: time between two states, best its scrape interval (default 15s)."),
    ] = None,
    select: Annotated[
        str,
        typer.Option(help='Of a Prometheus: matchers that narrow it, such as \'job="kvtide",instance=~"gpu1:.*"\'.'),
    ] = "",
    metrics: Annotated[
        str, typer.Option(help="Of a Prometheus: kvtide (its metrics), engines (their own pages), or auto.")
    ] = "auto",
    token_file: Annotated[Path | None, typer.Option(help="Of a Prometheus: file with a bearer token.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Of a Prometheus: certificates to trust, in PEM.")] = None,
    timeout: Annotated[float, typer.Option(min=1, max=600, help="Of a Prometheus: seconds for one answer.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Tell what a policy would have said: which verdicts, when, how long before harm, how many pages a day.

    The same code judges as in the agent. With --against two policies are compared verdict by verdict.

    Examples: kvtide backtest --policy mine.yaml --against default --from night.kvtide;
    kvtide backtest --policy textbook *.kvtide;
    kvtide backtest --policy mine.yaml --against default --from http://prometheus:9090 --range 14d --step 1m
    """
    from contextlib import ExitStack

    from agent.backtest.run import Named, run
    from agent.cli.feeds import Reach, asked_for, old_news, open_feeds, progress
    from agent.policy.file import choose

    given = [*(from_ or ()), *(sources or ())]
    if not given:
        raise ConfigError("--from: a bundle or the URL of a Prometheus is needed")
    for option, value in (("--range", range_), ("--step", step), ("--select", select)):
        if value and not any("://" in source for source in given):
            raise ConfigError(f"{option}: {value}: is for a Prometheus; a bundle is judged whole")
    policies = [Named(name, choose(name)) for name in (policy, against) if name is not None]
    short = [Path(each.name).name for each in policies]
    if len(set(short)) == len(short):
        policies = [Named(name, each.policy) for name, each in zip(short, policies, strict=True)]
    elif policies[0] == policies[1]:
        raise ConfigError(f"--against: {against}: is the policy itself")
    with ExitStack() as stack:
        stack.enter_context(old_news())
        reach = Reach(ca_file=ca_file, token_file=token_file, timeout=timeout)
        asked = asked_for(range_ or "2h", step or "15s", select, metrics)
        result = run(policies, open_feeds(given, asked, reach, stack), tell=stack.enter_context(progress()))
    if as_json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(result)).decode())
        return

    from agent.backtest.text import render
    from agent.faces.terminal import for_reports

    for_reports().print(render(result))
