"""The plugin as a team uses it: in its own test folder, with pytest's own runner."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

PASSES = """
def test_leak(memory_leak):
    leak = memory_leak(rate="100MiB/s", limit="2MiB")
    assert leak.running
    import builtins
    builtins.kvtide_chaos_seen = leak

def test_it_ended():
    import builtins
    assert not builtins.kvtide_chaos_seen.running
    del builtins.kvtide_chaos_seen
"""


def test_an_injector_ends_with_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PASSES)
    pytester.runpytest().assert_outcomes(passed=2)


def test_alerts_need_an_address(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_alert(alert_watch):\n    pass\n")
    result = pytester.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*--chaos-prometheus URL*"])


def test_the_ini_file_names_it(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nchaos_alertmanager = http://127.0.0.1:9093\n")
    pytester.makepyfile("def test_alert(alert_watch):\n    assert alert_watch.url == 'http://127.0.0.1:9093'\n")
    pytester.runpytest().assert_outcomes(passed=1)


def test_nothing_heavy_is_loaded_for_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\ndef test_lazy():\n    assert not {'httpx2', 'typer', 'torch', 'locust'} & set(sys.modules)\n"
    )
    pytester.runpytest_subprocess("-p", "no:asyncio").assert_outcomes(passed=1)
