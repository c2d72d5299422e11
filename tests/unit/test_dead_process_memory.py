"""Memory of a GPU that is booked on processes which are not there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.oom.log import Failure
from agent.sources.host.state import DeadHolder, HostState
from agent.state import AgentState, Verdict
from tests.unit.allocators import make_allocator, make_device, make_event, make_failure
from tests.unit.timeline import GIB, UNIX, engine, gpu, host, member, state, times
from tests.unit.told import Told

KIND = "dead_process_memory"


def dead(*sizes: int, card: str = "0") -> HostState:
    rows = tuple(DeadHolder(gpu=card, pid=9000 + n, used_bytes=size) for n, size in enumerate(sizes))
    return host(dead=rows, dead_bytes={card: sum(sizes)})


def states(
    there: HostState | None, seconds: float = 60, used: int = 40 * GIB, failures: tuple[Failure, ...] = ()
) -> Iterator[AgentState]:
    for t in times(seconds):
        yield state(t, gpus=[gpu(used)], host=there, failures=failures)


def verdict(there: HostState | None, **changes: Any) -> Verdict | None:
    return Told(KIND).last(states(there, **changes))


def test_it_says_how_much_whose_and_that_nobody_is_to_be_killed_by_guess() -> None:
    found = verdict(dead(10 * GIB, 12 * GIB))
    assert found is not None
    assert (found.phase, found.tier, found.subject.gpu) == ("confirmed", "warn", "0")
    assert found.sentence == (
        "22.0 GiB of GPU 0, 28% of it, are booked on processes 9000, 9001, which are not there any more."
    )
    assert "end nothing by guess" in found.remedy
    assert found.evidence["dead_bytes"] == 22 * GIB


def test_one_is_one_and_of_many_the_first_are_named() -> None:
    one, many = verdict(dead(10 * GIB)), verdict(dead(*[6 * GIB] * 25))
    assert one is not None
    assert many is not None
    assert "process 9000, which is not there" in one.sentence
    assert "9004 and 20 more, which are not there" in many.sentence
    assert many.evidence["processes"] == 25


def test_it_pages_where_nothing_is_left_beside_it_and_memory_was_refused() -> None:
    failure = make_failure(event=make_event(at=UNIX))
    served, refused = (
        verdict(dead(20 * GIB), used=77 * GIB),
        verdict(dead(20 * GIB), used=77 * GIB, failures=(failure,)),
    )
    assert served is not None
    assert refused is not None
    assert (served.tier, refused.tier) == ("warn", "page")
    assert "Only 2.5 GiB are free beside it." in refused.sentence


@pytest.mark.parametrize("there", [None, host(), host(dead=None, dead_bytes=None, host_pids=False)])
def test_it_is_quiet_where_all_live_or_it_cannot_be_told(there: HostState | None) -> None:
    assert verdict(there) is None


def test_a_restart_whose_process_takes_its_time_to_go_is_none() -> None:
    told = Told(KIND)
    seen = [told.look(state(t, gpus=[gpu(40 * GIB)], host=dead(30 * GIB) if t < 20 else host())) for t in times(60)]
    assert {each.phase for row in seen for each in row} == {"suspect"}


def test_its_life_while_the_host_is_not_read_for_a_while() -> None:
    def seen() -> Iterator[AgentState]:
        for t in times(700):
            there = dead(10 * GIB) if 10 <= t < 100 else None if 100 <= t < 200 else host()
            yield state(t, gpus=[gpu(40 * GIB)], host=there)

    told = Told(KIND)
    phases = {now.at - UNIX: [each.phase for each in told.look(now)] for now in seen()}
    assert (phases[9], phases[39], phases[40], phases[199]) == ([], ["suspect"], ["confirmed"], ["confirmed"])
    assert (phases[219], phases[300]) == (["resolved"], [])


def test_memory_that_was_refused_on_another_gpu_is_not_missed_here() -> None:
    uuids = ("GPU-0", "GPU-1")
    rows = tuple(make_device(device=n, uuid=uuid) for n, uuid in enumerate(uuids))
    worker = member(make_allocator(devices=rows))
    cards = [gpu(77 * GIB, gpu=str(n), uuid=uuid, index=n) for n, uuid in enumerate(uuids)]

    def tier(device: int) -> str:
        failure = make_failure(rank=0, event=make_event(at=UNIX, device=device))
        parts = {"gpus": cards, "host": dead(20 * GIB), "failures": (failure,), "engines": (engine(members=(worker,)),)}
        found = Told(KIND).last(state(t, **parts) for t in times(60))
        assert found is not None
        return found.tier

    assert (tier(0), tier(1)) == ("page", "warn")
