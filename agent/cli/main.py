"""``kvtide``: finds the command and turns errors into one line and an exit code."""

from __future__ import annotations

import signal
import sys

_OURS = {"agent", "alerts", "dashboards", "engine_hooks", "exporters"}


def main() -> None:
    """Run the command line; never shows a traceback for a user's mistake."""
    if sys.argv[1:2] == ["agent"]:  # a reload that is asked for while it starts would end it: it reads all anew anyway
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        code = _run(sys.argv[1:])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in _OURS:
            raise
        sys.stderr.write(
            f"kvtide: {error.name} is missing: only the engine's hooks are installed here. Use the kvtide of the "
            "agent's environment; to make one: python3 -m venv DIR && DIR/bin/pip install 'kvtide[agent]'\n"
        )
        code = 1
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    from agent.cli.quick import watching

    quick = watching(arguments)
    if quick is not None:
        from agent.cli.ending import ending

        return ending(quick)
    from agent.cli.app import run

    return run(arguments)
