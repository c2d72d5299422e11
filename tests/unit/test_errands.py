"""What the engine's thread hands over: done once, in order, elsewhere; and it never waits for that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from engine_hooks import wire
from engine_hooks.errands import MAX_WAITING, Errands
from engine_hooks.link import AgentLink
from tests.unit.support import PATIENCE, Listener, Recorder, eventually


@pytest.fixture
def errands() -> Iterator[Errands]:
    made = Errands("test")
    yield made
    made.end(PATIENCE)
    assert made._thread is None or not made._thread.is_alive()


def noted(into: list[tuple[int, int]], number: int) -> Callable[[], None]:
    return lambda: into.append((number, threading.get_ident()))


def test_they_are_done_in_order_by_one_other_thread(errands: Errands) -> None:
    done: list[tuple[int, int]] = []
    assert all(errands.put(noted(done, number)) for number in range(20))
    eventually(lambda: len(done) == 20)
    assert [number for number, _ in done] == list(range(20))
    (thread,) = {thread for _, thread in done}
    assert thread != threading.get_ident()


def test_where_too_many_wait_one_more_is_refused_at_once(errands: Errands) -> None:
    done: list[tuple[int, int]] = []
    under_way, go_on = threading.Event(), threading.Event()

    def stuck() -> None:
        under_way.set()
        go_on.wait(PATIENCE)

    errands.put(stuck)
    assert under_way.wait(PATIENCE)
    try:
        assert all(errands.put(noted(done, number)) for number in range(MAX_WAITING))
        assert not errands.put(noted(done, -1))
    finally:
        go_on.set()
    eventually(lambda: len(done) == MAX_WAITING)
    assert [number for number, _ in done] == list(range(MAX_WAITING))


def test_without_a_thread_it_is_done_here(errands: Errands, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[tuple[int, int]] = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert errands.put(noted(done, 1))
    assert done == [(1, threading.get_ident())]
    monkeypatch.undo()
    errands.put(noted(done, 2))
    eventually(lambda: len(done) == 2)
    assert done[1][1] != threading.get_ident()


def test_an_errand_may_end_it(errands: Errands) -> None:
    errands.put(lambda: errands.end(PATIENCE))
    thread = errands._thread
    assert thread is not None
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_what_was_handed_over_is_sent_before_the_link_closes(
    listener: Listener, start_link: Callable[[Recorder], AgentLink]
) -> None:
    link = start_link(Recorder())
    peer = listener.accept()
    peer.shake_hands()
    eventually(lambda: link.up)
    beats = [wire.Heartbeat(silent_seconds=float(number)) for number in range(20)]
    for beat in beats:
        link.later(lambda beat=beat: link.send(beat))  # type: ignore[misc]
    link.close()
    assert [peer.receive() for _ in beats] == beats
    assert peer.receive_raw() == b""
    assert link.dropped == 0


def test_what_can_not_be_handed_over_is_counted(
    listener: Listener, start_link: Callable[[Recorder], AgentLink]
) -> None:
    link = start_link(Recorder())
    listener.accept().shake_hands()
    eventually(lambda: link.up)
    go_on = threading.Event()
    for _ in range(MAX_WAITING + 3):  # the first may be under way, and wait no more
        link.later(lambda: go_on.wait(PATIENCE))
    go_on.set()
    assert link.dropped in (2, 3)
