"""Memory of a GPU that neither torch nor a KV pool accounts for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.policy.types import TEXTBOOK
from agent.signals.types import NodeSignals
from agent.state import AgentState
from agent.waterfall.state import Part, Waterfall
from tests.unit.timeline import GIB, MIB, UNIX, engine, gpu, state, times
from tests.unit.told import Told, engine_signals, gpu_signals, node, rate, slow

KIND = "device_growth"


def fall(**sizes: int) -> Waterfall:
    """A waterfall of GPU 0 with these parts beside 60 GiB of the engine's KV cache."""
    owners = {"context": "m", "untold": "n"}
    parts = [Part(part="kv_held", bytes=60 * GIB, error_bytes=0, owner="m")]
    parts += [Part(part=name, bytes=size, error_bytes=0, owner=owners.get(name, "")) for name, size in sizes.items()]
    rest = 80 * GIB - sum(part.bytes for part in parts)
    return Waterfall(
        gpu="0", uuid="GPU-0", total_bytes=80 * GIB, parts=tuple(parts), unattributed_bytes=rest, error_bytes=0
    )


def states(seconds: float = 200, **parts: Any) -> Iterator[AgentState]:
    values: dict[str, Any] = {"engines": (engine(),), "gpus": [gpu(72 * GIB)], "waterfalls": (fall(context=6 * GIB),)}
    for t in times(seconds):
        yield state(t, **values | parts)


def test_it_says_what_grows_whose_it_is_and_how_long_it_will_do() -> None:
    found = Told(KIND, node(gpus=gpu_signals(other_bytes=6 * GIB, other_slow=slow(0.005)))).last(states())
    assert found is not None
    assert (found.phase, found.tier, found.subject.gpu) == ("confirmed", "warn", "0")
    assert found.sentence == (
        "Memory that neither torch nor the KV cache accounts for on GPU 0 grows by 409.6 MiB an hour, for 6 h 0 min "
        "now; 95% of what came stayed. It is 6.0 GiB now, most of it contexts and libraries (NCCL, CUDA) of engine "
        "m (6.0 GiB). 8.0 GiB are free: enough for 20 h 0 min at this rate."
    )
    assert "Evicting KV blocks frees none of it" in found.remedy


def test_others_processes_have_another_remedy() -> None:
    signals = node(gpus=gpu_signals(foreign_bytes=5 * GIB, foreign_slow=slow()))
    found = Told(KIND, signals).last(states(waterfalls=(fall(context=GIB, other_processes=5 * GIB),)))
    assert found is not None
    assert found.sentence.startswith(
        "Memory of processes that don't report to kvtide on GPU 0 grows by 819.2 MiB an hour"
    )
    assert found.remedy.startswith("Another process takes it")


def test_where_nobody_tells_of_torch_used_memory_is_looked_at_and_nobody_is_blamed() -> None:
    signals = node(gpus=gpu_signals(other_bytes=None, foreign_bytes=None, slow=slow()))
    found = Told(KIND, signals).last(states(waterfalls=()))
    assert found is not None
    assert found.sentence.startswith("Used memory on GPU 0 grows by 819.2 MiB an hour")
    assert "nvidia-smi" in found.remedy


def test_used_memory_of_nobody_knows_whom_is_watched_for_longer_unless_its_end_is_near() -> None:
    """A worker without hooks: new high-water marks of what torch has reserved, 119 MiB an hour, 53 h to go."""

    def tier(free: int, seconds: float, **whose: Any) -> str | None:
        untold: dict[str, Any] = {"other_bytes": None, "foreign_bytes": None, "slow": slow(0.0015, seconds=seconds)}
        row = gpu_signals(**untold | {"free_bytes": free} | whose)
        found = Told(KIND, node(gpus=row)).last(states(waterfalls=()))
        return found and found.tier

    assert tier(6 * GIB, 6000.0) is None
    assert tier(6 * GIB, 15_000.0) == "warn"
    assert tier(2 * GIB, 6000.0) == "warn", "it is full within a day"
    assert tier(6 * GIB, 6000.0, other_bytes=GIB, other_slow=slow(0.0015, seconds=6000.0)) == "warn", "not torch's"


