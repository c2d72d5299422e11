"""``kvtide canary``: may a roll-out go on? For a pipeline: the exit code is the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.errors import ConfigError


def canary(  # noqa: PLR0917 - each is an option
    baseline: Annotated[
        list[str], typer.Option(metavar="SOURCE", help="What runs now: bundles, or the URL of a Prometheus; repeat it.")
    ],
    candidate: Annotated[list[str], typer.Option(metavar="SOURCE", help="What is rolled out, likewise.")],
    stage: Annotated[int, typer.Option(metavar="10|30|100", help="Per cent that the candidate has now.")],
    baseline_select: Annotated[
        str, typer.Option(help="Of a Prometheus: matchers of what runs now, such as 'track=\"stable\"'.")
    ] = "",
    candidate_select: Annotated[str, typer.Option(help="Of a Prometheus: matchers of what is rolled out.")] = "",
    range_: Annotated[
        str, typer.Option("--range", help="Of a Prometheus: a duration that ends now, or START..END.")
    ] = "30m",
    step: Annotated[str, typer.Option(help="Of a Prometheus: time between two states.")] = "15s",
    metrics: Annotated[str, typer.Option(help="Of a Prometheus: kvtide, engines, or auto.")] = "auto",
    token_file: Annotated[Path | None, typer.Option(help="Of a Prometheus: file with a bearer token.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Of a Prometheus: certificates to trust, in PEM.")] = None,
    timeout: Annotated[float, typer.Option(min=1, max=600, help="Of a Prometheus: seconds for one answer.")] = 60.0,
    policy: Annotated[str, typer.Option(metavar="PROFILE|FILE", help="The policy that judges both.")] = "default",
    p99_seconds: Annotated[float, typer.Option(min=0.001, help="From 30 %: the slowest P99 of requests.")] = 2.0,
    failed_ratio: Annotated[float, typer.Option(min=0, max=1, help="At 100 %: the most errors.")] = 0.01,
    least_watched: Annotated[str, typer.Option(help="How long each side must have been watched.")] = "5m",
    least_requests: Annotated[int, typer.Option(min=0, help="How many requests the candidate must have served.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print the gates as JSON.")] = False,
) -> int:
    """Tell whether a candidate may go beyond its stage: 0 it may, 1 it may not, and why.

    10 %: no failure for want of memory, no leak, no page that the baseline has not. 30 %: the P99 of requests as well.
    100 %: errors as well. What can't be told does not pass.

    Examples: kvtide canary --baseline a.kvtide --candidate b.kvtide --stage 10;
    kvtide canary --baseline http://prometheus:9090 --baseline-select 'track="stable"'
    --candidate http://prometheus:9090 --candidate-select 'track="canary"' --stage 30
    """
    from contextlib import ExitStack

    from agent.backtest.span import seconds_of
    from agent.canary.evidence import gather
    from agent.canary.gates import STAGES, Limits, judge
    from agent.cli.feeds import Reach, asked_for, old_news, open_feeds
    from agent.policy.file import choose

    chosen = next((each for each in STAGES if each == stage), None)
    if chosen is None:
        raise ConfigError(f"--stage: {stage}: must be one of {', '.join(map(str, STAGES))}")
    limits = Limits(
        p99_seconds=p99_seconds,
        failed_ratio=failed_ratio,
        watched_seconds=seconds_of(least_watched, "--least-watched"),
        requests=least_requests,
    )
    judge_by = choose(policy)
    reach = Reach(ca_file=ca_file, token_file=token_file, timeout=timeout)
    with ExitStack() as stack:
        stack.enter_context(old_news())
        sides = [
            gather(judge_by, open_feeds(sources, asked_for(range_, step, select, metrics), reach, stack))
            for sources, select in ((baseline, baseline_select), (candidate, candidate_select))
        ]
    outcome = judge(sides[0], sides[1], chosen, limits)
    if as_json:
        import msgspec

        told = {"outcome": outcome, "baseline": sides[0], "candidate": sides[1]}
        typer.echo(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        from agent.canary.text import render
        from agent.faces.terminal import for_reports

        for_reports().print(render(outcome, sides[0].remarks + sides[1].remarks))
    return 0 if outcome.passed else 1
