"""bad_metric: a number that can't be. It is not used for anything else, and it can be a fault of its own.

A value that was impossible once is a race in the engine's own counting; one that stays is accounting gone wrong. A
number that a page does not have, or has no more, is no number, and no fault: only to be known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.plain import plain
from agent.signals.gpus import units_of
from agent.sources.device.state import GpuState
from agent.sources.scrape.state import ScrapedEngine
from agent.state import AgentState, EngineState
from agent.subject import Subject
from agent.units import human_bytes
from agent.verdicts.base import Finding, View
from agent.verdicts.who import worst

CLOSE = 0.02  # of a GPU's memory: sums of numbers read one after another are not exact
REMEDY = (
    "Believe none of this engine's numbers of that name. If blocks are counted below zero or above the pool, some were "
    "given back twice: drain and restart it, and report it to the engine's makers."
)
REMEDY_DEVICE = "Trust the driver's total and used only; a driver older than the library that asks it is a usual cause."
REMEDY_GONE = "See whether the engine was upgraded and its metrics renamed; install the hooks for exact numbers."


class BadMetric:
    """Fires on values that stay impossible; a value once impossible goes away by itself."""

    kind = "bad_metric"
    confirm_seconds = 30.0
    clear_seconds = 60.0
    of_absence = False

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the engines and GPUs that say what can't be."""
        return worst(_all(view.state))


def _all(state: AgentState) -> Iterator[tuple[Subject, Finding]]:
    for page in state.scrape.engines if state.scrape is not None else ():
        for finding in (_impossible(page), _vanished(page)):
            if finding is not None:
                yield Subject(scope="engine", engine=page.engine), finding
    for engine in state.engines:
        finding = _pool(engine)
        if finding is not None:
            yield Subject(scope="engine", engine=engine.engine), finding
    for gpu in units_of(state, lost=True):
        finding = _memory(gpu)
        if finding is not None:
            yield Subject(scope="gpu", gpu=gpu.gpu), finding


def _impossible(page: ScrapedEngine) -> Finding | None:
    said, use = page.impossible, page.usage_ratio
    if not said and use is not None and not 0 <= use <= 1:  # a recording of another tool's may have it
        said = f"The engine says that {use:.4g} of its KV cache is in use, which can't be."
    elif not said and page.phase == "up" and use is None and page.bad_values:
        reasons = ", ".join(sorted(page.bad_values))
        said = f"What the engine says of its KV cache can't be ({reasons}); not used."
    if not said:
        return None
    evidence: dict[str, float] = {f"bad_{reason}": count for reason, count in page.bad_values.items()}
    return Finding(plain(said, 400), REMEDY, evidence, tier="warn")


def _vanished(page: ScrapedEngine) -> Finding | None:
    if page.phase != "up" or page.usage_ratio is not None:
        return None
    return Finding(
        f"The page of engine {plain(page.engine)} does not say how much of its KV cache is in use: growth, pressure "
        "and leaks can't be judged there.",
        REMEDY_GONE,
        {"missing": len(page.cannot)},
        tier="note",
    )


def _pool(engine: EngineState) -> Finding | None:
    pool = engine.pool
    if pool is None:
        return None
    parts = {"held": pool.held, "cached idle": pool.cached_idle, "empty": pool.empty}
    wrong = {name: number for name, number in parts.items() if number is not None and not 0 <= number <= pool.capacity}
    if not wrong:
        return None
    name, number = next(iter(wrong.items()))
    return Finding(
        f"Engine {engine.engine} counts {number:,} {name} KV blocks in a pool of {pool.capacity:,}: that can't be.",
        REMEDY,
        {f"{name.replace(' ', '_')}_blocks": number, "capacity_blocks": pool.capacity},
        tier="warn",
    )


def _memory(gpu: GpuState) -> Finding | None:
    memory = gpu.memory
    if memory is None or gpu.unified:
        return None
    taken = memory.used + memory.free + (memory.reserved or 0)
    # What a driver keeps for itself it may not tell: then the sum is below the total, and that is no fault.
    if memory.used <= memory.total and taken <= memory.total * (1 + CLOSE):
        return None
    return Finding(
        f"The driver says that GPU {gpu.gpu} has {human_bytes(memory.used)} used and {human_bytes(memory.free)} free "
        f"of {human_bytes(memory.total)}: that can't be.",
        REMEDY_DEVICE,
        {"used_bytes": memory.used, "free_bytes": memory.free, "total_bytes": memory.total},
        tier="warn",
    )