def test_growth_of_minutes_pages_where_the_gpu_is_nearly_full() -> None:
    """Free memory falls from 10,358 over 9,244 to 1,352 MB: a report, and the end of it is near."""
    signals = node(gpus=gpu_signals(free_bytes=5 * GIB, other_growth=rate(0.03, seconds=120.0)))
    found = Told(KIND, signals).last(states())
    assert found is not None
    assert (found.phase, found.tier) == ("confirmed", "page")
    assert "grows by 2.4 GiB a minute" in found.sentence
    assert "enough for 2 min at this rate" in found.sentence or "enough for 125 s" in found.sentence


@pytest.mark.parametrize(
    "why",
    [
        "torch's own",
        "roomy",
        "long",
        "nobody served",
        "elsewhere",
        "one step",
        "plateau",
        "constant",
        "unsure",
        "unknown",
    ],
)
def test_what_looks_like_it_and_is_not(why: str) -> None:
    fast = rate(0.03, seconds=120.0)
    row = gpu_signals(free_bytes=5 * GIB, other_growth=fast)
    engines = (engine_signals(),)
    if why == "torch's own":  # allocator_growth tells of that
        row = gpu_signals(slow=slow(), growth=fast, free_bytes=5 * GIB, other_growth=rate(0.0, low=-0.01))
    elif why == "roomy":  # a process that starts beside the engine
        row = gpu_signals(free_bytes=30 * GIB, foreign_growth=rate(0.3))
    elif why == "long":
        row = gpu_signals(free_bytes=5 * GIB, other_growth=rate(0.001))
    elif why == "nobody served":  # an engine that loads its weights, before its hooks report
        engines = (engine_signals(settled=False),)
    elif why == "elsewhere":  # the engine that serves is on another GPU; here one loads
        engines = (engine_signals(engine="n"),)
    elif why == "one step":
        row = gpu_signals(free_bytes=5 * GIB, other_growth=rate(0.3, seconds=20.0))
    elif why == "plateau":
        row = gpu_signals(other_slow=slow(leaks=False))
    elif why == "constant":  # a training job at constant use
        row = gpu_signals(foreign_bytes=30 * GIB, free_bytes=GIB, foreign_growth=rate(0.0, low=-0.001))
    elif why == "unsure":
        row = gpu_signals(free_bytes=5 * GIB, other_growth=rate(0.03, low=-0.01))
    else:
        row = gpu_signals(free_bytes=None, other_growth=fast)
    assert Told(KIND, NodeSignals(engines=engines, gpus=(row,))).last(states()) is None


def test_the_textbook_judges_growth_alone() -> None:
    grows = node(gpus=gpu_signals(free_bytes=60 * GIB, other_growth=rate(0.06)))
    found = Told(KIND, grows, TEXTBOOK).last(states())
    assert found is not None
    assert found.tier == "warn"
    assert Told(KIND, grows).last(states()) is None


def test_its_life_while_the_driver_is_away() -> None:
    def given(now: AgentState) -> NodeSignals:
        return node(gpus=gpu_signals(other_slow=slow(leaks=10 <= now.at - UNIX < 300)))

    def seen() -> Iterator[AgentState]:
        for t in times(1700):
            gpus = None if 300 <= t < 1000 else [gpu(72 * GIB + int(t) * MIB // 100)]
            yield state(t, engines=(engine(),), gpus=gpus)

    told = Told(KIND, given)
    verdicts = {now.at - UNIX: told.look(now) for now in seen()}
    assert [each.phase for each in verdicts[129]] == ["suspect"]
    assert [each.phase for each in verdicts[899]] == ["confirmed"], "held while the GPU can't be seen"
    (ended,) = verdicts[905]
    assert (ended.phase, ended.ending) == ("resolved", "out of sight")
    assert verdicts[1600] == ()
