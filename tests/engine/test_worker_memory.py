"""What a worker's row says, over real torch tensors: what models share is counted once, what is in host memory not."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from engine_hooks.guard import ERROR_LIMIT, Guard
from engine_hooks.members import WorkerRow
from engine_hooks.worker import hook, memory
from engine_hooks.worker.memory import follow, measure

FLOAT = 4
KIB = 1024


class Model(nn.Module):
    """Embeddings of 4 KiB, a layer of 1 KiB whose weight is used twice, and a buffer of 256 bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, 16)
        self.layer = nn.Linear(16, 16, bias=False)
        self.tied = self.layer
        self.register_buffer("scales", torch.zeros(64), persistent=False)


class Drafter(nn.Module):
    """Shares the embeddings of ``model``, as EAGLE does; its own layer is 2 KiB."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.embedding = model.embedding
        self.layer = nn.Linear(16, 32, bias=False)


class WithSlots(nn.Module):
    """A layer as vLLM wraps it for LoRA: its slots are neither parameters nor buffers. 2 x 4 x 256 bytes."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_a_stacked = tuple(torch.zeros(4, 1, 16) for _ in range(4))
        self.lora_b_stacked = tuple(torch.zeros(4, 1, 16) for _ in range(4))
        self.shortcut = base.weight  # not a slot: it is the layer's own

    def set_lora(self, index: int) -> None:
        """Theirs."""


class Runner(SimpleNamespace):
    """A runner of vLLM as far as it is looked at."""

    __hash__ = object.__hash__


class Worker:
    def __init__(self, model: nn.Module, **runner: Any) -> None:
        self.device = torch.device("cpu")
        self.model = model
        self.model_runner = Runner(kv_caches=[torch.zeros(8, 256)], **runner)

    def get_model(self) -> nn.Module:
        return self.model


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_ranks", lambda: (0, 0))


def measured(worker: Any) -> WorkerRow:
    row = measure(worker, SimpleNamespace(num_blocks=8))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=WorkerRow) == row
    return row


WEIGHTS = 4 * KIB + 1 * KIB + 256


def test_a_model_alone() -> None:
    row = measured(Worker(Model()))
    assert (row.parameter_bytes, row.draft_bytes, row.lora_bytes) == (WEIGHTS, 0, 0)
    assert (row.kv_bytes, row.kv_blocks) == (8 * 256 * FLOAT, 8)


@pytest.mark.parametrize("older", [False, True])
def test_what_a_draft_model_shares_is_the_models(older: bool) -> None:
    model = Model()
    drafter = Drafter(model)
    worker = Worker(model, drafter=SimpleNamespace(model=drafter))
    if not older:
        worker.get_draft_model = lambda: drafter  # type: ignore[attr-defined]
    row = measured(worker)
    assert (row.parameter_bytes, row.draft_bytes) == (WEIGHTS, 2 * KIB)


def test_a_drafter_that_is_no_model_has_no_weights() -> None:
    assert measured(Worker(Model(), drafter=SimpleNamespace(window=3))).draft_bytes == 0


def test_slots_for_adapters_are_told_from_weights() -> None:
    model = Model()
    model.layer = WithSlots(model.layer)  # type: ignore[assignment]
    row = measured(Worker(model))
    assert (row.parameter_bytes, row.lora_bytes) == (WEIGHTS, 2 * 4 * 256)


def test_weights_in_host_memory_are_left_out() -> None:
    model = Model()
    model.layer.weight._vllm_is_uva_offloaded = True  # type: ignore[attr-defined]
    assert measured(Worker(model)).parameter_bytes == WEIGHTS - KIB


def test_what_can_not_be_measured_is_not_known_and_the_rest_is() -> None:
    worker = Worker(Model())
    worker.get_draft_model = lambda: 1 / 0  # type: ignore[attr-defined]
    row = measured(worker)
    assert (row.draft_bytes, row.parameter_bytes, row.lora_bytes) == (None, WEIGHTS, 0)


@pytest.mark.parametrize("newer", [False, True])
def test_the_encoder_cache_is_read_anew_each_time(newer: bool) -> None:
    outputs: dict[str, Any] = {}
    cache = SimpleNamespace(encoder_outputs=outputs) if newer else outputs
    worker = Worker(Model(), encoder_cache=cache, supports_mm_inputs=True)
    row = measured(worker)
    assert row.encoder_cache_bytes is None, "it is not measured once"
    read = follow(worker, row, Guard())
    assert read().encoder_cache_bytes == 0
    batch = torch.zeros(2, 128)
    outputs["a"], outputs["b"] = batch[0], batch[1]  # both keep all of it
    outputs["c"] = {"deep": [torch.zeros(64)]}
    assert read().encoder_cache_bytes == (2 * 128 + 64) * FLOAT
    outputs.clear()
    now = read()
    assert now.encoder_cache_bytes == 0
    assert msgspec.structs.replace(now, encoder_cache_bytes=None) == row


@pytest.mark.parametrize(
    "runner", [{"encoder_cache": {}, "supports_mm_inputs": False}, {"encoder_cache": None}, {}], ids=str
)
def test_a_model_without_an_encoder_has_no_encoder_cache(runner: dict[str, Any]) -> None:
    worker = Worker(Model(), **runner)
    assert follow(worker, measured(worker), Guard())().encoder_cache_bytes is None


def test_a_cache_that_can_not_be_read_costs_only_its_own_number() -> None:
    worker = Worker(Model(), encoder_cache={"a": SimpleNamespace(untyped_storage=None)}, supports_mm_inputs=True)
    worker.model_runner.encoder_cache["a"].device = worker.device
    row = measured(worker)
    guard = Guard()
    read = follow(worker, row, guard)
    for _ in range(20):
        assert read() == row
    assert guard.errors == {"encoder cache": ERROR_LIMIT}
    assert guard.off["encoder cache"].startswith("TypeError")


def test_what_it_could_not_read_is_told_by_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    guard, told = Guard(), []
    monkeypatch.setattr(hook, "_guard", guard)  # what it counts is in each report of this process
    monkeypatch.setattr(hook, "measure", lambda worker, _config: measured(worker))
    monkeypatch.setattr(hook, "enter", lambda *_: SimpleNamespace(renew=told.append))
    worker = Worker(Model(), encoder_cache={"a": SimpleNamespace(untyped_storage=None)}, supports_mm_inputs=True)
    hook.watch(worker, None, None)  # type: ignore[arg-type]
    told[0]()
    assert list(guard.errors) == ["encoder cache"]


def test_nobody_is_kept_alive() -> None:
    worker = Worker(Model(), encoder_cache={"a": torch.zeros(4)}, supports_mm_inputs=True)
    row = measured(worker)
    read = follow(worker, row, Guard())
    assert read().encoder_cache_bytes == 4 * FLOAT
    del worker
    gc.collect()
    assert read() == row
