"""The law that holds after every step: references are what is explained, and each block is where it says it is."""

from __future__ import annotations

from typing import Any


def check_law(reporter: Any, pool: Any, offline: bytearray) -> None:
    """Raise AssertionError where the ledger, the free queue, the offline blocks or the pool's own numbers are wrong."""
    assert reporter._guard.errors == {}
    accounts = reporter._accounts
    assert accounts.ledger.references == accounts.ledger.recount()
    assert accounts.ledger.net() == 0
    free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
    assert pool.free_block_queue.num_free_blocks == len(free) == len(set(free))
    unheld = {block.block_id for block in pool.blocks if not block.ref_cnt and not block.is_null}
    gone = {number for number, flag in enumerate(offline) if flag}
    assert set(free) == unheld - gone
    assert gone <= unheld
    for number in gone:
        block = pool.blocks[number]
        assert (block.block_hash, block.prev_free_block, block.next_free_block) == (None, None, None)
    assert pool.num_gpu_blocks == len(pool.blocks) - len(gone)
    held = len(pool.blocks) - 1 - len(unheld)
    assert reporter._view.held() == held
    assert abs(pool.get_usage() - held / max(1, pool.num_gpu_blocks - 1)) < 1e-9
