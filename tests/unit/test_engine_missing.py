"""An engine that has gone, is silent, or has lost processes; a stop on purpose and a restart are none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from agent.state import AgentState, EngineState
from tests.unit.allocators import make_event, make_failure
from tests.unit.node_builders import make_killed
from tests.unit.timeline import UNIX, Seen, engine, host, member, page, state, times, watch


def node(t: float, *engines: EngineState, **parts: object) -> AgentState:
    return state(t, engines=engines, **parts)


def gone(running: int, at: float = 60.0, back: float = 1e9, seconds: float = 600.0, **later: object) -> Seen:
    """An engine that ends at ``at`` and is there again from ``back`` on."""

    def states() -> Iterator[AgentState]:
        for t in times(seconds):
            if t < at:
                yield node(t, engine(running=running))
            elif t < at + 2:
                yield node(t, engine(phase="lost", running=None, pool=None, reason="its link has ended"))
            elif t < back:
                yield node(t, **later)
            else:
                yield node(t, engine(instance="new", started_at=UNIX + back))

    return watch(states())


def told(seen: Seen) -> list[tuple[float, str]]:
    return [(t, each.tier) for t, each in seen.confirmed if each.kind == "engine_missing"]


def test_one_that_had_work_and_has_no_successor() -> None:
    seen = gone(running=8)
    assert told(seen) == [(130.0, "note"), (250.0, "warn")]
    verdict = seen.of("engine_missing")
    assert verdict.subject.engine == "m"
    assert verdict.sentence == ("Engine m has gone: for 9 min nothing has come in its place. It had 8 requests then.")


def test_a_stop_that_left_nothing_undone_is_a_note() -> None:
    seen = gone(running=0)
    assert told(seen) == [(130.0, "note")]
    assert seen.kinds() == set()
    assert "If somebody stopped it, nothing" in seen.of("engine_missing").remedy


def test_one_that_was_killed_pages() -> None:
    seen = gone(running=0, host=host(killed=(make_killed(engine="m", at=UNIX + 59),)))
    assert told(seen) == [(130.0, "page")]
    assert seen.of("engine_missing").sentence.endswith(" The kernel killed its worker for want of memory.")
    failed = gone(running=0, failures=(make_failure(engine="m", event=make_event(at=UNIX + 50)),))
    assert told(failed) == [(130.0, "page")]
    old = gone(running=0, failures=(make_failure(engine="m", event=make_event(at=UNIX - 4000)),))
    assert told(old) == [(130.0, "note")], "that failed long before"


@pytest.mark.parametrize("back", [62.0, 90.0, 125.0])
def test_a_restart_is_none(back: float) -> None:
    assert told(gone(running=8, back=back)) == []


def test_a_restart_that_loads_weights_for_minutes_is_a_note() -> None:
    assert told(gone(running=8, back=240.0)) == [(130.0, "note")]


def test_one_whose_processes_are_here_is_given_more_time() -> None:
    assert told(gone(running=8, back=600.0, unjoined_members=2)) == [(130.0, "note")]
    assert told(gone(running=8, seconds=800.0, unjoined_members=2)) == [(130.0, "note"), (670.0, "warn")]


def test_one_that_comes_back_late_is_no_longer_missed() -> None:
    seen = gone(running=8, back=300.0)
    assert told(seen) == [(130.0, "note"), (250.0, "warn")]
    assert [each.kind for each in seen.last] == []


def test_one_that_has_moved_is_forgotten() -> None:
    seen = gone(running=8, seconds=1200.0)
    assert [each.kind for each in seen.last] == []


def test_a_successor_with_another_label_stands_in_for_it() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(400):
            old = [engine()] if t < 60 else []
            new = [engine(engine="m~2", instance="new", started_at=UNIX + 30)] if t >= 30 else []
            yield node(t, *old, *new)

    assert told(watch(states())) == []


def test_a_silent_engine_warns_then_pages_and_a_long_start_is_none() -> None:
    def states(started_at: float) -> Iterator[AgentState]:
        for t in times(200):
            if t < 20:
                yield node(t, engine(started_at=started_at))
            else:
                reason = "no word: the process is stopped or gets no CPU"
                silent = {"phase": "silent", "reason": reason, "running": None, "pool": None}
                yield node(t, engine(started_at=started_at, report_age_seconds=t - 20, **silent))

    seen = watch(states(UNIX - 3600))
    assert told(seen) == [(60.0, "warn"), (140.0, "page")]
    assert seen.of("engine_missing").sentence == (
        "Engine m has said nothing for 3 min: no word: the process is stopped or gets no CPU."
    )
    assert told(watch(states(UNIX + 100))) == [], "it has hardly started"


def workers(up: Iterable[bool]) -> tuple[object, ...]:
    return tuple(member(rank=rank, up=each, pid=5000 + rank) for rank, each in enumerate(up))


def test_a_worker_that_reported_and_does_no_more() -> None:
    def states(before: tuple[bool, bool], after: tuple[bool, bool]) -> Iterator[AgentState]:
        for t in times(120):
            members = workers(before if t < 30 else after)
            yield node(t, engine(workers_expected=2, members=members))

    seen = watch(states((True, True), (True, False)))
    assert told(seen) == [(60.0, "warn")]
    assert seen.of("engine_missing").sentence == "1 worker of engine m has gone silent: 1 of 2 report."
    assert told(watch(states((True, False), (True, False)))) == [], "it never reported: it may have no hooks"


def test_an_engine_without_hooks_that_does_not_answer_any_more() -> None:
    def states(running: int) -> Iterator[AgentState]:
        for t in times(300):
            if t < 60:
                yield state(t, pages=[page(running=running, generation_tokens=int(50 * t))])
            else:
                nothing = {"usage_ratio": None, "held_blocks": None, "running": None, "waiting": None}
                yield state(t, pages=[page(phase="down", reason="nobody listens", **nothing)])

    seen = watch(states(8))
    assert told(seen) == [(130.0, "note"), (250.0, "warn")]
    assert seen.of("engine_missing").sentence.startswith("Engine s does not answer any more: for")
    assert told(watch(states(0))) == [(130.0, "note")]


def test_one_that_answers_with_what_is_no_page_is_not_missing() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(300):
            if t < 60:
                yield state(t, pages=[page(running=8, generation_tokens=int(50 * t))])
            else:
                nothing = {"usage_ratio": None, "held_blocks": None, "running": None, "waiting": None}
                yield state(t, pages=[page(phase="bad_page", reason="it is empty", **nothing)])

    assert told(watch(states())) == []


def test_a_source_that_is_not_up_and_a_page_that_never_came_are_nobody_missing() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(300):
            yield state(t, pages=[page(running=8)]) if t < 60 else state(t)

    assert told(watch(states())) == []
    down = {"phase": "down", "usage_ratio": None, "held_blocks": None, "running": None}
    assert told(watch(state(t, pages=[page(**down)]) for t in times(300))) == []


def test_silence_counts_by_our_own_clock_where_its_age_is_not_told_finely() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(200):
            silent = {"phase": "silent", "reason": "no word", "running": None, "pool": None, "report_age_seconds": 12.0}
            yield node(t, engine(**silent if t >= 20 else {}))

    assert told(watch(states())) == [(60.0, "warn"), (140.0, "page")]


def test_a_silence_in_which_the_agent_did_not_listen_gets_nobody_up() -> None:
    def states(back: float) -> Iterator[AgentState]:
        for t in (*times(60), *(360 + each for each in times(200))):
            silent = {"phase": "silent", "reason": "no word", "running": None, "pool": None}
            age = {"report_age_seconds": t - 60}
            yield node(t, engine(**silent | age) if 360 <= t < back else engine())

    assert told(watch(states(362.0))) == []
    assert told(watch(states(1e9))) == [(370.0, "page")]


def test_a_time_without_states_is_none_in_which_an_engine_was_gone() -> None:
    def states() -> Iterator[AgentState]:
        for t in (*times(30), *(600 + each for each in times(40))):
            yield node(t, *([] if t >= 30 else [engine(running=8)]))

    assert told(watch(states())) == []


def test_one_that_was_killed_was_so_while_the_host_is_not_read() -> None:
    there = host(killed=(make_killed(engine="m", at=UNIX + 59),))

    def states() -> Iterator[AgentState]:
        for t in times(200):
            yield node(t, *([engine()] if t < 60 else []), host=None if t % 10 == 9 else there)

    seen = [each for each in watch(states()).confirmed if each[1].kind == "engine_missing"]
    assert [(t, each.tier) for t, each in seen] == [(130.0, "page")]
