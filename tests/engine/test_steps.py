"""What is done in each step, and how its cost is told: our own part of it, all of that, and nothing of vLLM's."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from engine_hooks import wire
from engine_hooks.core.ledger import ReferenceLedger
from engine_hooks.core.reporter import EngineReporter
from engine_hooks.core.steps import queue_of
from engine_hooks.core.taps import Taps
from engine_hooks.core.tenants import TenantObserver
from engine_hooks.settings import Settings
from tests.bed.scheduler import BareEngine, make_request, make_scheduler, step
from tests.engine.observing import Watched

FAR = 1e18
PATCHED = ("admission", "departures", "ledger", "taps")


class Hand:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def slow(self, owner: Any, name: str, seconds: float = 1.0) -> None:
        """Let ``owner.name`` take so long."""
        original = getattr(owner, name)

        def takes_long(*args: Any, **kwargs: Any) -> Any:
            self.now += seconds
            return original(*args, **kwargs)

        setattr(owner, name, takes_long)


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    clock = Hand()
    for module in PATCHED:
        monkeypatch.setattr(f"engine_hooks.core.{module}.perf_counter", clock)
    return clock


def serve(scheduler: Any) -> None:
    """Two requests that share a prefix, to their end, and one that its client leaves."""
    for i in range(2):
        scheduler.add_request(make_request(i, 80, 20, 64))
        step(scheduler)
    scheduler.add_request(make_request(2, 80, 20))
    step(scheduler)
    from vllm.v1.request import RequestStatus

    scheduler.finish_requests(["r2"], RequestStatus.FINISHED_ABORTED)
    while scheduler.requests:
        step(scheduler)


def costs(watched: Watched[Any]) -> float:
    return watched.taps.seconds + watched.accounts.ledger_seconds


def test_what_vllms_own_methods_take_is_not_ours(hand: Hand) -> None:
    scheduler = make_scheduler()
    pool, manager = scheduler.kv_cache_manager.block_pool, scheduler.kv_cache_manager
    for owner, names in (
        (scheduler, ("schedule", "add_request", "finish_requests", "_free_request", "_free_blocks")),
        (manager, ("allocate_slots",)),
        (pool, ("get_new_blocks", "touch", "free_blocks")),
    ):
        for name in names:
            hand.slow(owner, name)
    watched = Watched(scheduler, TenantObserver)
    serve(scheduler)
    assert hand.now > 30.0
    assert costs(watched) == 0.0


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Taps, "later"),  # of arrivals, admissions and ends
        (ReferenceLedger, "_count_touched"),
        (ReferenceLedger, "_count_freed"),
    ],
)
def test_what_we_do_inside_a_step_is_ours_each_time(
    owner: type, name: str, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, getattr(owner, name))  # to be as before afterwards
    hand.slow(owner, name)
    watched = Watched(make_scheduler(), TenantObserver)
    serve(watched.scheduler)
    assert hand.now >= 1.0
    assert costs(watched) == hand.now


def test_what_listeners_take_is_ours_and_counted_once(hand: Hand) -> None:
    watched = Watched(make_scheduler(), TenantObserver)
    scheduler, told = watched.scheduler, watched.taps.emitter([lambda *_: setattr(hand, "now", hand.now + 1.0)])
    watched.taps._around("get_request_counts", [told], [told], arguments=0)
    scheduler.get_request_counts()
    assert hand.now == 2.0
    assert watched.taps.seconds == 2.0


class StubLink:
    """Connected; keeps what is sent, and by which thread."""

    up, dropped, state = True, 0, "connected"

    def __init__(self) -> None:
        self.hurry = False
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def later(self, errand: Callable[[], object]) -> None:
        errand()

    def start(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def reporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineReporter]:
    """A reporter on a bare scheduler, whose audits have settled; reports are not due for a long time."""
    monkeypatch.setattr("engine_hooks.core.reporter.BUSY_PERIOD", 1e6)
    monkeypatch.setattr("engine_hooks.core.reporter.LONGEST_BUSY_PERIOD", 1e6)
    monkeypatch.setattr("engine_hooks.core.reporter.DETAIL_PERIOD", 1e6)
    monkeypatch.setattr("engine_hooks.core.reporter.LONGEST_DETAIL_PERIOD", 1e6)
    scheduler = make_scheduler()
    engine = BareEngine(scheduler=scheduler, vllm_config=scheduler.vllm_config)
    found = EngineReporter(engine, Settings.from_environment({"KVTIDE_SOCKET": "/proc/none/agent.sock"}), None)
    found._link = StubLink()  # type: ignore[assignment]
    found.start()
    while found._audit_wants_more or found._sections is not None or not found._steps.number:
        found.after_step(0.0)
    yield found
    assert found._guard.errors == {}
    del engine


def reports(reporter: EngineReporter) -> list[wire.Report]:
    return [message for message in reporter._link.sent if isinstance(message, wire.Report)]  # type: ignore[attr-defined]


def test_most_steps_are_only_counted(reporter: EngineReporter, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = reporter._view.scheduler
    scheduler.add_request(make_request(0, 40, 1000))
    step(scheduler)
    reporter.after_step(0.0)
    steps, before, told = reporter._steps, reporter._steps.number, len(reports(reporter))

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is due")

    monkeypatch.setattr(reporter, "_work", never)
    for _ in range(40):
        step(scheduler)
        reporter.after_step(0.0)
    assert steps.number == before + 40
    assert steps.low < steps.high, "the blocks of forty tokens"
    assert steps.low == scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    assert len(reports(reporter)) == told


def test_coming_to_rest_is_told_at_once_each_time(reporter: EngineReporter) -> None:
    scheduler = reporter._view.scheduler
    for i in range(3):  # each takes steps, and comes and goes between two reports
        told = len(reports(reporter))
        scheduler.add_request(make_request(i, 40, 3))
        while scheduler.requests:
            assert len(reports(reporter)) == told
            step(scheduler)
            reporter.after_step(0.0)
        assert len(reports(reporter)) == told + 1
        assert reports(reporter)[-1].requests == 0


def test_an_order_is_obeyed_after_the_next_step(reporter: EngineReporter) -> None:
    scheduler = reporter._view.scheduler
    scheduler.add_request(make_request(0, 40, 1000))
    for _ in range(5):
        step(scheduler)
        reporter.after_step(0.0)
    reporter._order(wire.Order(sequence=7, kind=wire.CHECK))
    step(scheduler)
    reporter.after_step(0.0)
    results = [message for message in reporter._link.sent if isinstance(message, wire.OrderResult)]  # type: ignore[attr-defined]
    assert [result.sequence for result in results] == [7]


def test_requests_that_get_another_book_are_found(reporter: EngineReporter) -> None:
    """No vLLM does that; one that did would be watched all the same."""
    scheduler = reporter._view.scheduler
    scheduler.requests = dict(scheduler.requests)
    scheduler.add_request(make_request(0, 40, 3))
    told = len(reports(reporter))
    while scheduler.requests:
        step(scheduler)
        reporter.after_step(0.0)
    assert len(reports(reporter)) == told + 1


def test_the_engines_thread_sends_nothing_itself(reporter: EngineReporter) -> None:
    from engine_hooks.errands import Errands

    errands, senders = Errands("test"), []
    link: Any = reporter._link
    link.later = errands.put
    link.send = lambda _: senders.append(threading.get_ident())
    reporter._order(wire.Order(sequence=1, kind=wire.CHECK))
    reporter.on_wake()
    reporter._request_report()
    reporter.on_wake()
    errands.end(60.0)
    assert len(senders) >= 4, "a result, reports and a detail"
    assert threading.get_ident() not in senders


def test_what_is_handed_over_does_not_change_any_more(reporter: EngineReporter) -> None:
    """It is sent while the next step runs, by another thread: what it is made of may not be what the step changes."""
    handed: list[tuple[Any, bytes]] = []
    link: Any = reporter._link
    link.later = lambda errand: handed.append((errand.args[2], msgspec.msgpack.encode(errand.args[2])))
    scheduler = reporter._view.scheduler
    for i in range(6):
        scheduler.add_request(make_request(i, 80, 40, 64))
    scheduler.kv_cache_manager.block_pool.get_new_blocks(3)  # leaked: there is more to be told
    for turn in range(60):
        step(scheduler)
        reporter.after_step(0.0)
        if turn % 10 == 5:
            reporter._order(wire.Order(sequence=turn, kind=wire.CHECK))
            reporter._request_report()
            reporter.on_wake()
    kinds = {type(message).__name__ for message, _ in handed}
    assert kinds == {"Report", "OrderResult", "dict"}, "a dict has the sections of a detail"
    assert [msgspec.msgpack.encode(message) for message, _ in handed] == [then for _, then in handed]


def test_a_pool_of_vllms_own_is_asked_by_its_queue_and_any_other_by_its_method(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = make_scheduler().kv_cache_manager.block_pool
    assert queue_of(pool) is pool.free_block_queue

    class Reserved(type(pool)):  # type: ignore[misc]
        def get_num_free_blocks(self) -> int:
            return int(self.free_block_queue.num_free_blocks) - 5

    plain = pool.get_num_free_blocks()
    pool.__class__ = Reserved
    assert queue_of(pool).num_free_blocks == plain - 5
    monkeypatch.setattr(Reserved, "get_num_free_blocks", lambda _: 6)  # on the class, which was looked at before
    assert queue_of(pool).num_free_blocks == 6
    pool.get_num_free_blocks = lambda: 7
    assert queue_of(pool).num_free_blocks == 7


def test_a_queue_that_is_exchanged_is_found(reporter: EngineReporter) -> None:
    pool, steps = reporter._view.pool, reporter._steps
    pool.free_block_queue = copy.copy(pool.free_block_queue)
    pool.free_block_queue.num_free_blocks -= 11
    steps.low = steps.high = plain = steps.low
    reporter._accounts.observe_step()
    assert (steps.low, steps.high) == (plain - 11, plain)
    pool.free_block_queue.num_free_blocks += 11


@pytest.mark.parametrize("after", ["observe", "step"])
def test_a_step_that_is_only_counted_notes_what_any_other_does(reporter: EngineReporter, after: str) -> None:
    pool, steps, ledger = reporter._view.pool, reporter._steps, reporter._accounts.ledger
    assert ledger is not None
    steps.requests, steps.due, steps.turn = {"r": None}, FAR, 0
    steps.low = steps.high = plain = pool.get_num_free_blocks()
    noted = []
    for change in (0, -3, 0, 4, *([0] * 14)):
        pool.free_block_queue.num_free_blocks += change
        if after == "step":
            reporter.after_step(0.0)
        else:
            steps.observe()
        noted.append((steps.low - plain, steps.high - plain, ledger.timing))
    pool.free_block_queue.num_free_blocks -= 1
    assert noted == [(0, 0, False), *[(-3, 0, False)] * 2, *[(-3, 1, False)] * 13, (-3, 1, True), (-3, 1, False)]
