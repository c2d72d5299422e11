"""Base of the wire's messages, and the bounds on what a peer may make us keep."""

from __future__ import annotations

from typing import Annotated

import msgspec

# Labels and names are short, and there are few of them.
Name = Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[\x20-\x7e]*\Z")]
Text = Annotated[str, msgspec.Meta(max_length=512, pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")]
Blocks = Annotated[int, msgspec.Meta(ge=-(2**40), le=2**40)]  # below zero only where an engine has lost count
MAX_HOOKS = 32


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all message bodies."""
