"""A real engine on the CPU whose small pool serves conversations and prompts that come once, with ``evict_idle`` and
without: what is found in the prefix cache, and what is computed twice.

Each load runs in a process of its own (``python -m bench.prefix_order MODEL ...``), which prints one line of JSON. Time
is the load's, not the clock's: the same seed is the same load, and the figures are counts, whatever the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.rows import Row
from tests.bed.conversations import PEOPLE, Mix, talk

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "build" / "tiny-model"
PATIENCE = 900.0  # seconds
EVERY_SECONDS = 60.0  # the agent's cooldown of one lever
BLOCK = 32
ANSWER = 2  # tokens
ONE_SHOTS, ALL_RETURN = "prompts that come once beside", "all come back"
BLOCKS = {ONE_SHOTS: 140, ALL_RETURN: 75}
REBUILT_BUDGET, HARM_BUDGET = 0.8, 1.05


def run(quick: bool) -> list[Row]:
    """Return the rows; ``quick``: of the first load alone."""
    from tests.bed.tiny_model import build

    build(MODEL)
    rows = []
    for name, budget in ((ONE_SHOTS, REBUILT_BUDGET), (ALL_RETURN, HARM_BUDGET))[: 1 if quick else 2]:
        without, acted = (_play(name, acted) for acted in (False, True))
        rows += [
            Row(f"prefix order, {name}: hit ratio without", without["people"], "ratio"),
            Row(f"prefix order, {name}: hit ratio with", acted["people"], "ratio"),
            Row(f"prefix order, {name}: tokens computed again, without", without["rebuilt"], "tokens"),
            Row(f"prefix order, {name}: with / without", acted["rebuilt"] / without["rebuilt"], "ratio", budget),
        ]
    return rows


def _play(name: str, acted: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.prefix_order", str(MODEL), name, *(["--acted"] if acted else [])]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"the engine has told nothing:\n{ran.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(lines[-1])
    return told


def main() -> None:
    """Play one load; print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("name", choices=BLOCKS)
    parser.add_argument("--acted", action="store_true", help="an order a minute")
    parser.add_argument("--minutes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ.update(
        HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1",
        VLLM_LOGGING_LEVEL="ERROR", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1", KVTIDE_DISABLE="1",
    )  # fmt: skip
    served = _Served(options.model, BLOCKS[options.name])
    every = 10.0 if options.name == ONE_SHOTS else 0.0
    mix = Mix(minutes=options.minutes, one_shot_seconds=every, block_tokens=BLOCK)
    moved = 0

    def advance(now: float) -> None:
        nonlocal moved
        served.now = now
        if options.acted and now and now % EVERY_SECONDS == 0:
            moved += served.order()

    told = talk(mix, options.seed, advance, served.say)
    print(
        json.dumps(
            {
                "people": told.ratio(PEOPLE), "all": told.ratio(), "rebuilt": served.rebuilt(), "moved": moved,
                "asked": sum(told.asked.values()), "errors": served.reporter._guard.errors,
            }
        )
    )  # fmt: skip


class _Served:
    """The engine, in this process; one request at a time."""

    def __init__(self, model: str, blocks: int) -> None:
        from vllm import LLM

        from engine_hooks.core import hook
        from engine_hooks.settings import Settings

        llm = LLM(
            model,
            dtype="float32",
            max_model_len=2048,
            enforce_eager=True,
            block_size=BLOCK,
            num_gpu_blocks_override=blocks,
            max_num_seqs=8,
            max_num_batched_tokens=2048,
        )
        self.engine, self.now, self._serial = llm.llm_engine, 0.0, 0
        settings = Settings.from_environment({"KVTIDE_SOCKET": "/proc/none/agent.sock", "KVTIDE_LEVERS": "evict_idle"})
        core: Any = self.engine.engine_core
        self.reporter = hook.attach(core.engine_core, settings)
        self._desk = self.reporter._desk
        lever: Any = self._desk._levers["evict_idle"]
        self._context = lever._context
        object.__setattr__(self._context, "now", lambda: self.now)
        lever._releases._clock = lambda: self.now

    def say(self, tenant: str, session: str, prompt: list[int]) -> tuple[int, list[int]]:
        """Have a prompt answered; returns its tokens that were in the cache, and the answer's."""
        from vllm import SamplingParams

        self._serial += 1
        marks = {"kvtide": {"tenant": tenant, "session": session}}
        params = SamplingParams(temperature=0, max_tokens=ANSWER, ignore_eos=True, extra_args=marks)
        self.engine.add_request(str(self._serial), {"prompt_token_ids": prompt}, params)
        while True:
            for done in self.engine.step():
                if done.finished:
                    return int(done.num_cached_tokens or 0), list(done.outputs[0].token_ids)

    def order(self) -> int:
        """Pull the lever; returns how many blocks it moved."""
        from engine_hooks.levers.orders import ActionOrder

        self._serial += 1
        result = self._desk.execute(
            ActionOrder(
                action=f"a{self._serial}", lever="evict_idle", op="apply", instance=self._desk._instance,
                lease_seconds=30.0, arguments={},
            ),
            0.0,
        )  # fmt: skip
        if result.code not in ("done", "nothing"):
            raise RuntimeError(result.detail)
        return int(result.effect.get("moved", 0))

    def rebuilt(self) -> int:
        """Tokens computed again because their block was evicted, by the hooks' own count."""
        return int(self._context.observers["work"].section(self.now).rebuilt_evicted_total)


if __name__ == "__main__":
    main()
