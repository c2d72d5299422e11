"""Refusing in the engine core: a real core and scheduler, and what its client would get."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.engine import FinishReason
from vllm.v1.engine.core import EngineCore, EngineCoreProc

from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.levers.enforce_admission import EnforceAdmission
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.levers.base import RefusedError
from engine_hooks.settings import Settings
from tests.bed.fake_executor import BLOCK_SIZE, FakeExecutor
from tests.bed.scheduler import make_config, make_request


class Other(SimpleNamespace):
    """An engine of another kind; one that can be referred to weakly, as engines can."""


class Core(EngineCore):
    """A core that has what one in a process of its own has, but is stepped by the test."""

    run_busy_loop = EngineCoreProc.run_busy_loop
    _send_error_outputs_to_client = EngineCoreProc._send_error_outputs_to_client
    _send_finish_outputs_to_client = EngineCoreProc._send_finish_outputs_to_client

    def __init__(self) -> None:
        config = make_config(block_size=BLOCK_SIZE, max_num_seqs=16, max_model_len=1024)
        config.cache_config.num_gpu_blocks_override = 101
        super().__init__(config, FakeExecutor, log_stats=False)
        self.output_queue: queue.Queue[Any] = queue.Queue()


class Bed:
    def __init__(self) -> None:
        self.engine = Core()
        self.engine.model_executor.requests = self.engine.scheduler.requests  # type: ignore[attr-defined]
        self.guard = Guard()
        self.numbers = iter(range(1000))
        self.lever = EnforceAdmission(self.context(self.engine))

    def context(self, engine: Any) -> LeverContext:
        view: Any = SchedulerView(self.engine.scheduler)
        none: Any = None
        return LeverContext(
            engine,
            self.engine.scheduler,
            view,
            none,
            none,
            {},
            self.guard,
            Settings.from_environment({}),
            clock=lambda: 0.0,
        )

    def add(self, tenant: str = "acme", prompt: int = BLOCK_SIZE, tokens: int = BLOCK_SIZE) -> Any:
        request = make_request(next(self.numbers), prompt, tokens, block_size=BLOCK_SIZE)
        request.sampling_params.extra_args = {"kvtide": {"tenant": tenant}}
        self.engine.add_request(request)
        return request

    def refused(self) -> list[tuple[str, FinishReason]]:
        found = []
        while not self.engine.output_queue.empty():
            _client, outputs = self.engine.output_queue.get()
            found += [(output.request_id, output.finish_reason) for output in outputs.outputs]
        return found

    def admitted(self, tenant: str = "acme", **sizes: int) -> bool:
        request = self.add(tenant, **sizes)
        inside = request.request_id in self.engine.scheduler.requests
        assert self.refused() == ([] if inside else [(request.request_id, FinishReason.ERROR)])
        return inside


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    monkeypatch.delenv("KVTIDE_MARKS_TOKEN", raising=False)
    made = Bed()
    yield made
    assert made.guard.errors == {}
    made.engine.shutdown()


def test_a_quota_counts_what_was_there_and_ends_with_the_order(bed: Bed) -> None:
    assert bed.admitted()  # two blocks
    assert bed.lever.would({"quotas": {"acme": 5}}) == {"requests": 1}
    done = bed.lever.apply({"quotas": {"acme": 5}})
    assert bed.admitted()
    assert not bed.admitted()
    assert bed.admitted(tokens=1, prompt=BLOCK_SIZE - 1)  # one block: five of five
    assert bed.admitted("umbrella")
    bed.engine.abort_requests([next(iter(bed.engine.scheduler.requests))])
    assert bed.admitted()  # whose room the ended one leaves
    assert not bed.admitted()
    assert done.undo is not None
    assert done.undo() == {"refused": 2}
    assert "add_request" not in vars(bed.engine)
    assert all(bed.admitted() for _ in range(5))


@pytest.mark.parametrize(
    ("arguments", "refused", "sizes"),
    [
        ({"shed": True}, True, {}),
        ({"concurrency": {"acme": 0}}, True, {}),
        ({"concurrency": {"acme": 1}}, False, {}),
        ({"prompt_limit": 30}, True, {"prompt": 31}),
        ({"prompt_limit": 30}, False, {"prompt": 30}),
        ({"pool_share": 0.1}, True, {"prompt": 10 * BLOCK_SIZE, "tokens": 1}),
        ({"pool_share": 0.1}, False, {"prompt": 9 * BLOCK_SIZE, "tokens": 1}),
    ],
)
def test_the_other_rules(bed: Bed, arguments: Any, refused: bool, sizes: dict[str, int]) -> None:
    done = bed.lever.apply(arguments)
    assert bed.admitted(**sizes) != refused
    assert done.undo is not None
    done.undo()


def test_what_it_counts_stays_bounded(bed: Bed) -> None:
    bed.lever.apply({"default_quota": 10_000})
    for _ in range(300):
        request = bed.add()
        bed.engine.abort_requests([request.request_id])
    assert len(bed.lever._held) < 100


def test_rules_of_a_front_end_are_refused(bed: Bed) -> None:
    with pytest.raises(RefusedError, match="short_first") as refused:
        bed.lever.apply({"short_first": True})
    assert refused.value.code == "bad_argument"
    assert "add_request" not in vars(bed.engine)


def test_another_wrapper_above_ours_stays_and_ours_only_passes_on(bed: Bed) -> None:
    done = bed.lever.apply({"shed": True})
    ours = bed.engine.add_request

    def above(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    bed.engine.add_request = above  # type: ignore[method-assign]
    assert done.undo is not None
    done.undo()
    assert bed.admitted()


def test_where_a_request_can_not_be_ended_it_is_unsupported(bed: Bed) -> None:
    for engine in (Other(), Other(run_busy_loop=None)):
        with pytest.raises(RefusedError, match="no way") as refused:
            EnforceAdmission(bed.context(engine))
        assert refused.value.code == "unsupported"
    together = Other(run_busy_loop=None, _send_error_outputs_to_client=print, dp_group=object())
    with pytest.raises(RefusedError, match="together"):
        EnforceAdmission(bed.context(together))
