"""Takes down what the tests and probes of one vLLM version gave: ``pytest tests/compat --compat-result FILE``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

os.environ["KVTIDE_DISABLE"] = "1"  # tests attach the hooks themselves
pytest.register_assert_rewrite("tests.compat.build")

CAPABILITIES = pytest.StashKey[dict[str, dict[str, object]]]()
FAILURES = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--compat-result", type=Path, help="write what was found here, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[CAPABILITIES], config.stash[FAILURES] = {}, []
    if config.getoption("--compat-result"):
        config.pluginmanager.register(_Recorder(config))


class _Recorder:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.config.stash[FAILURES].append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        import vllm

        result = {
            "version": vllm.__version__.split("+")[0],  # what follows is the build: +cpu
            "collected": session.testscollected,
            "failed": self.config.stash[FAILURES],
            "capabilities": self.config.stash[CAPABILITIES],
        }
        self.config.getoption("--compat-result").write_text(json.dumps(result))


@pytest.fixture(scope="session")
def capabilities(pytestconfig: pytest.Config) -> dict[str, dict[str, object]]:
    """What the probes said, by the capability's name; goes into the result."""
    return pytestconfig.stash[CAPABILITIES]
