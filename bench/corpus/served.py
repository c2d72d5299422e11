"""A real ``vllm serve`` on the CPU with real hooks, recorded by a real agent (``play.py``); kept under build/corpus."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from random import Random

from agent.bundle.format import read
from agent.errors import KvtideError
from bench.corpus.play import CHAPTERS, path_of
from bench.corpus.scenario import Label, Made, Part, Recipe, Scenario
from tests.bed.agent import KVTIDE
from tests.bed.engine import MODEL_DIR, ROOT, VLLM

FAMILY = "engine"
PLAY_SECONDS = 1_800.0
# By the verdict: how long until a person would know, and what else would be right to say.
_DUE = {"kv_orphan": 20.0, "kv_pressure": 120.0}
_OF_LOAD = frozenset({"preemption_thrash", "kv_pressure", "tenant_surge", "kv_stall"})


def made(chapter: str, part: Part, _rng: Random) -> Made:
    """Return the states of a chapter and what was wrong in it."""
    bundle = read(path_of(part, chapter))
    labels = tuple(
        Label(each.kind, each.onset, each.ended, each.subject, _DUE[each.kind], _OF_LOAD)
        for each in bundle.header.labels
    )
    return Made(bundle.states(), labels)


def recipes() -> tuple[Recipe, ...]:
    """Return the recipes, one for each part; none without an engine's environment and a model."""
    if not all(path.exists() for path in (VLLM, KVTIDE, MODEL_DIR)):
        return ()
    parts: tuple[Part, ...] = ("tuning", "evaluation")
    return tuple(
        Recipe(
            f"engine: {chapter}, {part}",
            FAMILY,
            kind,
            partial(made, chapter, part),
            tuning=int(part == "tuning"),
            evaluation=int(part == "evaluation"),
            long=True,
        )
        for chapter, kind in CHAPTERS.items()
        for part in parts
    )


def prepare(wanted: Sequence[Scenario]) -> None:
    """Play what ``wanted`` lacks: five minutes for each part. Raises KvtideError where that fails."""
    for part in sorted({each.part for each in wanted if each.recipe.family == FAMILY}):
        if all(path_of(part, chapter).exists() for chapter in CHAPTERS):
            continue
        print(f"[score] a real engine is recorded for the {part} part: five minutes", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "bench.corpus.play", part]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PLAY_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise KvtideError(f"bench.corpus.play {part}: not done within {PLAY_SECONDS:.0f} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            raise KvtideError(f"bench.corpus.play {part}: ended with code {done.returncode}: {said[0][:300]}")
