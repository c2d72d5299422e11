"""Tests here attach the hooks themselves: without this the installed plugin would attach them to every engine, the
plain ones to compare with included.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.bed.engine import ENVIRONMENT

TIMEOUT_SECONDS = 1200.0  # of a test without a mark: real engines run in it, on a machine with much else to do

os.environ["KVTIDE_DISABLE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"  # as in tests.bed.engine

# vLLM leaves a socket, or a file, of each engine in the folder for temporary files. Pytest's own stay where they were.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", ENVIRONMENT["TORCHINDUCTOR_CACHE_DIR"])
_LEFT = tempfile.TemporaryDirectory(prefix="kvtide-", ignore_cleanup_errors=True)
tempfile.tempdir = os.environ["TMPDIR"] = _LEFT.name


def pytest_unconfigure() -> None:
    """Remove what vLLM has left."""
    _LEFT.cleanup()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test here the time that a busy machine needs; those of other folders have what they have."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))
