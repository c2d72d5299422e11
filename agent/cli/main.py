"""``kvtide``: finds the command and turns errors into one line and an exit code."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; never shows a traceback for a user's mistake."""
    try:
        from agent.cli.app import run
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"kvtide: {error.name} is missing: only the engine's hooks are installed here. Use the kvtide of the "
            "agent's environment; to make one: python3 -m venv DIR && DIR/bin/pip install 'kvtide[agent]'\n"
        )
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))
