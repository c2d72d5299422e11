"""A real ``EngineCoreProc`` with vLLM's own busy loop, scheduler and pool, over a fake GPU: many requests, no model.

``python -m tests.bed.core_proc --blocks 40000 --running 256 --prefix 1024 --seconds 30 --step-ms 20`` keeps 256
requests running that share a prompt prefix, prints ``READY <pid>`` once all run, and at the end one line of JSON
with the time between steps. It ends by itself after ``--seconds`` of running, or on SIGTERM. Hooks are loaded as
in any engine: through vLLM's general plugins.

Only what surrounds the engine is replaced: the executor sleeps (and so releases the GIL, as a GPU step does) and
makes up tokens, and the two socket threads are the client that sends requests and replaces finished ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from tests.bed.fake_executor import BLOCK_SIZE, FakeExecutor
from tests.bed.scheduler import make_config, make_request

# isort: split
# What tests.bed.scheduler sets in the environment must be there before vLLM is imported.
from vllm.plugins import load_general_plugins
from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.engine import core as engine_core
from vllm.v1.engine.core import EngineCoreProc
from vllm.v1.engine.utils import EngineZmqAddresses

MAX_MODEL_LEN = 4096
# Of its own, behind the shared prefix, so that requests differ.
OWN_PROMPT = 32
READY_POLL_SECONDS = 0.02


class FakeClientCore(EngineCoreProc):
    """The real engine process, but for its handshake and its two socket threads, which are the client."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.numbers = itertools.count()
        config = make_config(
            block_size=BLOCK_SIZE,
            max_num_seqs=options.running,
            # The whole first wave's own prompts in a few steps, as an engine of this size would.
            tokens=max(8192, options.prefix + OWN_PROMPT),
            max_model_len=MAX_MODEL_LEN,
        )
        config.cache_config.num_gpu_blocks_override = options.blocks
        super().__init__(config, True, "", FakeExecutor, log_stats=True)
        self.model_executor.requests = self.scheduler.requests
        self.model_executor.step_seconds = options.step_ms / 1000

    @contextmanager
    def _perform_handshakes(self, *_: Any) -> Generator[EngineZmqAddresses, None, None]:
        yield EngineZmqAddresses(inputs=[], outputs=[])

    def process_input_sockets(self, inputs: Any, coordinator: Any, identity: Any, ready_event: Any) -> None:
        """Report ready; requests are put into the queue by ``add``."""
        ready_event.set()

    def process_output_sockets(self, outputs: Any, coordinator: Any, engine_index: int) -> None:
        """Take the outputs as the client would, and replace each request that has finished."""
        while True:
            item = self.output_queue.get()
            if isinstance(item, bytes):
                return
            for output in item[1].outputs:
                if output.finish_reason is not None and self.is_running():
                    self.add()

    def add(self, share: float = 1.0) -> None:
        """Send one more request, which generates ``share`` of the tokens that one may."""
        tokens = max(1, int(self.options.max_tokens * share))
        length = self.options.prefix + OWN_PROMPT
        request = make_request(
            next(self.numbers),
            length,
            tokens,
            self.options.prefix,
            block_size=BLOCK_SIZE,
            hasher=self.request_block_hasher,
        )
        self.input_queue.put_nowait((EngineCoreRequestType.ADD, (request, 0)))

    def end(self) -> None:
        """Ask the busy loop to end; for other threads than the engine's. Needs a vLLM that has this state."""
        self.shutdown_state = engine_core.EngineShutdownState.REQUESTED
        self.input_queue.put_nowait((EngineCoreRequestType.WAKEUP, None))


def drive(core: FakeClientCore, stop: threading.Event) -> None:
    """Fill the engine, say when all requests run, and end it after its time or when told to."""
    draw = random.Random(0)
    # The first wave ends spread over time, so that replacements do too and the load stays even.
    for _ in range(core.options.running):
        core.add(draw.uniform(0.1, 1.0))
    while len(core.scheduler.running) < core.options.running and not stop.is_set():
        time.sleep(READY_POLL_SECONDS)
    core.model_executor.step_times.clear()
    print(f"READY {os.getpid()}", flush=True)
    stop.wait(core.options.seconds)
    core.end()


def report(core: FakeClientCore) -> dict[str, float]:
    """Return how many steps were run since READY and the time between them, in ms."""
    times = list(core.model_executor.step_times)
    gaps = sorted((after - before) * 1000 for before, after in itertools.pairwise(times)) or [0.0]
    return {
        "steps": len(times),
        "requests": next(core.numbers),
        "step_ms_mean": round(statistics.fmean(gaps), 4),
        "step_ms_p50": round(gaps[len(gaps) // 2], 4),
        "step_ms_p99": round(gaps[int(len(gaps) * 0.99)], 4),
    }


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=50_000, help="size of the pool, in blocks of 16 tokens")
    parser.add_argument("--running", type=int, default=256, help="requests running at a time")
    parser.add_argument("--prefix", type=int, default=1024, help="prompt tokens that all requests share")
    parser.add_argument("--max-tokens", type=int, default=2048, help="tokens that a request generates at most")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to run, from READY on")
    parser.add_argument("--step-ms", type=float, default=10.0, help="how long the fake GPU takes for a step")
    options = parser.parse_args(arguments)
    longest = options.prefix + OWN_PROMPT + options.max_tokens
    if longest > MAX_MODEL_LEN:
        parser.error(f"prefix and max-tokens make requests of {longest} tokens, more than {MAX_MODEL_LEN}")
    return options


def main() -> None:
    """Run the engine on this thread, as vLLM does, until its time is over."""
    options = parse(sys.argv[1:])
    # Also in vLLM plugins may be loaded before the engine's class is used; hooks then see its whole life.
    load_general_plugins()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    core = FakeClientCore(options)
    threading.Thread(target=drive, args=(core, stop), daemon=True).start()
    with suppress(SystemExit):
        core.run_busy_loop()
    print(json.dumps(report(core)), flush=True)
    core.shutdown()


if __name__ == "__main__":
    main()
