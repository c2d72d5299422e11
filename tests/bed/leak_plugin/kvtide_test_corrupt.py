"""A vLLM plugin that spoils one KV block of one running request on demand: the control of tests that compare outputs.

It is idle unless ``KVTIDE_TEST_CORRUPT_DIR`` is set. A file ``corrupt`` in that directory makes the worker overwrite,
before its next step, the first block of the running request that holds the most; then it removes the file and writes
``corrupted.json``. A comparison that does not notice this would notice nothing.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

VARIABLE = "KVTIDE_TEST_CORRUPT_DIR"
MARK = "_kvtide_test_corrupt"


def _spoil(runner: Any, directory: Path) -> None:
    ids = {key: state.block_ids[0] for key, state in runner.requests.items() if state.block_ids[0]}
    longest = max(ids, key=lambda key: len(ids[key]), default=None)
    if longest is None or len(ids[longest]) < 3:  # it needs tokens yet to come that read what is spoiled
        return
    block = ids[longest][0]
    blocks = runner.kv_cache_config.num_blocks if hasattr(runner, "kv_cache_config") else None
    for cache in runner.kv_caches:
        place = 0 if blocks is None or cache.shape[0] == blocks else 1
        cache.select(place, block).fill_(3.0)
    (directory / "corrupt").unlink()
    (directory / "corrupted.json").write_text(json.dumps({"request": longest, "block": block}))


def register() -> None:
    """Entry point ``vllm.general_plugins``: wrap the worker's step, if asked to by the environment."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    try:
        from vllm.v1.worker.gpu_worker import Worker
    except ImportError:
        return
    original = Worker.execute_model
    if getattr(original, MARK, False):
        return
    order = Path(directory) / "corrupt"

    @functools.wraps(original)
    def execute_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        if order.exists():
            try:
                _spoil(self.model_runner, order.parent)
            except Exception as error:  # The engine must live on, whatever is wrong with the test.
                order.unlink(missing_ok=True)
                (order.parent / "corrupt_error.json").write_text(json.dumps({"error": repr(error)}))
        return original(self, *args, **kwargs)

    setattr(execute_model, MARK, True)
    Worker.execute_model = execute_model
