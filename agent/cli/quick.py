"""``kvtide top`` as it is mostly called, without the library that reads the command line.

That takes a quarter of a second, which is a third of what a person waits for the screen. What is not read here is read
there, and both read the same: a test compares them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, get_args

_TEXTS = {"--url": "url", "--view": "view", "--engine": "engine"}
DEFAULT_URL = "http://127.0.0.1:9477"


def options_of(arguments: Sequence[str]) -> dict[str, Any] | None:
    """Return what :func:`agent.top.watch.watch` is called with; None where there is more to read than this reads."""
    if list(arguments[:1]) != ["top"]:
        return None
    found: dict[str, Any] = {"url": os.environ.get("KVTIDE_URL") or DEFAULT_URL}
    mono = bool(os.environ.get("NO_COLOR"))
    rest = list(arguments[1:])
    while rest:
        name, sign, value = rest.pop(0).partition("=")
        if name == "--mono" and not sign:
            mono = True
        elif name in _TEXTS and (sign or rest):
            value = value if sign else rest.pop(0)
            if not value or value.startswith("-"):
                return None
            found[_TEXTS[name]] = value
        else:
            return None
    return found | {"mono": mono}


def watching(arguments: Sequence[str]) -> Callable[[], int] | None:
    """Return what does what ``arguments`` ask for; None where that is not to be told here."""
    options = options_of(arguments)
    if options is None:
        return None
    from agent.top.seen import View
    from agent.top.watch import watch

    if options.get("view", "node") not in get_args(View):
        return None

    def run() -> int:
        watch(**options)
        return 0

    return run
