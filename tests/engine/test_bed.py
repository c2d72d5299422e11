"""The test bed can be trusted: the tiny model is what it says, and planted leaks are exactly what is reported."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest
from kvtide_chaos import engine_plugin, kv_blocks
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.scheduler import Scheduler

from tests.bed import tiny_model
from tests.bed.scheduler import make_request, make_scheduler, step

WRAPPED = ("free", "pop_blocks_for_free")
NULL_BLOCK = 1


@pytest.fixture
def leak_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory that the plugin, freshly registered, watches; vLLM's own methods come back afterwards."""
    for name, value in kv_blocks.leak_env(tmp_path).items():
        monkeypatch.setenv(name, value)
    for name in WRAPPED:
        monkeypatch.setattr(KVCacheManager, name, getattr(KVCacheManager, name))
    engine_plugin.register()
    return tmp_path


def run(scheduler: Scheduler, first: int, count: int, *, shared: int = 64) -> None:
    """Run ``count`` requests to their end, four at a time, so that later ones find the prefix in the cache."""
    for i in range(first, first + count):
        scheduler.add_request(make_request(i, 200, 5 + i % 7, shared))
        if len(scheduler.requests) >= 4:
            step(scheduler)
    while scheduler.has_requests():
        step(scheduler)


def orphans(scheduler: Scheduler) -> dict[int, int]:
    """Return the held blocks by id with their counts; nothing runs, so nothing explains them."""
    assert not scheduler.requests
    pool = scheduler.kv_cache_manager.block_pool
    return {block.block_id: block.ref_cnt for block in pool.blocks if block.ref_cnt and not block.is_null}


