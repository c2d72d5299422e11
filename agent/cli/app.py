"""The typer app and its commands. Exit codes: 0 done, 1 could not be done, 2 wrong use or configuration."""

from __future__ import annotations

import io
import logging
import sys
from typing import Annotated, Any

import typer

from agent.cli.ending import INTERRUPTED, ending
from agent.cli.lazily import group_of
from agent.plain import plain, plain_lines
from engine_hooks import __version__

# The base of all that is wrong with a command line. Newer typer carries a click of its own, so that the one in
# the package click need not be it.
_ClickException: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

# By name, in the order of the help: what is built when it is asked for.
COMMANDS = {
    name: f"agent.cli.{name}:{attribute}"
    for name, attribute in (
        ("agent", "agent"),
        ("status", "status"),
        ("doctor", "doctor"),
        ("top", "top"),
        ("snapshot", "snapshot"),
        ("replay", "replay"),
        ("record", "record"),
        ("report", "report"),
        ("backtest", "backtest"),
        ("canary", "canary"),
        ("simulate", "simulate"),
        ("advise", "advise"),
        ("policy", "app"),
        ("dashboards", "app"),
        ("alerts", "app"),
        ("actions", "app"),
        ("compact", "compact"),
        ("node", "app"),
        ("web", "app"),
        ("version", "version"),
    )
}

app = typer.Typer(
    name="kvtide",
    help="Knows where every byte of an LLM server's GPU memory is, and says early when it goes wrong.",
    epilog="Exit codes of all commands: 0 done; 1 it could not be done; 2 wrong use or configuration.",
    cls=group_of(COMMANDS),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvtide {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Take what stands before the command."""


class PlainFormatter(logging.Formatter):
    """Each message is one line; nothing in it, nor in a traceback, steers the terminal that shows the log."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
        """Return the line without what follows it, such as a traceback."""
        return plain(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """Return all of it."""
        return plain_lines(super().format(record))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; an error is one line on standard error."""
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[log])
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has not all letters gets the others
    return ending(_called, arguments)


def _called(arguments: list[str]) -> int:
    try:
        result = app(args=arguments, standalone_mode=False)
    except _ClickException as error:
        error.show()
        return int(error.exit_code)
    except typer.Abort:
        return INTERRUPTED
    return result if isinstance(result, int) else 0
