"""Invisible characters and repeated text in prompts: measured on a sample, and taken out on request.

Invisible are zero-width characters, controls of writing direction, tags and the variation selectors that no font uses:
what carries hidden text. Joiners are counted, but never taken out: scripts and emoji need them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from engine_hooks.frontend.admission.ask import PROMPT_KEYS

SAMPLE = 512  # characters, or tokens, from the beginning and as many from the end
WINDOW_CHARACTERS, WINDOW_TOKENS = 16, 8
PERIOD_SECONDS = 0.1  # at most one prompt in this time is looked at

_KINDS = {
    "zero-width": "\u00ad\u180e\u200b\u2060-\u2064\ufeff",
    "bidi": "\u202a-\u202e\u2066-\u206f",
    "tags": "\U000e0000-\U000e007f",
    "selectors": "\U000e0100-\U000e01ef",
}
_KEPT = "\u200c-\u200f"  # joiners and marks of direction
_REMOVED = {kind: re.compile(f"[{characters}]") for kind, characters in _KINDS.items()}
_INVISIBLE = re.compile(f"[{''.join(_KINDS.values())}{_KEPT}]")


def measure(prompt: str | Sequence[int]) -> tuple[float, float]:
    """Return the shares (0..1) of invisible characters and of repeated text in a sample of ``prompt``."""
    size = len(prompt)
    sample = prompt if size <= 2 * SAMPLE else [*prompt[:SAMPLE], *prompt[-SAMPLE:]]
    if isinstance(prompt, str):
        text = sample if isinstance(sample, str) else "".join(str(one) for one in sample)
        return invisible_ratio(text), repeated_ratio(text, WINDOW_CHARACTERS)
    return 0.0, repeated_ratio(tuple(sample), WINDOW_TOKENS)


def invisible_ratio(text: str) -> float:
    """Return the share of characters that nobody sees."""
    if not text or text.isascii():
        return 0.0
    return 1.0 - len(_INVISIBLE.sub("", text)) / len(text)


def repeated_ratio(sample: str | tuple[Any, ...], window: int) -> float:
    """Return the share of windows that have come before."""
    count = len(sample) - window + 1
    if count <= 1:
        return 0.0
    return 1.0 - len({sample[at : at + window] for at in range(count)}) / count


def cleaned(body: bytes) -> tuple[bytes, dict[str, int]]:
    """Return ``body`` without invisible characters in its prompts, and how many of each kind were taken out.

    A body that has none, or is no JSON object, comes back as it is.
    """
    removed: dict[str, int] = {}
    if body.isascii() and b"\\u" not in body:
        return body, removed
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return body, removed
    if not isinstance(found, dict):
        return body, removed

    def clean(text: str) -> str:
        for kind, pattern in _REMOVED.items():
            text, count = pattern.subn("", text)
            if count:
                removed[kind] = removed.get(kind, 0) + count
        return text

    for key in PROMPT_KEYS:
        if key in found and key != "tools":
            found[key] = _walked(found[key], clean)
    return (json.dumps(found).encode(), removed) if removed else (body, removed)


def _walked(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_walked(one, clean) for one in value]
    if isinstance(value, dict):
        return {key: _walked(one, clean) for key, one in value.items()}
    return value
