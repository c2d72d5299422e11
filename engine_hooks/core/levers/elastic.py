"""Pools that are not vLLM's own: kvcached's, which maps memory as it is needed and gives pages back by itself."""

from __future__ import annotations

from engine_hooks.core.pins import Pool
from engine_hooks.levers.base import RefusedError

# Its classes are put together at run time, from vLLM's pool and parts that differ by vLLM's version; this name stays.
_KVCACHED = "ElasticBlockPool"


def refuse_elastic(pool: Pool) -> None:
    """Refuse, as unsupported, a pool whose size another decides on, and say how it is asked."""
    if any(one.__name__ == _KVCACHED for one in type(pool).__mro__):
        raise RefusedError(
            "unsupported",
            "pool: kvcached's, which gives its pages back by itself. For a smaller one lower kvcached's own limit: "
            "`kvctl limit NAME SIZE` (`kvctl list` has the names); not every version grows again",
        )
