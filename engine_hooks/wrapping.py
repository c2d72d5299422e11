"""How a method of vLLM's is wrapped: once, however often plugins are loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MARK = "__kvtide__"


def wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], mark: str = _MARK) -> None:
    """Replace ``owner.name`` by what ``make`` returns for it, unless that was done before.

    ``mark``: for a second wrapper around the same method.
    """
    original = getattr(owner, name)
    if not hasattr(original, mark):
        wrapper = make(original)
        setattr(wrapper, mark, True)
        setattr(owner, name, wrapper)
