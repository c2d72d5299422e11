"""Scheduling workloads for vLLM's real engine core, as values; ``workload_engine`` makes the engine, ``play`` plays."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

MAX_MODEL_LEN = 512


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """What is asked of an engine, and of what kind the engine is.

    ``shows`` names what must have happened in a play, or it proves nothing. ``prompt`` and ``output`` are (least, most)
    tokens, of which the first ``shared`` are common to all; ``window`` is in tokens, ``drafts`` are speculated tokens
    per step at most. The ratios are chances per request.
    """

    name: str
    shows: frozenset[str]
    blocks: int = 400
    requests: int = 40
    prompt: tuple[int, int] = (20, 200)
    output: tuple[int, int] = (3, 40)
    shared: int = 0
    running: int = 16
    budget: int = 1024
    caching: bool = True
    windows: tuple[int | None, ...] = (None,)
    drafts: int = 0
    policy: Literal["fcfs", "priority"] = "fcfs"
    asynchronous: bool = False
    abort_ratio: float = 0.1
    reset_ratio: float = 0.0


TIGHT: dict[str, Any] = {"blocks": 48, "output": (20, 90)}
ABORTS = frozenset({"abort waiting", "abort running", "abort preempted", "abort in flight"})

WORKLOADS = (
    Workload("prefix sharing", frozenset({"hit", "shared block"}), shared=96, prompt=(100, 220)),
    Workload("preemption", frozenset({"preemption"}), **TIGHT),
    Workload("aborts at every stage", ABORTS, **TIGHT, requests=60, abort_ratio=0.6, shared=32, prompt=(40, 200)),
    Workload("chunked prefill", frozenset({"chunk", "hit"}), budget=64, shared=48, prompt=(60, 300)),
    Workload("caching off", frozenset({"preemption"}), **TIGHT, caching=False, shared=48, prompt=(60, 200)),
    Workload(
        "reset in the middle",
        frozenset({"reset", "reset refused", "reset of running"}),
        shared=64,
        prompt=(70, 150),
        reset_ratio=0.4,
    ),
    Workload("speculation", frozenset({"accepted", "rejected", "preemption"}), **TIGHT, drafts=4),
    Workload("sliding window", frozenset({"placeholder"}), windows=(64,), prompt=(100, 300), shared=96),
    Workload(
        "hybrid groups",
        frozenset({"placeholder", "hit", "preemption"}),
        blocks=90,
        windows=(None, 64),
        prompt=(100, 250),
        output=(20, 90),
        shared=96,
    ),
    Workload("priority", frozenset({"preemption", "overtaken"}), **TIGHT, policy="priority", running=8),
    Workload(
        "async scheduling",
        frozenset({"preemption", "in flight", "abort in flight", "hit"}),
        **TIGHT,
        asynchronous=True,
        shared=32,
        prompt=(40, 200),
        abort_ratio=0.4,
    ),
    Workload(
        "async speculation", frozenset({"accepted", "rejected", "in flight"}), **TIGHT, asynchronous=True, drafts=3
    ),
    Workload(
        "everything at once",
        frozenset({"preemption", "hit", "accepted", "placeholder", "reset of running", "chunk"}),
        blocks=90,
        windows=(None, 64),
        prompt=(60, 250),
        output=(20, 90),
        shared=48,
        budget=96,
        drafts=3,
        policy="priority",
        abort_ratio=0.3,
        reset_ratio=0.2,
    ),
)
