"""Compaction of a real vLLM engine on the CPU with saved weights: tokens, accounts and memory. One process per case.

Long forms by hand: ``python -m tests.engine.compaction.cycles``, and ``python -m tests.engine.compaction.real_engine
build/tiny-model --cycles 100``, also with ``--asynchronous``, ``--tensor-parallel 2``, ``--drafts``.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.compaction import cycles

BLOCK_BYTES = 32_768
OFFLINE = 2499  # of 2999 blocks, when one in six is left
CYCLES = 30  # `make chaos` plays a hundred


def play(*options: str) -> dict[str, Any]:
    return cycles.play("--requests", "10", *options)


@pytest.mark.parametrize(
    "options", [("--control",), ("--asynchronous",)], ids=["one step at a time", "steps in flight"]
)
def test_tokens_are_the_same_the_accounts_are_clean_and_memory_goes_and_comes(options: tuple[str, ...]) -> None:
    told = play("--cycles", "4", *options)
    assert told["queue"] == ("--asynchronous" in options)
    assert (told["differing"], told["same_without"]) == (0, True)
    assert told["begun"] == 4
    assert told["moved"] + told["moved_idle"] > 0
    assert (told["unclean"], told["errors"], told["offline"], told["capacity"]) == (0, {}, 0, 2999)
    before, small, after = told["resident"]
    assert told["state"] == "shrunk"
    assert told["released"] >= 0.95 * OFFLINE * BLOCK_BYTES
    assert before - small > 0.9 * OFFLINE * BLOCK_BYTES
    assert after - small > 0.9 * OFFLINE * BLOCK_BYTES
    if "--control" in options:
        assert told["control"] > 0, "without the copies tokens must differ: else they would show nothing"


@pytest.mark.parametrize("kind", cycles.KINDS)
def test_random_cycles_under_a_load_that_is_preempted_change_no_token(kind: str) -> None:
    told = cycles.play(*cycles.TIGHT, "--cycles", str(CYCLES), *cycles.KINDS[kind])
    assert told["queue"] == ("--asynchronous" in cycles.KINDS[kind])
    assert cycles.faults_of(told, CYCLES) == []


@pytest.mark.parametrize("where", ["copy", "rewrite"])
def test_a_worker_that_is_killed_in_mid_move_ends_the_engine_before_a_wrong_token(where: str) -> None:
    told = play("--kill", where)
    assert told["moved"] > 0, "it had moved a slice before"
    assert (told["raised"], told["stepped"], told["more"], told["wrong"]) == (1, 0, False, 0)
    assert told["told"] > 0