def test_model_is_complete_and_deterministic(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoTokenizer

    first, second = tmp_path / "first", tmp_path / "second"
    assert tiny_model.build(first)
    assert tiny_model.build(second)
    assert not tiny_model.build(first)
    assert {p.name: p.read_bytes() for p in first.iterdir()} == {p.name: p.read_bytes() for p in second.iterdir()}

    weights = load_file(first / "model.safetensors")
    assert all(weight.dtype == torch.float32 and weight.isfinite().all() for weight in weights.values())
    # All of them are drawn or ones: a tensor of zeros would cut the output off from the KV cache.
    assert all(weight.abs().mean() > 0.1 for weight in weights.values())
    config = json.loads((first / "config.json").read_text())
    assert config["max_position_embeddings"] == 4096
    assert weights["model.embed_tokens.weight"].shape == (config["vocab_size"], config["hidden_size"])

    tokenizer = AutoTokenizer.from_pretrained(first)
    text = "hello, memory cache \u00e9\u4e16"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert max(tokenizer.encode(text)) < config["vocab_size"]


def test_model_depends_on_its_context(tmp_path: Path) -> None:
    """The last token's logits must change with what is far behind it: that is what corrupted KV changes."""
    import torch
    from transformers import AutoModelForCausalLM

    tiny_model.build(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    tokens = torch.randint(3, 512, (1, 256), generator=torch.Generator().manual_seed(1))
    other = tokens.clone()
    # One block of 32 tokens, 150 tokens back.
    other[:, 64:96] = tokens[:, 64:96].flip(1) + 1
    with torch.no_grad():
        before, after = model(tokens).logits[0, -1], model(other.clamp(max=511)).logits[0, -1]
    assert (before - after).abs().max() > 0.05


def test_plugin_is_installed_where_vllm_looks() -> None:
    names = {entry.name for entry in importlib.metadata.entry_points(group="vllm.general_plugins")}
    assert {"kvtide", "kvtide_chaos"} <= names


@pytest.mark.parametrize("window", [None, 64])
def test_nothing_leaks_unless_armed(leak_dir: Path, window: int | None) -> None:
    scheduler = make_scheduler(500, sliding_window=window)
    run(scheduler, 0, 30)
    assert orphans(scheduler) == {}
    assert list(leak_dir.iterdir()) == []


def test_plugin_wraps_nothing_without_its_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kv_blocks.VARIABLE, raising=False)
    before = [getattr(KVCacheManager, name) for name in WRAPPED]
    engine_plugin.register()
    assert [getattr(KVCacheManager, name) for name in WRAPPED] == before


@pytest.mark.parametrize("window", [None, 64])
@pytest.mark.parametrize(("least", "most"), [(1, 1), (3, 9), (40, 60)])
def test_leaks_exactly_what_it_reports(leak_dir: Path, window: int | None, least: int, most: int) -> None:
    scheduler = make_scheduler(500, sliding_window=window)
    run(scheduler, 0, 10)
    kv_blocks.arm(leak_dir, least, most)
    run(scheduler, 10, 40)
    planted = kv_blocks.wait_planted(leak_dir, timeout=1)

    assert least <= planted.n <= most
    assert orphans(scheduler) == dict.fromkeys(planted.block_ids, 1)
    assert len(planted.block_ids) == planted.n
    pool = scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - NULL_BLOCK - planted.n
    assert planted.complete_monotonic >= planted.armed_monotonic
    assert not (leak_dir / "arm").exists()

    # One order, one leak.
    run(scheduler, 50, 10)
    assert len(orphans(scheduler)) == planted.n


def test_leaks_when_the_free_is_put_off(leak_dir: Path) -> None:
    """The scheduler takes the blocks out of the table first and frees them a step later (0.24 and later)."""
    scheduler = make_scheduler(500)
    scheduler.add_request(make_request(0, 200, 50))
    step(scheduler)
    kv_blocks.arm(leak_dir, 4, 4)
    manager = scheduler.kv_cache_manager
    blocks = manager.pop_blocks_for_free(scheduler.requests["r0"])
    manager.block_pool.free_blocks(reversed(blocks))
    planted = kv_blocks.wait_planted(leak_dir, timeout=1)
    assert planted.n == 4
    assert {b.block_id for b in manager.block_pool.blocks if b.ref_cnt and not b.is_null} == set(planted.block_ids)


def test_a_bad_order_leaves_the_engine_alone(leak_dir: Path) -> None:
    scheduler = make_scheduler(500)
    (leak_dir / "arm").write_text("not json")
    run(scheduler, 0, 10)
    assert orphans(scheduler) == {}
    with pytest.raises(RuntimeError, match="plugin in the engine failed"):
        kv_blocks.wait_planted(leak_dir, timeout=1)


def test_leaks_at_the_pace_that_was_ordered(leak_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(engine_plugin.time, "monotonic", lambda: clock[0])
    scheduler = make_scheduler(500)
    kv_blocks.arm(leak_dir, 5, 5, per_second=2.0)
    run(scheduler, 0, 10)
    assert orphans(scheduler) == {}
    clock[0] += 1.6
    run(scheduler, 10, 10)
    assert len(orphans(scheduler)) == 3
    progress = kv_blocks.told(leak_dir, "progress.json")
    assert progress is not None
    assert progress.n == 3
    assert kv_blocks.told(leak_dir, "planted.json") is None
    clock[0] += 60.0
    run(scheduler, 20, 10)
    planted = kv_blocks.wait_planted(leak_dir, timeout=1)
    assert len(orphans(scheduler)) == planted.n == 5


def test_an_order_taken_back_leaks_no_more(leak_dir: Path) -> None:
    scheduler = make_scheduler(500)
    kv_blocks.arm(leak_dir, 50, 50, per_second=0.001)
    run(scheduler, 0, 10)
    (leak_dir / "arm").unlink()
    run(scheduler, 10, 10)
    kv_blocks.arm(leak_dir, 2, 2)  # a new order, none of the old one's blocks left to take
    run(scheduler, 20, 10)
    assert len(orphans(scheduler)) == kv_blocks.wait_planted(leak_dir, timeout=1).n == 2
