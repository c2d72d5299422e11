"""The gate of one API server: what it knows, and the two steps by which a request is looked at and let in.

The event loop's thread uses it. The link's side thread replaces :attr:`Gate.rules`, a whole value, and reads counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine_hooks.frontend.admission.ask import ROUTES, Ask, read_ask, utf8_bytes
from engine_hooks.frontend.admission.body import MAX_BODY_BYTES, Body, set_length, with_value
from engine_hooks.frontend.admission.breaker import FastBreaker
from engine_hooks.frontend.admission.counts import HygieneCounts, RefusedCounts
from engine_hooks.frontend.admission.earlier import EarlierRequests, asked, note
from engine_hooks.frontend.admission.hygiene import PERIOD_SECONDS, cleaned, measure
from engine_hooks.frontend.admission.judge import (
    TOO_LARGE,
    Refusal,
    Use,
    before_body,
    by_size,
    by_use,
    is_long,
    share_of,
)
from engine_hooks.frontend.admission.rules import Rules
from engine_hooks.frontend.admission.size import Pool, Size, TokenRatio, size_of
from engine_hooks.frontend.admission.table import Table, Ticket
from engine_hooks.frontend.admission.upstreams import Upstream, Upstreams
from engine_hooks.frontend.identify import Claims
from engine_hooks.frontend.middleware import Scope
from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.names import NO_TENANT, printable

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines

LOCK_SECONDS = 0.25  # then a request is let in uncounted: a server that was stopped must not stop the others
LOCK_PAUSE_SECONDS = 0.001
LOCK_TRIES = int(LOCK_SECONDS / LOCK_PAUSE_SECONDS)


@dataclass(slots=True)
class Passage:
    """One request on its way through. What it has taken is given back by :meth:`Gate.leave`, once."""

    scope: Scope
    path: str
    rules: Rules
    body: Body
    claims: Claims
    tenant: str = NO_TENANT
    ask: Ask | None = None
    read: bytes = b""
    upstream: Upstream | None = None
    refusal: Refusal | None = None
    notes: list[str] = field(default_factory=list)
    removed: dict[str, int] = field(default_factory=dict)
    table: Table | None = None
    ticket: Ticket | None = None
    placed: bool = False
    short: bool = False


class Gate:
    """``rules``: those in force; None while there are none. ``pool``: None until the engine has come up. ``table``:
    None until rules have come once. ``why_not``: why no request comes by here; empty where they do. ``why_off``: tells
    the last error of a gate that has raised too often. ``notes``: whether rules may ever come, so that what is in
    flight without any is worth being noted.
    """

    def __init__(
        self,
        settings: TenantSettings,
        upstreams: Upstreams | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._upstreams = upstreams or Upstreams()
        self._clock = clock
        self._sleep = sleep
        self._breaker = FastBreaker(clock)
        self._short = 0
        self._no_short = asyncio.Event()
        self._next_look = 0.0
        self._stuck = False  # the lock was not to be had the last time
        self.rules: Rules | None = None
        self.pool: Pool | None = None
        self.served: frozenset[str] = frozenset()
        self.why_not = "no HTTP application of vLLM's has come up in this process"
        self.why_off: Callable[[], str] = str
        self.table: Table | None = None
        self.on_close: Callable[[], None] | None = None
        self.ratio = TokenRatio()
        self.refused = RefusedCounts()
        self.hygiene = HygieneCounts()
        self.notes = False
        self.earlier = EarlierRequests()
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- a request ----------------------------------------------------------------------------------------

    async def look(self, passage: Passage) -> None:
        """Judge what needs nothing but the request itself, its body included, and say where it may be sent on to."""
        rules = passage.rules
        passage.tenant = self._tenant(None, passage.claims)
        full = None if rules.shed else self._breaker.enter(rules)
        passage.placed = not rules.shed and full is None
        if self._refuse(passage, before_body(rules, full)) or passage.path not in ROUTES:
            return
        body = await passage.body.read()
        if body is None:
            if passage.body.too_long:
                text = f"The body exceeds limit of {MAX_BODY_BYTES} bytes."
                self._refuse(passage, Refusal("body_size", TOO_LARGE, text))
            return
        if rules.clean:
            body, passage.removed = cleaned(body)
            if passage.removed:
                self._put(passage, body)
        passage.read = body
        passage.ask = read_ask(passage.path, body)
        if passage.ask is not None:
            passage.tenant = self._tenant(passage.ask, passage.claims)
            tokens = max(map(self.ratio.tokens, passage.ask.prompts), default=0)
            passage.upstream = self._upstreams.choose(passage.scope["headers"], tokens, rules.pressure)

    async def take(self, passage: Passage) -> None:
        """Judge by size and by what is in flight; enter it, or refuse."""
        rules, pool, table, ask = passage.rules, self.pool, self.table, passage.ask
        if ask is None or pool is None or table is None:
            return  # no request that the engine would serve, or the gate is being closed
        size = size_of(ask, self.ratio, pool, rules.max_tokens, share_of(rules, pool))
        if self._refuse(passage, by_size(rules, size, pool)):
            return
        if rules.short_first:
            await self._take_turns(passage, size)
        if not await self._lock(table):
            passage.notes.append("uncounted")
            return
        try:
            if self.earlier.pending:
                self.earlier.enter(table, rules.long_tokens)
            use = Use(size.blocks, size.requests, int(is_long(rules, size)))
            quota = rules.quota_of(passage.tenant, self._settings.map.quotas.get(passage.tenant), pool.blocks)
            judge = functools.partial(by_use, rules, size, pool, tenant=passage.tenant, quota=quota)
            found = table.enter(passage.tenant, use, judge)
        finally:
            table.unlock()
        if isinstance(found, Refusal):
            self._refuse(passage, found)
            return
        passage.table, passage.ticket = table, found
        if size.bound is not None:
            self._put(passage, with_value(passage.read, ask.limit, str(size.bound)))
            passage.notes.append(f"{ask.limit}={size.bound}")

    def leave(self, passage: Passage) -> None:
        """Give back what ``passage`` took; again does nothing."""
        table, ticket = passage.table, passage.ticket
        if ticket is not None and table is not None and table is self.table:
            table.leave(ticket)
        passage.ticket = None
        if passage.short:
            passage.short = False
            self._short -= 1
            if not self._short:
                self._no_short.set()
        if passage.placed:
            passage.placed = False
            self._breaker.leave()

    # -- requests that came before the rules ---------------------------------------------------------------

    @contextlib.contextmanager
    def noting(self, path: str) -> Iterator[None]:
        """Note the request to ``path`` that is served meanwhile, with no rules in force."""
        self._loop = asyncio.get_running_loop()
        self._breaker.inside += 1
        try:
            with self.earlier.note() if path in ROUTES else contextlib.nullcontext():
                yield
        finally:
            self._breaker.leave()

    def needs(self, tenant: str, prompt: Any, params: Any) -> None:
        """Note what a request that came before the rules hands to the engine."""
        pool = self.pool
        if pool is not None and self.earlier.pending:
            note(tenant, asked(prompt, params), self.ratio, pool)

    def count_earlier(self) -> None:
        """Let what came before the rules count now, not only when this server has its next request. Any thread."""
        loop = self._loop
        if loop is not None and self.earlier.pending:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._enter_earlier, LOCK_TRIES)

    def _enter_earlier(self, tries: int) -> None:
        table, rules = self.table, self.rules
        if table is None or rules is None:
            return
        if not table.try_lock():
            if self._loop is not None and tries:
                self._loop.call_later(LOCK_PAUSE_SECONDS, self._enter_earlier, tries - 1)
            return
        try:
            self.earlier.enter(table, rules.long_tokens)
        finally:
            table.unlock()

    # -- what travels on to the engine ---------------------------------------------------------------------

    def see(self, tenant: str, prompt: Any, text: Any) -> None:
        """Learn from a prompt that goes to the engine: ``prompt`` as vLLM has it, ``text`` where it is known."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + PERIOD_SECONDS
        tokens = prompt.get("prompt_token_ids") if isinstance(prompt, dict) else None
        if not isinstance(text, str):
            text = prompt if isinstance(prompt, str) else prompt.get("prompt") if isinstance(prompt, dict) else None
        if isinstance(text, str) and text:
            if isinstance(tokens, list):
                self.ratio.learn(utf8_bytes(text), len(tokens))
            self.hygiene.note(tenant, *measure(text))
        elif isinstance(tokens, list):
            self.hygiene.note(tenant, *measure(tokens))

    def unjudged(self) -> str:
        """Return why no request is judged here; empty where they are."""
        off = self.why_off()
        return self.why_not or (f"it has raised too often: {off}" if off else "")

    def close(self) -> None:
        """Let everything in from now on, and leave the other servers' table."""
        self.rules = self.table = None
        self.earlier.forget()
        closing, self.on_close = self.on_close, None
        if closing is not None:
            closing()

    # -- parts ----------------------------------------------------------------------------------------------

    def _tenant(self, ask: Ask | None, claims: Claims) -> str:
        front: Mapping[str, str] = claims.front
        if ask is None:
            return printable(self._settings.of_request(None, None, front)) or NO_TENANT
        if claims.trusted and ask.user:
            front = {**front, "user": ask.user}
        adapter = ask.model if self.served and ask.model not in self.served else None
        return printable(self._settings.of_request(ask.cache_salt, adapter, front)) or NO_TENANT

    def _refuse(self, passage: Passage, refusal: Refusal | None) -> bool:
        if refusal is not None:
            passage.refusal = refusal
            self.refused.note(passage.tenant, refusal.reason)
        return refusal is not None

    async def _lock(self, table: Table) -> bool:
        """Take the table's lock; return whether it could be had. After it could not, nobody waits until it can."""
        until = self._clock() + (0.0 if self._stuck else LOCK_SECONDS)
        while not table.try_lock():
            if self._clock() >= until:
                if not self._stuck:
                    logger.warning("kvtide: another API server does not let go of the table; requests go uncounted")
                self._stuck = True
                return False
            await self._sleep(LOCK_PAUSE_SECONDS)
        self._stuck = False
        return True

    async def _take_turns(self, passage: Passage, size: Size) -> None:
        rules = passage.rules
        if size.prompt_tokens <= rules.short_tokens:
            passage.short = True
            self._short += 1
            self._no_short.clear()
            return
        if self._short:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._no_short.wait(), rules.long_wait_seconds)
            passage.notes.append("waited")

    @staticmethod
    def _put(passage: Passage, body: bytes) -> None:
        passage.read = body
        passage.body.put(body)
        set_length(passage.scope, len(body))
