"""How a method of vLLM's is wrapped: once, however often plugins are loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MARK = "__kvtide__"


def wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace ``owner.name`` by what ``make`` returns for it, unless that was done before."""
    original = getattr(owner, name)
    if not hasattr(original, _MARK):
        wrapper = make(original)
        setattr(wrapper, _MARK, True)
        setattr(owner, name, wrapper)
