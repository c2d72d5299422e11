"""A real vLLM engine on the CPU, with saved weights, whose pool is shrunk and grown while it serves: one process.

``python -m tests.engine.compaction.real_engine MODEL --blocks 3000 --cycles 20`` runs a load without compaction, then
the same with orders at random moments, and prints a line of JSON. With saved weights tokens depend on the KV cache.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from typing import Any

os.environ.update(
    HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", VLLM_LOGGING_LEVEL="ERROR",
    VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind",
    KVTIDE_DISABLE="1", OMP_NUM_THREADS="1",
)  # fmt: skip

from tests.engine.compaction.law import check_law
from tests.engine.compaction.pulling import Puller, control_of, killed

BLOCK = 32
MAX_STEPS = 20_000
PREFIXES = 4


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--blocks", type=int, default=3000)
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--cycles", type=int, default=20, help="shrinks that are begun at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=int, default=400, help="tokens of a prompt at most")
    parser.add_argument("--answers", type=int, default=40, help="tokens of an answer at most")
    parser.add_argument("--burst", type=int, default=1, help="requests come so many at once, and as rarely")
    parser.add_argument("--runs", type=int, default=12, help="how often the load is played at most")
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--drafts", action="store_true", help="n-gram speculation")
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--kill", choices=("copy", "rewrite"), help="a worker is killed in the middle of this")
    parser.add_argument(
        "--control", action="store_true", help="at the end the copies are left out: outputs must differ"
    )
    return parser.parse_args(arguments)


def schedule_asynchronously() -> None:
    """Undo what the CPU platform does to the option; its runner can do it."""
    from vllm.platforms.cpu import CpuPlatform

    original = CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, config: Any) -> None:
        original(cls, config)
        config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)


class Real:
    """The engine, in this process; its workers too unless there are several."""

    def __init__(self, options: argparse.Namespace) -> None:
        from vllm import LLM

        from engine_hooks.core import hook
        from engine_hooks.settings import Settings

        if options.asynchronous:
            schedule_asynchronously()
        several = options.tensor_parallel > 1 or options.kill is not None
        llm = LLM(
            options.model,
            dtype="float32",
            max_model_len=2048,
            enforce_eager=True,
            block_size=BLOCK,
            num_gpu_blocks_override=options.blocks,
            max_num_seqs=32,
            max_num_batched_tokens=2048,
            tensor_parallel_size=options.tensor_parallel,
            distributed_executor_backend="mp" if several else "uni",
            async_scheduling=options.asynchronous,
            speculative_config={"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
            if options.drafts
            else None,
        )
        self.engine = llm.llm_engine
        self.core: Any = self.engine.engine_core.engine_core
        settings = Settings.from_environment({"KVTIDE_SOCKET": "/proc/none/agent.sock", "KVTIDE_LEVERS": "compact"})
        self.reporter = hook.attach(self.core, settings)
        self.scheduler, self.pool = self.core.scheduler, self.core.scheduler.kv_cache_manager.block_pool
        self.lever: Any = self.reporter._desk._levers["compact"]
        self.compactor = self.lever._compactor
        self.options = options
        self.actions = 0
        self.preempted = self.cached_tokens = 0
        self.told: dict[str, list[int]] = {}  # by request, also of those that have not ended
        # A long-lived server's free blocks are in no order.
        queue = self.pool.free_block_queue
        blocks = queue.popleft_n(queue.num_free_blocks)
        random.Random(3).shuffle(blocks)
        queue.append_n(blocks)

    def order(self, op: str, action: str = "", **arguments: Any) -> Any:
        from engine_hooks.levers.orders import ActionOrder

        self.actions += 1
        action = action or f"a{self.actions}"
        desk = self.reporter._desk
        return desk.execute(
            ActionOrder(
                action=action, lever="compact", op=op, instance=desk._instance, lease_seconds=600, arguments=arguments
            ),
            0.0,
        )

    def load(self) -> list[tuple[int, list[int], int]]:
        """Return requests: the step at which each comes, its prompt, and how many tokens it wants."""
        draw = random.Random(self.options.seed)
        words = [[draw.randrange(3, 500) for _ in range(6)] for _ in range(20)]
        shared = [[draw.randrange(3, 500) for _ in range(160)] for _ in range(PREFIXES)]
        most, burst = self.options.answers, self.options.burst
        requests, step = [], 0
        for number in range(self.options.requests):
            if number % burst == 0:
                step += burst * draw.choice((0, 0, 1, 2, 8))
            tail = [token for _ in range(draw.randrange(4, self.options.longest // 6)) for token in draw.choice(words)]
            requests.append((step, draw.choice((*shared, [])) + tail, draw.choice((most // 5, most // 2, most))))
        return requests

    def run(self, pull: Any = None) -> dict[str, list[int]]:
        """Serve the load; ``pull(number of the step)`` is called between steps. Returns the tokens by request."""
        from vllm import SamplingParams

        self.scheduler.kv_cache_manager.reset_prefix_cache()
        waiting, out = self.load(), {}
        for number in range(MAX_STEPS):
            while waiting and waiting[0][0] <= number:
                _, prompt, tokens = waiting.pop(0)
                params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
                self.engine.add_request(str(len(self.load()) - len(waiting)), {"prompt_token_ids": prompt}, params)
            if not waiting and not self.engine.has_unfinished_requests():
                break
            before = sum(request.num_preemptions for request in self.scheduler.requests.values())
            for done in self.engine.step():
                self.told[done.request_id] = list(done.outputs[0].token_ids)
                if done.finished:
                    self.cached_tokens += done.num_cached_tokens or 0
                    out[done.request_id] = list(done.outputs[0].token_ids)
            self.preempted += max(
                0, sum(request.num_preemptions for request in self.scheduler.requests.values()) - before
            )
            check_law(self.reporter, self.pool, self.compactor.tail.flags)
            if pull is not None:
                pull(number)
        else:
            raise AssertionError("the load did not come to its end")
        return out

    def settle(self) -> None:
        """At rest: have wake-ups do what is to be done."""
        import time

        while self.core.batch_queue:
            self.core.step_fn()
        for _ in range(3000):
            self.reporter.on_wake()
            if self.compactor.counts.state in ("idle", "shrunk", "stopped"):
                return
            time.sleep(0.005)
        raise AssertionError(f"it does not settle: {self.compactor.counts.state} {self.compactor.counts.reason}")

    def audit(self) -> tuple[int, int | None]:
        """Blocks that an audit of this moment names, and those that are lost."""
        found = self.reporter._accounts.audit.complete()
        return len(found.excess), found.lost

    def resident(self) -> int:
        """Bytes resident in this process and those of its workers."""
        import multiprocessing

        pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
        total = 0
        for pid in pids:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
                total += next(int(line.split()[1]) for line in lines if line.startswith("Rss:")) * 1024
        return total


def main() -> None:
    options = parse(sys.argv[1:])
    real = Real(options)
    alone = real.run()
    print(f"steps {real.reporter._steps.number}", file=sys.stderr, flush=True)
    preempted_without, real.preempted, real.cached_tokens = real.preempted, 0, 0
    if options.kill is not None:
        print(json.dumps(killed(real, options.kill, alone)), flush=True)
        os._exit(0)  # vLLM's own way down waits for the worker that is gone
    puller = Puller(real, options.cycles)
    seed, runs, differing = options.seed, 0, 0
    while puller.left and runs < options.runs:
        out = real.run(puller)
        differing += sum(out[key] != alone[key] for key in alone)
        runs += 1
        print(f"run {runs}: {puller.left} left, refused {puller.refused}", file=sys.stderr, flush=True)
    preempted, cached_tokens = real.preempted, real.cached_tokens
    if puller.action:
        real.order("undo", puller.action)
    real.settle()
    unclean_at_end = real.audit() != (0, 0)
    same_without = not differing or real.run() == alone  # else nothing can be compared
    memory = [real.resident()]
    rows = []
    result = real.order("apply", "m", to_blocks=options.blocks // 6)
    rows.append(result.code)
    real.settle()
    memory.append(real.resident())
    released, usage = real.compactor.counts.released_bytes, real.pool.get_usage()
    state = real.compactor.counts.state
    rows.append(real.order("undo", "m").code)
    real.settle()
    memory.append(real.resident())
    counts = real.compactor.counts
    moved = counts.moved, counts.moved_idle
    told: dict[str, Any] = {
        "seed": seed, "same_without": same_without, "requests": len(alone), "runs": runs,
        "differing": differing, "begun": puller.begun, "whole": puller.whole, "audited": puller.audited + 1,
        "unclean": puller.unclean + unclean_at_end, "refused": puller.refused, "moved": moved[0],
        "moved_idle": moved[1], "dropped": counts.dropped, "grown": counts.grown,
        "demanded": counts.demanded, "preempted": preempted, "preempted_without": preempted_without,
        "pressed": puller.pressed, "cached_tokens": cached_tokens,
        "resident": memory, "released": released, "usage_at_rest": usage, "state": state, "codes": rows,
        "offline": real.compactor.tail.count, "capacity": real.reporter._view.capacity(),
        "errors": real.reporter._guard.errors, "pauses": list(counts.pauses.counts),
        "queue": real.core.batch_queue is not None, "own_step": "step_fn" in vars(real.core),
        "reason": counts.reason,
    }  # fmt: skip
    # Behind all that is told of: what it leaves is spoiled on purpose, and its last shrink may be in force.
    told["control"] = control_of(real, alone) if options.control else None
    print(json.dumps(told))


if __name__ == "__main__":
    main()
