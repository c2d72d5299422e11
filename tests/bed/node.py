"""The processes of a node full of engines, and no model: for each engine a core, a worker and an API server.

``python -m tests.bed.node --engines 8`` in the engine environment, with ``KVTIDE_SOCKET`` set: prints one line of JSON
with the pids by role once all are there, and ends when its standard input does. A core is a real scheduler with the
hooks' real reporter on a thread that is woken as an engine's is; a worker has the real probe over allocators that keep
torch's rules; an API server has the real link. Each is a process of its own, forked, so that 24 of them fit.

Without ``--busy`` no core makes steps for itself: each makes one before its report, which the link asks for once a
second. With it each makes 20 a second, and reports as often as an engine under load.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from engine_hooks.identity import ENGINE_ID_VARIABLE, Identity
from engine_hooks.member_link import MemberLink
from engine_hooks.members import FRONTEND, WORKER, FrontendRow, WorkerRow
from engine_hooks.settings import Settings

GIB = 1 << 30
BUSY_STEP_SECONDS = 0.05
BLOCKS, PROMPT, MAX_TOKENS = 20_000, 200, 400
LAYERS = 32


def uuid_of(number: int) -> str:
    """The driver's name for the GPU of an engine's worker."""
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def main() -> None:
    """Start all processes, say who they are, and stay until the standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--running", type=int, default=32, help="requests running in each engine")
    parser.add_argument("--tenants", type=int, default=1, help="whose these are, in each engine")
    parser.add_argument("--busy", action="store_true", help="make 20 steps a second")
    options = parser.parse_args()
    life = os.pipe()
    pids: dict[str, list[int]] = {}
    numbers = range(options.engines)
    # The light ones first: what a core needs is imported once, after these were forked.
    pids[WORKER] = [_fork(life, worker, number, options) for number in numbers]
    pids[FRONTEND] = [_fork(life, frontend, number, options) for number in numbers]
    from tests.bed import scheduler  # noqa: F401

    pids["core"] = [_fork(life, core, number, options) for number in numbers]
    print(json.dumps(pids), flush=True)
    sys.stdin.read()


def _fork(life: tuple[int, int], run: Callable[[int, argparse.Namespace], None], *args: Any) -> int:
    """Run in a child that ends when we do."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.close(life[1])
        os.close(0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

        def watch() -> None:
            os.read(life[0], 1)
            os._exit(0)

        threading.Thread(target=watch, daemon=True).start()
        run(*args)
    except BaseException as error:
        print(f"tests.bed.node: {run.__name__}: {error!r}", file=sys.stderr, flush=True)
    os._exit(1)


def _settings(number: int) -> Settings:
    os.environ[ENGINE_ID_VARIABLE] = f"node-{number}"
    return replace(Settings.from_environment(), engine_name=f"engine-{number}")


# -- the light ones -------------------------------------------------------------------------------------------------


def worker(number: int, _options: argparse.Namespace) -> None:
    """One GPU's worker: weights, a KV cache, graphs, and steps that allocate and free."""
    from engine_hooks.torch.probe import of_process
    from tests.bed.fake_torch import FakeTorch
    from tests.bed.snapshots import AllocatorBed

    bed = AllocatorBed(capacity=80 * GIB)
    torch = FakeTorch(bed)
    torch.cuda.get_device_properties = lambda _device: SimpleNamespace(uuid=uuid_of(number).removeprefix("GPU-"))
    sys.modules["torch"] = torch  # type: ignore[assignment]
    for _ in range(LAYERS):
        torch.empty(GIB // 2)  # a layer's weights, then its part of the KV cache
        torch.empty(GIB)
    torch.empty(GIB // 2, pool=(0, 1))
    row = WorkerRow(
        tensor_parallel_rank=0,
        pipeline_parallel_rank=0,
        device="cuda:0",
        device_uuid=uuid_of(number),
        kv_bytes=LAYERS * GIB,
        kv_blocks=BLOCKS,
        parameter_bytes=LAYERS * GIB // 2,
    )
    settings = _settings(number)
    identity = Identity.of_member(None, settings, WORKER, 0, 0)
    MemberLink(bed, identity, settings, lambda: row, of_process(settings)).start()
    for turn in itertools.count():
        address = torch.empty((1 + turn % 7) << 20)
        time.sleep(0.5)
        bed.free(address)


def frontend(number: int, options: argparse.Namespace) -> None:
    """The API server of one engine."""
    forever, settings = threading.Event(), _settings(number)
    row = FrontendRow(count=1, requests=options.running)
    MemberLink(forever, Identity.of_member(None, settings, FRONTEND, 0, 0), settings, lambda: row).start()
    forever.wait()


# -- the core -------------------------------------------------------------------------------------------------------


def core(number: int, options: argparse.Namespace) -> None:
    """One engine's scheduler, its hooks, and the thread that they run on."""
    from engine_hooks.core.reporter import EngineReporter
    from tests.bed.scheduler import BareEngine, make_scheduler, step

    scheduler = make_scheduler(BLOCKS, max_num_seqs=options.running)
    inbox: queue.SimpleQueue[None] = queue.SimpleQueue()
    engine = BareEngine(scheduler=scheduler, vllm_config=scheduler.vllm_config)
    reporter = EngineReporter(engine, _settings(number), lambda: inbox.put(None))
    reporter.start()
    requests = itertools.count()
    while True:
        try:
            inbox.get(timeout=BUSY_STEP_SECONDS if options.busy else None)
            woken = True
        except queue.Empty:
            woken = False
        while len(scheduler.requests) < options.running:
            scheduler.add_request(_request(next(requests), options))
        began = time.perf_counter()
        step(scheduler)
        if options.busy:
            reporter.after_step(began)
        if woken:
            reporter.on_wake()


def _request(number: int, options: argparse.Namespace) -> Any:
    from engine_hooks.core.marks import MARKS_KEY, front_marks
    from tests.bed.scheduler import make_request

    # The first ones end one after another, so that their successors do too.
    tokens = MAX_TOKENS * (1 + number % options.running) // options.running if number < options.running else MAX_TOKENS
    request = make_request(number, PROMPT, max(2, tokens))
    tenant = f"tenant-{number % options.tenants}"
    request.sampling_params.extra_args = {MARKS_KEY: front_marks(tenant, f"session-{number % options.running}")}
    return request


if __name__ == "__main__":
    main()
