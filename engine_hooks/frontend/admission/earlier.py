"""Requests that came while no rules were in force: they are noted, so that they count as soon as there are some.

Nothing of them is read or touched. What one needs is known when it is handed to the engine; it counts until its answer
is over. The event loop's thread only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from engine_hooks.frontend.admission.ask import Ask, Prompt, utf8_bytes
from engine_hooks.frontend.admission.judge import Use
from engine_hooks.frontend.admission.size import Pool, TokenRatio, size_of
from engine_hooks.frontend.admission.table import Table, Ticket
from engine_hooks.names import NO_TENANT

MOST = 16_384  # in flight at a time; what is beyond is not noted


@dataclass(slots=True, eq=False)
class Earlier:
    """One HTTP request. ``longest``: tokens of its longest prompt. ``ticket`` in ``table``, once it counts."""

    tenant: str = NO_TENANT
    blocks: int = 0
    requests: int = 0
    longest: int = 0
    table: Table | None = None
    ticket: Ticket | None = None


CURRENT: ContextVar[Earlier | None] = ContextVar("kvtide_earlier", default=None)


class EarlierRequests:
    """``pending``: those that no table has yet."""

    def __init__(self) -> None:
        self.pending: set[Earlier] = set()
        self._live: set[Earlier] = set()

    @contextlib.contextmanager
    def note(self) -> Iterator[None]:
        """Note the request that is served meanwhile."""
        if len(self._live) >= MOST:
            yield
            return
        one = Earlier()
        self._live.add(one)
        self.pending.add(one)
        token = CURRENT.set(one)
        try:
            yield
        finally:
            self._live.discard(one)
            self.pending.discard(one)
            with contextlib.suppress(ValueError):  # closed in another context: it ends with that
                CURRENT.reset(token)
            if one.ticket is not None and one.table is not None:
                one.table.leave(one.ticket)
                one.ticket = None

    def enter(self, table: Table, long_tokens: int) -> None:
        """Let those that are pending count in ``table``, whose lock is held."""
        for one in [each for each in self.pending if each.requests]:
            use = Use(one.blocks, one.requests, one.requests if one.longest > long_tokens else 0)
            one.table, one.ticket = table, table.put(one.tenant, use)
            self.pending.discard(one)

    def forget(self) -> None:
        """Give nothing back any more: the table is being closed."""
        for one in self._live:
            one.ticket = None

    def in_flight(self) -> Use:
        """Return what no table counts yet. Any thread."""
        found = list(self.pending)
        return Use(sum(each.blocks for each in found), sum(each.requests for each in found))


def asked(prompt: Any, params: Any) -> Ask:
    """Return what goes to the engine: ``prompt`` and ``params`` as vLLM has them there."""
    tokens, text = _in(prompt, "prompt_token_ids"), prompt if isinstance(prompt, str) else _in(prompt, "prompt")
    params = getattr(prompt, "sampling_params", None) or params
    if isinstance(tokens, list):
        one = Prompt(tokens=len(tokens))
    else:
        one = Prompt(text_bytes=utf8_bytes(text) if isinstance(text, str) else 0)
    choices, limit = getattr(params, "n", None), getattr(params, "max_tokens", None)
    return Ask(prompts=(one,), choices=choices or 1, max_tokens=limit or None)


def note(tenant: str, ask: Ask, ratio: TokenRatio, pool: Pool) -> None:
    """Note what the request that is being served hands to the engine, if it came before the rules."""
    one = CURRENT.get()
    if one is None:
        return
    size = size_of(ask, ratio, pool, None, None)
    one.tenant = tenant
    one.blocks += size.blocks
    one.requests += size.requests
    one.longest = max(one.longest, size.prompt_tokens)


def _in(prompt: Any, name: str) -> Any:
    return prompt.get(name) if isinstance(prompt, dict) else getattr(prompt, name, None)
