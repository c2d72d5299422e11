"""What a verdict says when it has ended: a person who was told of it wants to know how it came to be over."""

from __future__ import annotations

ENGINE_GONE = "engine gone"
OUT_OF_SIGHT = "out of sight"
UNKNOWN = frozenset({ENGINE_GONE, OUT_OF_SIGHT})  # with these nobody saw the fault go away

AWAY = "no longer so"
BACK = "it is back"
MOVED = "not missed any more: taken to have moved"
_WORDS = {
    "kv_stall": "tokens come again, or nothing is left to do",
    "kv_orphan": "all of it was given back",
    "kv_over_freed": "none is left",
    "kv_delayed_free": "what was kept was given back",
    "kv_pinned": "what was kept was given back",
    "gpu_lost": "it answers, and has had no error for an hour",
    "oom": "none in ten minutes",
    "restart_loop": "it has stopped restarting",
    "dead_process_memory": "the driver has given it back",
    "sensor_stale": "it is read again",
    "bad_metric": "the number can be again",
}


def ending_of(kind: str, *, back: bool) -> str:
    """Return how a fault of this kind has ended when it is seen no more; ``back``: its engine is here and speaks."""
    if kind == "engine_missing":
        return BACK if back else MOVED
    return _WORDS.get(kind, AWAY)
