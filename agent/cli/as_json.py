"""``--json``: what a command found as JSON, in the place of what people read. Errors stay lines on standard error."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def say(value: Any) -> None:
    """Print ``value``; what JSON has no word for is its text."""
    typer.echo(json.dumps(value, indent=2, default=str))
