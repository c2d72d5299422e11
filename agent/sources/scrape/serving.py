"""What a process's command line says about the server that it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

_MODULES = {"vllm.entrypoints.openai.api_server": "vllm", "sglang.launch_server": "sglang"}
_COMMANDS = {"vllm": "vllm", "sglang": "sglang"}  # with "serve"
_SCRIPTS = {"openai/api_server.py": "vllm", "sglang/launch_server.py": "sglang"}
PORTS = {"vllm": 8000, "sglang": 30000}
_PYTHON_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}


class Serving(NamedTuple):
    """``port`` and ``host`` are None where the command line does not name them. ``page`` False: it has no HTTP page."""

    kind: str
    model: str
    host: str | None
    port: int | None
    tls: bool
    page: bool


def serving_of(argv: Sequence[str]) -> Serving | None:
    """Return the server that a process with this command line is, or None."""
    kind, rest = _program(argv)
    if not kind:
        return None
    options = _options(rest)
    model = options.get("--served-model-name") or options.get("--model") or options.get("--model-path") or ""
    if not model and rest and not rest[0].startswith("-"):  # vllm serve MODEL
        model = rest[0]
    port = options.get("--port", "")
    return Serving(
        kind=kind,
        model=model,
        host=options.get("--host") or None,
        port=int(port) if port.isascii() and port.isdecimal() and 0 < int(port[:9]) < 65536 else None,
        tls=bool(options.get("--ssl-certfile")),
        page="--headless" not in options and "--uds" not in options,
    )


def _program(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the kind of server, empty for none, and the arguments after what makes it one."""
    if not argv:
        return "", ()
    at = 0
    if PurePath(argv[0]).name.startswith("python"):
        at = 1
        while at < len(argv) and argv[at].startswith("-") and argv[at] not in ("-m", "-c"):
            at += 2 if argv[at] in _PYTHON_WITH_VALUE else 1
        if at < len(argv) and argv[at] == "-m":
            kind = _MODULES.get(argv[at + 1], "") if at + 1 < len(argv) else ""
            if kind:
                return kind, argv[at + 2 :]
            at += 1  # python -m vllm serve
    if at >= len(argv):
        return "", ()
    path = PurePath(argv[at])
    kind = _COMMANDS.get(path.name, "")
    if kind and at + 1 < len(argv) and argv[at + 1] == "serve":
        return kind, argv[at + 2 :]
    return _SCRIPTS.get("/".join(path.parts[-2:]), ""), argv[at + 1 :]


def _options(rest: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for at, word in enumerate(rest):
        name, separator, value = word.partition("=")
        if name.startswith("--"):
            following = rest[at + 1] if at + 1 < len(rest) and not rest[at + 1].startswith("--") else ""
            found.setdefault(name.replace("_", "-"), value if separator else following)
    return found
