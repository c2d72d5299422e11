"""Failed allocations and killed processes as verdicts: with their cause, for a while, of the right process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.oom.facts import Foreign
from agent.oom.judge import judge
from agent.oom.log import Failure
from agent.state import AgentState, Verdict
from tests.unit.allocators import make_event, make_failure
from tests.unit.node_builders import make_killed
from tests.unit.test_device_growth import fall
from tests.unit.timeline import GIB, UNIX, engine, gpu, host, member, state, times
from tests.unit.told import Told

KIND = "oom"
OUT = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 1.00 GiB is free."
    " Of the allocated memory 40.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
)


def failure(**changes: Any) -> Failure:
    process = {name: changes.pop(name) for name in ("engine", "process", "role") if name in changes}
    return make_failure(rank=0, event=make_event(**{"at": UNIX} | changes), **process)


def states(seconds: float = 5, **parts: Any) -> Iterator[AgentState]:
    values: dict[str, Any] = {"engines": (engine(members=(member(),)),), "gpus": [gpu(77 * GIB)]}
    for t in times(seconds):
        yield state(t, **values | parts)


def verdict(**parts: Any) -> Verdict | None:
    return Told(KIND).last(states(**parts))


def test_it_pages_at_once_with_the_judges_own_words() -> None:
    failed = failure()
    found = Told(KIND).last(states(0, failures=(failed,)))
    assert found is not None
    assert failed.judgement is not None
    assert (found.phase, found.tier, str(found.subject)) == ("confirmed", "page", "m worker/0")
    assert found.sentence == (
        "Out of memory in engine m's worker 0 in execute_model 0.0 s ago, fragmented: 150.0 MiB were asked for: torch "
        "keeps 240.0 MiB that nothing uses, in pieces too small, the largest block 100.0 MiB; 10.0 MiB are free on the "
        "device."
    )
    assert found.remedy == failed.judgement.remedy
    assert found.evidence["requested_bytes"] == 150 * 2**20


def test_the_waterfall_tells_who_it_was_where_the_message_can_not() -> None:
    none = {"requested_bytes": None, "device_free_bytes": None, "free_bytes": None, "largest_free_bytes": None}
    failed = failure(message=OUT, **none)
    assert failed.judgement is not None
    assert "something that is not this process's torch" in failed.judgement.sentence
    other = OUT.replace("40.00 GiB is allocated", "78.00 GiB is allocated")
    alone, beside = (failure(message=other, **none) for _ in range(2))
    out = verdict(failures=(alone,), waterfalls=(fall(driver=20 * GIB),))
    foreign = verdict(failures=(beside,), waterfalls=(fall(other_processes=3 * GIB),))
    assert out is not None
    assert foreign is not None
    assert "truly out" in out.sentence
    assert "taken by others" in foreign.sentence
    assert "another process holds 3.0 GiB" in foreign.sentence


def test_a_message_that_names_processes_knows_better_than_the_waterfall() -> None:
    named = OUT.replace(". Of the", ". Process 1 has 79.00 GiB memory in use. Of the").replace("40.00", "78.00")
    judged = judge(named, None, Foreign(30 * GIB, 1))
    assert judged is not None
    assert judged.cause == "out"


@pytest.mark.parametrize(("count", "often"), [(1, "in execute_model 5.0 s ago"), (4, "4 times, the last 5.0 s ago")])
def test_how_often(count: int, often: str) -> None:
    found = verdict(failures=(failure(count=count),))
    assert found is not None
    assert often in found.sentence


def test_words_before_anything_failed_and_processes_of_no_engine_get_nobody_up() -> None:
    start = failure(
        kind="memory", message="Free memory on device (1.2/14.74 GiB) on startup is less than desired", where=""
    )
    trainer = failure(engine="", process="train", role="torch")
    for failed in (start, trainer):
        found = verdict(failures=(failed,))
        assert found is not None
        assert (found.phase, found.tier) == ("confirmed", "warn")


def test_a_process_that_the_kernel_killed() -> None:
    at = UNIX - 30
    sure = verdict(host=host(killed=(make_killed(at=at),)))
    near = verdict(host=host(killed=(make_killed(at=at, certain=False, counted_by="/pod"),)))
    somewhere = verdict(host=host(killed=(make_killed(at=at, certain=False, counted_by=""),)))
    assert sure is not None
    assert near is not None
    assert somewhere is not None
    assert (sure.tier, near.tier, somewhere.tier) == ("page", "page", "warn")
    assert sure.sentence == (
        "The kernel killed engine m's worker 1 (process 88) 35 s ago: its memory group had reached its limit. This is "
        "host memory, not the GPU's."
    )
    assert "in the group /pod: most likely this one" in near.sentence


@pytest.mark.parametrize("kind", ["illegal_address", "nvlink"])
def test_an_error_of_the_device_is_none(kind: str) -> None:
    assert verdict(failures=(failure(kind=kind, message="CUDA error: an illegal memory access"),)) is None


def test_what_was_long_ago_is_none() -> None:
    assert verdict(failures=(failure(at=UNIX - 600),), host=host(killed=(make_killed(at=UNIX - 600),))) is None


def test_its_life_is_that_of_the_event_and_a_restart_makes_no_second_one() -> None:
    failed = failure(at=UNIX + 10)

    def seen() -> Iterator[AgentState]:
        for t in times(800):
            there = (engine(instance="i" if t < 20 else "i2", members=(member(),)),) if not 20 <= t < 60 else ()
            yield state(t, engines=there, failures=(failed,) if t >= 10 else ())

    assert Told(KIND).phases(seen()) == ["none", "confirmed", "resolved", "none"]
    told = Told(KIND)
    phases = {now.at - UNIX: [each.phase for each in told.look(now)] for now in seen()}
    assert (phases[609], phases[610]) == (["confirmed"], ["resolved"])


def test_one_that_was_killed_pages_once_though_the_host_is_not_read_for_a_while() -> None:
    there = host(killed=(make_killed(engine="m", at=UNIX),))
    told = Told(KIND)
    said = [told.look(state(t, host=None if 20 <= t < 30 else there)) for t in times(60)]
    assert {(each.phase, each.tier) for now in said for each in now} == {("confirmed", "page")}
    assert {len(now) for now in said} == {1}
