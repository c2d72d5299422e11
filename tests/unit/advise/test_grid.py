"""What is tried: one setting at a time; the pool keeps its tokens under another block size."""

from __future__ import annotations

from agent.advise.grid import BLOCK_SIZE, POOL, UTILISATION, WATERMARK, Device, trials
from engine_hooks.simulator.spec import Engine

GIB = float(1 << 30)
ENGINE = Engine(blocks=1000, block_size=16)


def test_each_setting_has_what_is_in_use_once() -> None:
    usual = [trial for trial in trials(ENGINE) if trial.usual]
    assert [trial.setting for trial in usual] == [BLOCK_SIZE, POOL, WATERMARK]
    assert all((trial.engine.blocks, trial.engine.block_size) == (1000, 16) for trial in usual)


def test_other_block_sizes_keep_the_pools_tokens() -> None:
    found = {t.engine.block_size: t.engine.blocks for t in trials(ENGINE) if t.setting == BLOCK_SIZE}
    assert found == {8: 2000, 16: 1000, 32: 500, 64: 250, 128: 125}


def test_only_the_setting_that_is_tried_differs() -> None:
    for trial in trials(ENGINE, watermarks=(0.05,)):
        if trial.setting == POOL:
            assert trial.engine.block_size == 16
        if trial.setting == WATERMARK:
            assert trial.engine.blocks == 1000


def test_memory_utilisation_is_a_pool_of_what_the_rest_leaves() -> None:
    device = Device(total=80 * GIB, other=20 * GIB, token_bytes=128 * 1024)
    found = [t for t in trials(ENGINE, device=device, utilisations=(0.2, 0.5, 0.9)) if t.setting == UTILISATION]
    assert [t.value for t in found] == ["50%", "90%"]  # at 20 % not even the rest fits
    assert found[0].engine.blocks == int(20 * GIB / (128 * 1024)) // 16
    assert found[1].engine.blocks == int(52 * GIB / (128 * 1024)) // 16
