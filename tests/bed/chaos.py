"""Levers pulled at random on a real engine that serves: what survives must be token for token what it is without.

``python -m tests.bed.chaos --seconds 600`` (``make chaos``) plays for so long, half of it with asynchronous scheduling
and half without, and ends with 1 when a token differs, a block is lost, the engine died, or when the control, one
spoiled block of one running request, goes unnoticed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_hooks.levers.orders import ActionResult
from tests.bed.engine import EngineServer
from tests.bed.greedy import PROMPTS, Answer, Tokens, quiet, serve_all
from tests.bed.orders import Orders

BLOCKS = 300
ALLOWED = (200, 429, 503)  # what a client may see while levers are pulled
REST_SECONDS = 180.0  # then what is in force, runs or is held will not go any more
CONTROL_SECONDS, CONTROLS = 10.0, 3
PATIENCE_SECONDS = 180.0  # how much longer it may take until what must have been seen was seen, on a busy machine
SPOIL_AFTER_SECONDS = 2.0

Arguments = dict[str, Any]

# What each lever is asked for. Those of the front end and of several ranks have tests of their own.
ARGUMENTS: dict[str, Callable[[random.Random], Arguments]] = {
    "watermark": lambda draw: {"ratio": draw.uniform(0.0, 0.6)},
    "active_cap": lambda draw: {"factor": draw.choice((0.5, 0.8))},
    "batch_tokens": lambda draw: {"factor": draw.choice((0.3, 0.8))},
    "evict_idle": lambda draw: {"idle_seconds": 0.0, "blocks": draw.randint(1, 200)},
    "hold_hot": lambda _: {},
    "reclaim_orphans": lambda _: {"age_seconds": 1.0},
    "preempt": lambda draw: {"requests": draw.randint(1, 4), "cap": True},
    "pause": lambda _: {},
    "reset_prefix": lambda _: {},
    "end_zombies": lambda _: {"seconds": 30.0},
}


@dataclass(slots=True)
class Played:
    """How it went. ``differ``: prompts with other tokens than in the quiet run; ``codes``: answers of levers."""

    served: int = 0
    refused: int = 0
    differ: list[int] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    codes: Counter[tuple[str, str]] = field(default_factory=Counter)


def play(
    orders: Orders,
    url: str,
    expected: Tokens,
    seconds: float,
    seed: int,
    *,
    enough: Callable[[Played], bool] = lambda _: True,
) -> Played:
    """Serve for ``seconds`` while levers are pulled at random, and on until it was ``enough``; return how it went."""
    played, stop = Played(), threading.Event()
    puller = threading.Thread(target=_pull, args=(orders, played, stop, random.Random(seed)))

    def take(number: int, answer: Answer) -> None:
        if answer.status not in ALLOWED:
            played.strange.append(f"prompt {number}: {answer}")
        if answer.tokens is None:
            played.refused += 1
            return
        played.served += 1
        if answer.tokens != expected[number]:
            played.differ.append(number)

    puller.start()
    try:
        asyncio.run(serve_all(url, _numbers(seconds, seed, lambda: enough(played)), take))
    finally:
        stop.set()
        puller.join()
    return played


def _numbers(seconds: float, seed: int, enough: Callable[[], bool]) -> Iterator[int]:
    draw, began = random.Random(seed), time.monotonic()
    while (lasted := time.monotonic() - began) < seconds or (lasted < seconds + PATIENCE_SECONDS and not enough()):
        yield draw.randrange(PROMPTS)


def _pull(orders: Orders, played: Played, stop: threading.Event, draw: random.Random) -> None:
    levers = [row.lever for row in orders.engine().levers if row.ok and row.lever in ARGUMENTS]
    held: list[tuple[str, str]] = []
    number = 0
    while not stop.is_set() and levers:
        number += 1
        try:
            result = _one(orders, draw, levers, held, number)
        except (TimeoutError, RuntimeError) as error:
            played.strange.append(repr(error))
            return
        played.codes[result.lever, result.code] += 1
        stop.wait(draw.uniform(0.05, 0.5))


def _one(
    orders: Orders, draw: random.Random, levers: Sequence[str], held: list[tuple[str, str]], number: int
) -> ActionResult:
    if held and draw.random() < 0.4:
        lever, action = held[draw.randrange(len(held))]
        op = draw.choice(("undo", "renew", "amend"))
        arguments = ARGUMENTS[lever](draw) if op == "amend" else {}
        result = orders.order(op, lever, action=action, lease_seconds=draw.uniform(0.5, 3.0), **arguments)
    else:
        lever, action = draw.choice(levers), f"chaos-{number}"
        op = "try" if draw.random() < 0.1 else "apply"
        lease = draw.uniform(0.5, 3.0)
        result = orders.order(op, lever, action=action, lease_seconds=lease, **ARGUMENTS[lever](draw))
        if result.in_force:
            held.append((lever, action))
    if not result.in_force and (lever, action) in held:
        held.remove((lever, action))
    return result


def at_rest(orders: Orders) -> bool:
    """Whether nothing runs, nothing is in force, and the accounts are clean."""
    engine = orders.engine()
    pool = engine.pool
    clean = pool is not None and (pool.held, pool.orphaned, pool.over_freed) == (0, 0, 0)
    return clean and not engine.in_force and not engine.waiting and engine.running == 0


@contextmanager
def serving(place: Path, *, asynchronous: bool) -> Iterator[tuple[Orders, EngineServer]]:
    """A real server that obeys every lever, and the link by which they are pulled."""
    folder = place / "corrupt"
    folder.mkdir()
    with Orders(place) as orders:
        env = {**orders.engine_env(), "KVTIDE_LEVERS": ",".join(ARGUMENTS), "KVTIDE_TEST_CORRUPT_DIR": str(folder)}
        args = ("--async-scheduling",) if asynchronous else ("--no-async-scheduling",)
        with EngineServer(place / "engine.log", num_blocks=BLOCKS, args=args, env=env) as engine:
            engine.wait_ready()
            orders.wait_live()
            yield orders, engine


def control(orders: Orders, url: str, expected: Tokens, folder: Path, seed: int) -> Played:
    """Play on while one block of one running request is spoiled: this must be noticed.

    Another one is spoiled where it was not: a lever may have ended that request, or had it computed anew. Raises
    ``RuntimeError`` when no block could be spoiled.
    """
    spoiled = folder / "corrupted.json"
    for attempt in range(CONTROLS):
        spoil = threading.Timer(SPOIL_AFTER_SECONDS, (folder / "corrupt").touch)
        spoil.start()
        played = play(orders, url, expected, CONTROL_SECONDS, seed + attempt, enough=lambda _: spoiled.exists())
        spoil.join()
        if not spoiled.exists():
            raise RuntimeError(f"nothing was spoiled: {[path.name for path in folder.iterdir()]}")
        if played.differ:
            break
        spoiled.unlink()
    return played


def main() -> int:
    """Play, tell how it went, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bed.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to pull levers in all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = False
    for asynchronous in (True, False):
        with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
            place = Path(name)
            with serving(place, asynchronous=asynchronous) as (orders, engine):
                expected = quiet(engine.url)
                played = play(orders, engine.url, expected, options.seconds / 2, options.seed)
                orders.wait(lambda: at_rest(orders), REST_SECONDS)
                spoiled = control(orders, engine.url, expected, place / "corrupt", options.seed + 1)
        print(f"[chaos] {'asynchronous' if asynchronous else 'synchronous'} scheduling:")
        print(f"[chaos]   {played.served} served, {played.refused} refused, {len(played.differ)} with other tokens")
        print(f"[chaos]   control: {len(spoiled.differ)} with other tokens after one block was spoiled")
        for (lever, code), count in sorted(played.codes.items()):
            print(f"[chaos]   {lever}: {code} {count}")
        for line in played.strange:
            print(f"[chaos]   strange: {line}")
        sys.stdout.flush()
        failed = failed or bool(played.differ or played.strange) or not spoiled.differ
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
