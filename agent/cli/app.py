"""The typer app and its commands. Exit codes: 0 done, 1 could not be done, 2 wrong use or configuration."""

from __future__ import annotations

import logging
import sys
from typing import Any

import typer

from agent.cli import agent, replay, snapshot, status
from agent.errors import KvtideError
from engine_hooks import __version__

# The base of all that is wrong with a command line. Newer typer carries a click of its own, so that the one in
# the package click need not be it.
_ClickException: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

app = typer.Typer(
    name="kvtide",
    help="Knows where every byte of an LLM server's GPU memory is, and says early when it goes wrong.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command("agent")(agent.agent)
app.command("status")(status.status)
app.command("snapshot")(snapshot.snapshot)
app.command("replay")(replay.replay)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"kvtide {__version__}")


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; an error is one line on standard error."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        result = app(args=arguments, standalone_mode=False)
    except KvtideError as error:
        sys.stderr.write(f"kvtide: {error}\n")
        return error.exit_code
    except _ClickException as error:
        error.show()
        return int(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    return result if isinstance(result, int) else 0
