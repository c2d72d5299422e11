"""``kvtide report``: an incident as a page for those who were not there, or a review of weeks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.errors import ConfigError, KvtideError
from agent.plain import plain

if TYPE_CHECKING:
    from agent.backtest.prometheus.feed import Asked
    from agent.cli.feeds import Reach
    from agent.report.document import Document
    from agent.report.money import Assumptions

FORMATS = {".html": "html", ".htm": "html", ".md": "markdown"}
MINUTES = 30.0
DAYS_FROM = 2 * 86_400.0  # seconds: a longer review goes by days, a shorter one by hours
_PROMETHEUS = "Of a Prometheus: "


def report(  # noqa: PLR0917 - each is an option
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE]...",
            help="A recording; default: the last half an hour of this node's agent. For a review: recordings, an "
            "agent's state directory, the URL of a Prometheus.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write, .html or .md; - is standard output. Default: named by what it is of."),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", metavar="html|markdown", help="Default: by the name of --out, html.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="PROFILE|FILE", help="Judge by this policy, not by the one that judged live.")
    ] = None,
    url: Annotated[
        str, typer.Option(envvar="KVTIDE_URL", help="Without a source: the agent's address.")
    ] = "http://127.0.0.1:9477",
    range_: Annotated[
        str | None, typer.Option("--range", help="Review a time: a duration that ends now (7d), or START..END.")
    ] = None,
    step: Annotated[str, typer.Option(help=_PROMETHEUS + "time between two states.")] = "1m",
    select: Annotated[str, typer.Option(help=_PROMETHEUS + "matchers that narrow it.")] = "",
    metrics: Annotated[str, typer.Option(help=_PROMETHEUS + "kvtide, engines, or auto.")] = "auto",
    token_file: Annotated[Path | None, typer.Option(help=_PROMETHEUS + "file with a bearer token.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help=_PROMETHEUS + "certificates to trust, in PEM.")] = None,
    timeout: Annotated[float, typer.Option(min=1, max=600, help=_PROMETHEUS + "seconds for one answer.")] = 60.0,
    hourly_price: Annotated[
        float | None, typer.Option(min=0, help="Review: price of one instance for an hour, in any currency.")
    ] = None,
    instances: Annotated[
        float | None, typer.Option(min=0, help="Review: how many instances there are. Default: engines seen.")
    ] = None,
    saved_ratio: Annotated[
        float | None, typer.Option(min=0, max=1, help="Review: share of them not needed (default 0.15).")
    ] = None,
    yearly_saving: Annotated[
        float | None, typer.Option(min=0, help="Review: saving a year, in place of the three above.")
    ] = None,
    yearly_cost: Annotated[
        float | None, typer.Option(min=0, help="Review: cost of kvtide a year, people included (default 15000).")
    ] = None,
    request_value: Annotated[
        float | None, typer.Option(min=0, help="Review: what a refused request would have brought.")
    ] = None,
) -> None:
    """Write what happened: when, whose memory, what was done and what it changed, and what to do next.

    With --range, a review: trends, what was wrong most often, what pressure cost, and what less of it is worth. The
    page needs nothing from outside: mail it, print it, attach it to the ticket.

    Examples: kvtide report; kvtide report incident.kvtide --out ticket.md;
    kvtide report --range 7d /var/lib/kvtide --hourly-price 12.5;
    kvtide report --range 90d http://prometheus:9090 --step 5m
    """
    from importlib.util import find_spec

    wanted = _format(form, out)
    if find_spec("matplotlib") is None:
        raise KvtideError("the pictures are drawn by matplotlib, which is not installed: pip install 'kvtide[report]'")
    given = sources or []
    money = {
        "hourly_price": hourly_price,
        "instances": instances,
        "saved_ratio": saved_ratio,
        "yearly_saving": yearly_saving,
        "yearly_cost": yearly_cost,
        "request_value": request_value,
    }
    money = {name: value for name, value in money.items() if value is not None}
    if range_ is None and len(given) <= 1 and not any("://" in source or Path(source).is_dir() for source in given):
        if money:
            name = next(iter(money)).replace("_", "-")
            raise ConfigError(f"--{name}: is for a review: add --range, such as --range 7d")
        document, name = _incident(Path(given[0]) if given else None, policy, url)
    else:
        if not given:
            raise ConfigError("--range: needs a source: recordings, an agent's state directory, or a Prometheus' URL")
        from msgspec import convert

        from agent.cli.feeds import Reach, asked_for
        from agent.report.money import Assumptions

        asked = asked_for(range_ or "7d", step, select, metrics)
        reach = Reach(ca_file=ca_file, token_file=token_file, timeout=timeout)
        document, name = _review(given, policy, asked, reach, convert(money, Assumptions)), "kvtide-review"

    if wanted == "html":
        from agent.report.html import render
    else:
        from agent.report.markdown import render
    text = render(document)
    if out is not None and str(out) == "-":
        typer.echo(text, nl=False)
        return
    path = out or Path(f"{name}.{'html' if wanted == 'html' else 'md'}")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise KvtideError(f"{path}: can't be written: {error.strerror or error}") from None
    typer.echo(f"The report is in {plain(str(path))}")


def _format(form: str | None, out: Path | None) -> str:
    if form is None:
        ending = out.suffix.lower() if out is not None else ""
        if ending and ending not in FORMATS:
            raise ConfigError(f"--out: {str(out)!r}: ends in neither .html nor .md; say which it is with --format")
        return FORMATS.get(ending, "html")
    if form not in FORMATS.values():
        raise ConfigError(f"--format: {form!r}: must be html or markdown")
    return form


def _incident(bundle: Path | None, policy: str | None, url: str) -> tuple[Document, str]:
    """Return the report of a recording, and what to call it."""
    from agent.policy.file import choose
    from agent.report.incident import gather
    from agent.report.told import document

    chosen = None if policy is None else choose(policy)
    if bundle is not None:
        return document(gather(bundle, chosen, policy or "")), bundle.stem

    import tempfile
    import time

    from agent.bundle.format import SUFFIX
    from agent.cli.client import AgentClient

    name = time.strftime("kvtide-report-%Y%m%dT%H%M%SZ", time.gmtime())
    with tempfile.TemporaryDirectory(prefix="kvtide-report-") as folder:
        path = Path(folder) / f"{name}{SUFFIX}"
        AgentClient(url, timeout=60.0).save_recording(MINUTES, path)
        return document(gather(path, chosen, policy or "")), name


def _review(sources: list[str], policy: str | None, asked: Asked, reach: Reach, given: Assumptions) -> Document:
    from contextlib import ExitStack

    from agent.backtest.run import Named, run
    from agent.cli.feeds import old_news, open_feeds, progress
    from agent.policy.file import choose
    from agent.report.periods import DAY, HOUR, Periods
    from agent.report.review import document

    name = policy or "default"
    length = DAY if asked.span.end - asked.span.start >= DAYS_FROM else HOUR
    periods = Periods(length)
    with ExitStack() as stack:
        stack.enter_context(old_news())
        feeds = open_feeds(sources, asked, reach, stack)
        result = run([Named(name, choose(name))], feeds, tell=stack.enter_context(progress()), look=periods)
    return document(result, periods.all(), length, given)
