"""The typer app and its commands. Exit codes: 0 done, 1 could not be done, 2 wrong use or configuration."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from typing import Annotated, Any

import typer

from agent.cli import (
    actions,
    advise,
    agent,
    alerts,
    backtest,
    canary,
    dashboards,
    doctor,
    node,
    policy,
    record,
    replay,
    report,
    simulate,
    snapshot,
    status,
    top,
)
from agent.errors import KvtideError
from agent.plain import plain, plain_lines
from engine_hooks import __version__

# The base of all that is wrong with a command line. Newer typer carries a click of its own, so that the one in
# the package click need not be it.
_ClickException: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

# What a write to standard output ends with when its reader is gone or its disk is full.
_NO_OUTPUT = {errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF}

app = typer.Typer(
    name="kvtide",
    help="Knows where every byte of an LLM server's GPU memory is, and says early when it goes wrong.",
    epilog="Exit codes of all commands: 0 done; 1 it could not be done; 2 wrong use or configuration.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command("agent")(agent.agent)
app.command("status")(status.status)
app.command("doctor")(doctor.doctor)
app.command("top")(top.top)
app.command("snapshot")(snapshot.snapshot)
app.command("replay")(replay.replay)
app.command("record")(record.record)
app.command("report")(report.report)
app.command("backtest")(backtest.backtest)
app.command("canary")(canary.canary)
app.command("simulate")(simulate.simulate)
app.command("advise")(advise.advise)
app.add_typer(policy.app, name="policy")
app.add_typer(dashboards.app, name="dashboards")
app.add_typer(alerts.app, name="alerts")
app.add_typer(actions.app, name="actions")
app.add_typer(node.app, name="node")


def _say_version(wanted: bool) -> None:
    if wanted:
        version()
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


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"kvtide {__version__}")


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; an error is one line on standard error."""
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[log])
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has not all letters gets the others
    try:
        result = app(args=arguments, standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KvtideError as error:
        sys.stderr.write(f"kvtide: {plain(str(error))}\n")
        return error.exit_code
    except OSError as error:
        if error.filename is not None:
            sys.stderr.write(f"kvtide: {plain(str(error.filename))}: {error.strerror}\n")
            return 1
        if error.errno not in _NO_OUTPUT:
            raise
        if error.errno != errno.EPIPE:  # a reader that has seen enough is no fault
            sys.stderr.write(f"kvtide: what was asked for can't be written: {error.strerror}\n")
        _drop_output()
        return 1
    except _ClickException as error:
        error.show()
        return int(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    return result if isinstance(result, int) else 0


def _drop_output() -> None:
    """Let what is left of the output go nowhere, so that the interpreter does not try to write it at its end."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
