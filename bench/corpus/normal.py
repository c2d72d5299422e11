"""Series of others that are known to be normal, where they lie beside the project: as host and device memory."""

from __future__ import annotations

import csv
import gzip
from functools import partial
from pathlib import Path
from random import Random

from bench.corpus.clock import MINUTE, Clock, Tick
from bench.corpus.healthy import Serving
from bench.corpus.node import Card, Node
from bench.corpus.scenario import Made, Recipe
from bench.corpus.torch import GIB, Torch

DATA = Path(__file__).parents[2] / ".." / "shared" / "data" / "normal_series"


def _heaps(path: Path) -> list[tuple[list[float], list[float]]]:
    """Return the heaps of one recording: seconds, and the share of the largest value."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name.endswith("heap_used_value")]
    found = []
    for name in names:
        points = [(float(row["t"]), float(row[name])) for row in rows if row[name] and float(row[name]) > 0]
        if len(points) > 600:
            most, begin = max(value for _, value in points), points[0][0]
            found.append(([at - begin for at, _ in points], [value / most for _, value in points]))
    return found


def _noisy(path: Path) -> list[tuple[list[float], list[float]]]:
    """Return a series of five minutes each."""
    with path.open(encoding="utf-8") as file:
        values = [float(row["value"]) for row in csv.DictReader(file)]
    least, most = min(values), max(values)
    return [([n * 5 * MINUTE for n in range(len(values))], [(value - least) / (most - least) for value in values])]


def _at(times: list[float], values: list[float], t: float, place: list[int]) -> float:
    while place[0] + 1 < len(times) and times[place[0] + 1] <= t:
        place[0] += 1
    return values[place[0]]


def _as_heap(times: list[float], values: list[float], rng: Random) -> Made:
    clock = Clock(rng, times[-1], 5.0 if times[-1] < 20_000 else 300.0)
    node = Serving(rng, clock, load=0.4, limit=None)
    size, place = rng.uniform(2, 12) * GIB, [0]

    def act(tick: Tick) -> None:
        if not node.core.started_at:  # they begin with their process
            node.core.started_at = node.engine.started_at = tick.at
        node.core.more = int(size * _at(times, values, tick.t, place))

    return Made(node.run(act))


def _as_tensors(times: list[float], values: list[float], rng: Random) -> Made:
    clock = Clock(rng, times[-1], 5.0 if times[-1] < 20_000 else 300.0)
    node = Node(rng, clock)
    node.cards.append(Card(rng, "0", 40 * GIB))
    torch = Torch(rng, weights=8 * GIB, kv=0, graphs=0, work=1 * GIB)
    node.trainers["train"] = torch
    size, place = rng.uniform(4, 20) * GIB, [0]

    def act(tick: Tick) -> None:
        torch.kept = int(size * _at(times, values, tick.t, place))

    return Made(node.run(act))


def recipes() -> tuple[Recipe, ...]:
    """Return a recipe for each series and use; none where the series are not there."""
    if not DATA.is_dir():
        return ()
    found: list[Recipe] = []
    for path in sorted(DATA.iterdir()):
        name = path.name.partition(".")[0]
        for n, (times, values) in enumerate(_heaps(path) if path.suffix == ".gz" else _noisy(path)):
            found.append(
                Recipe(
                    f"normal: {name} {n} as a heap",
                    "normal",
                    "",
                    partial(_as_heap, times, values),
                    0,
                    1,
                    long=times[-1] > 20_000,
                )
            )
            found.append(
                Recipe(
                    f"normal: {name} {n} as tensors",
                    "normal",
                    "",
                    partial(_as_tensors, times, values),
                    0,
                    1,
                    long=times[-1] > 20_000,
                )
            )
    return tuple(found)
