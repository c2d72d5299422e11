"""Whatever function of the hooks raises, at random and under load: the engine does what it does without us."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from types import FunctionType
from typing import Any

import kvtide_test_raise as plugin
import pytest
from vllm.v1.engine.core import EngineCore

from engine_hooks.core import hook as core_hook
from engine_hooks.core.reporter import EngineReporter
from engine_hooks.settings import Settings
from tests.bed.play import Play, first_difference
from tests.bed.workload_engine import make_engine
from tests.bed.workloads import WORKLOADS, Workload

NOWHERE = Settings.from_environment({"KVTIDE_SOCKET": "/proc/none/agent.sock"})


class Planter:
    """Raises in ``share`` of the calls of all functions, or of the one of this ``name``, once the engine is watched."""

    def __init__(self, seed: int) -> None:
        self.share = 0.0
        self.name = ""
        self.called: Counter[str] = Counter()
        self.raised: Counter[str] = Counter()
        self._draw = random.Random(seed)

    def at_random(self, name: str) -> None:
        if not self.share:
            return
        self.called[name] += 1
        if self.name in ("", name) and self._draw.random() < self.share:
            self.raised[name] += 1
            raise plugin.PlantedError(f"planted in {name}")


@pytest.fixture
def planter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Planter]:
    """Plant in all classes of the hooks; all is as before after the test."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # block hashes start from the same value in every engine
    found = Planter(request.param)
    planted: list[tuple[Any, str, FunctionType]] = []

    def plant(owner: Any, name: str, function: FunctionType, by: Any) -> None:
        planted.append((owner, name, function))
        wrap(owner, name, function, by)

    wrap = plugin._wrap
    monkeypatch.setattr(plugin, "_wrap", plant)
    plugin._plant(found)  # type: ignore[arg-type]
    yield found
    for owner, name, function in planted:
        setattr(owner, name, function)


@pytest.mark.parametrize("planter", [1], indirect=True)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_every_step_is_the_same_while_hooks_raise(workload: Workload, planter: Planter) -> None:
    plain = Play(make_engine(workload, process=True), workload, 1, lambda: None)
    engine = make_engine(workload, process=True)
    reporter = core_hook.attach(engine, NOWHERE)
    try:
        play = Play(engine, workload, 1, raising(engine, reporter, planter))
    finally:
        planter.share = 0.0
        reporter.close()
    assert first_difference(plain.steps, play.steps) is None
    assert len(planter.raised) > 5, planter.raised


@pytest.mark.parametrize("planter", [1], indirect=True)
def test_every_step_is_the_same_whichever_function_raises_each_time(planter: Planter) -> None:
    """At random, a function that is called once in a while may never be drawn."""
    workload = replace(next(each for each in WORKLOADS if each.name == "everything at once"), requests=12)
    plain = Play(make_engine(workload, process=True), workload, 1, lambda: None)
    names, done = [""], 0
    while done < len(names):
        planter.name = name = names[done]
        engine = make_engine(workload, process=True)
        reporter = core_hook.attach(engine, NOWHERE)
        try:
            # The first time all are only counted: which are called at all.
            play = Play(engine, workload, 1, raising(engine, reporter, planter, 1.0 if name else 1e-12))
        finally:
            planter.share = 0.0
            reporter.close()
        assert first_difference(plain.steps, play.steps) is None, name
        if not name:
            names += sorted(planter.called)
        done += 1
    # Not each of them: what is called when a tenth of a second is over may not be, in a run that is quicker.
    assert len(planter.raised) > 50, names


def raising(engine: EngineCore, reporter: EngineReporter, planter: Planter, share: float = 0.03) -> Any:
    """Return what happens between steps: wake-ups and audits; everything may raise from the first on."""

    def look() -> None:
        planter.share = 0.0
        reporter._accounts.request_audit()
        planter.share = share
        engine.input_queue.put_nowait((core_hook.WAKE_UP, None))

    return look
