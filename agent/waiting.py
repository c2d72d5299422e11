"""Why requests wait and what stalls an engine, in words. What is not listed here is shown as the engine says it."""

from __future__ import annotations

PAUSED = "paused"
STALLED_SECONDS = 10.0  # without a token while there is work
STALLED_PAGE_SECONDS = 30.0  # the same on a page: it moves only when its server gets to it

_REASONS = {
    "grammar": "a grammar",
    "remote_kv": "KV from a peer",
    "streaming_input": "more input",
    "preempted": "memory, once preempted",
    "slots": "a place among the running",
    "lora": "an adapter's place",
    "token_budget": "a step's token budget",
    "encoder_budget": "the encoder's budget",
    "skipped": "a reason that let others pass",
    "queued": "the next step",
    "other": "a reason that is not known",
    "unknown": "a reason that is not known",
    "": "a reason that is not known",
}
_REMEDIES = {
    "memory": "See who holds the blocks: what is leaked does not come back by waiting.",
    "deferred_frees": "They come back when the step in flight ends; if none ends, the engine must be restarted.",
    "delayed_frees": "They come back when the connector's peer answers or its lease ends: see whether that peer lives.",
    "remote_kv": "See whether the peer that sends lives; aborting those requests lets the others go on.",
}
_REMEDY = "Look into the engine's log; if nothing moves, restart it."


def words(reason: str) -> str:
    """Return a reason as people say it."""
    return _REASONS.get(reason, reason.replace("_", " "))


def remedy_of(reason: str) -> str:
    """Return what would help an engine that is stalled by ``reason``."""
    return _REMEDIES.get(reason, _REMEDY)
