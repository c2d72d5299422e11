"""Whether a request is let in. Pure: no clock, no server. Each refusal has a reason, one sentence and a status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine_hooks.frontend.admission.rules import Rules
from engine_hooks.frontend.admission.size import Pool, Size

TOO_MANY, UNAVAILABLE, BAD_REQUEST, TOO_LARGE = 429, 503, 400, 413

REASONS = (
    "shed",
    "rate",
    "in_flight",
    "body_size",
    "prompt_limit",
    "pool_share",
    "long_prompt",
    "quota",
    "concurrency",
    "long_sessions",
    "reserved",
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """``reason``: one of :data:`REASONS`. ``retry_after``: seconds; None where trying again is no use."""

    reason: str
    status: int
    text: str
    retry_after: int | None = None
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """What is in flight: KV blocks that it may come to hold, requests, and those of them with a long context."""

    blocks: int = 0
    requests: int = 0
    long: int = 0


@dataclass(frozen=True, slots=True)
class InFlight:
    """``use``: of the tenant that asks; ``total_blocks``: of all; ``use_of``: of any tenant."""

    use: Use
    total_blocks: int
    use_of: Callable[[str], Use]


def before_body(rules: Rules, breaker: str | None) -> Refusal | None:
    """Judge what needs no body. ``breaker``: what the fast breaker says, ``rate`` or ``in_flight``."""
    retry = rules.retry_after
    if rules.shed:
        text = "The server has reached its memory limit and takes no new requests now; try again later."
        return Refusal("shed", UNAVAILABLE, text, retry)
    if breaker == "rate":
        text = f"The server takes {rules.rate:g} requests a second now; try again later."
        return Refusal("rate", TOO_MANY, text, retry)
    if breaker == "in_flight":
        text = f"The server serves {rules.in_flight} requests at a time now; try again later."
        return Refusal("in_flight", UNAVAILABLE, text, retry)
    return None


def by_size(rules: Rules, size: Size, pool: Pool) -> Refusal | None:
    """Judge a request by its own size."""
    tokens = size.prompt_tokens
    if rules.prompt_limit is not None and tokens > rules.prompt_limit:
        text = f"The prompt of about {tokens} tokens exceeds limit of {rules.prompt_limit} tokens."
        return Refusal("prompt_limit", BAD_REQUEST, text, param="prompt")
    share = share_of(rules, pool)
    if share is not None and size.most_blocks > share:
        text = (
            f"The request of about {size.most_blocks} KV blocks exceeds limit of {share} blocks for a single request; "
            "shorten the prompt or lower max_tokens."
        )
        return Refusal("pool_share", BAD_REQUEST, text, param="max_tokens")
    if rules.max_prompt is not None and tokens > rules.max_prompt:
        text = (
            f"Memory is short: prompts over {rules.max_prompt} tokens are not taken now; this one has about {tokens}."
        )
        if tokens > rules.batch_prompt:
            text += f" Send prompts over {rules.batch_prompt} tokens by the batch path, which may wait for room."
        return Refusal("long_prompt", TOO_MANY, text, rules.retry_after, "prompt")
    return None


def share_of(rules: Rules, pool: Pool) -> int | None:
    """Return the blocks that one request may come to hold; None for any number."""
    return None if rules.pool_share is None else int(rules.pool_share * pool.rank_blocks)


def by_use(rules: Rules, size: Size, pool: Pool, flight: InFlight, *, tenant: str, quota: int | None) -> Refusal | None:
    """Judge a request of ``tenant``, whose quota is in blocks, by what is in flight."""
    retry, use = rules.retry_after, flight.use
    if quota is not None and use.blocks + size.blocks > quota:
        text = (
            f"Tenant {tenant} is over its quota: {use.blocks} of {quota} KV blocks are in use and this request needs "
            f"about {size.blocks}."
        )
        if size.blocks > quota:
            return Refusal("quota", TOO_MANY, f"{text} It can't fit: shorten it.", retry)
        return Refusal("quota", TOO_MANY, text, retry)
    most = rules.concurrency_of(tenant)
    if most is not None and use.requests + size.requests > most:
        text = (
            f"Tenant {tenant} may have {most} requests in flight; it has {use.requests} and asks for {size.requests}."
        )
        return Refusal("concurrency", TOO_MANY, text, retry)
    most = rules.long_sessions_of(tenant)
    if most is not None and is_long(rules, size) and use.long >= most:
        text = (
            f"Tenant {tenant} may have {most} sessions with a context over {rules.long_tokens} tokens at a time; "
            f"it has {use.long}."
        )
        return Refusal("long_sessions", TOO_MANY, text, retry)
    if rules.reserved:
        kept = unused_of_others(rules.reserved, tenant, flight.use_of)
        if kept and flight.total_blocks + size.blocks > pool.blocks - kept:
            text = f"{kept} KV blocks are kept for other tenants; try again later."
            return Refusal("reserved", TOO_MANY, text, retry)
    return None


def is_long(rules: Rules, size: Size) -> bool:
    """Whether a request counts among its tenant's long-context sessions."""
    return size.prompt_tokens > rules.long_tokens


def unused_of_others(reserved: Mapping[str, float], tenant: str, use_of: Callable[[str], Use]) -> int:
    """Return the blocks that are reserved for others than ``tenant`` and not in use by them."""
    return sum(max(0, int(blocks) - use_of(name).blocks) for name, blocks in reserved.items() if name != tenant)
