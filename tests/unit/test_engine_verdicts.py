"""A leak from its first report to its last trace, and what makes no verdict."""

from __future__ import annotations

from agent.engines import EngineTable
from agent.judge import Judge
from agent.judged import judged
from agent.state import AgentState, EngineState, Verdict
from agent.verdicts.endings import ENGINE_GONE
from engine_hooks.wire import Heartbeat
from tests.unit.builders import make_hello, make_pool_report, make_report, make_state
from tests.unit.details import make_delayed, make_detail, make_leak, make_waiting

UNIX = 1_700_000_000.0


class Watched(EngineTable):
    """A table whose engines are judged each time that they are looked at, as the agent does it."""

    def __init__(self) -> None:
        super().__init__(3.0)
        self.judge = Judge()

    def look(self, now: float) -> AgentState:
        """Return the judged state of a node that has nothing but these engines."""
        nothing = {"sources": (), "processes": (), "failures": (), "failure_counts": (), "waterfalls": ()}
        unread = dict.fromkeys(("device", "host", "driver_calls", "scrape"))
        state = make_state(*self.states(now, UNIX + now), **nothing, **unread, at=UNIX + now, monotonic=now)
        return judged(state, self.judge.look(state))


def told(table: Watched, orphaned: int | None, now: float) -> Verdict | None:
    """Report, and return the verdict that people see then."""
    table.report("i1", make_report(make_pool_report(orphaned=orphaned)), now)
    (engine,) = table.look(now).engines
    assert len(engine.verdicts) <= 1
    return engine.verdicts[0] if engine.verdicts else None


def phase(table: Watched, orphaned: int | None, now: float) -> str:
    verdict = told(table, orphaned, now)
    return verdict.phase if verdict else "none"


def engine() -> Watched:
    table = Watched()
    table.hello(make_hello(), 1, 0.0)
    return table


def test_suspect_confirmed_resolved_forgotten_at_the_exact_times() -> None:
    table = engine()
    assert phase(table, 0, 9.0) == "none"
    assert phase(table, 1, 10.0) == "suspect"
    assert phase(table, 2, 12.5) == "suspect"
    assert phase(table, 2, 12.875) == "suspect"
    assert phase(table, 2, 13.0) == "confirmed"
    assert phase(table, 2, 50.0) == "confirmed"
    assert phase(table, 0, 60.0) == "resolved"
    assert phase(table, 0, 119.875) == "resolved"
    assert phase(table, 0, 120.0) == "none"
    assert phase(table, 0, 121.0) == "none"


def test_a_verdict_has_the_last_evidence_and_the_times_of_its_changes() -> None:
    table = engine()
    told(table, 1, 10.0)
    confirmed = told(table, 5, 14.0)
    assert confirmed is not None
    assert (confirmed.kind, confirmed.since, confirmed.changed) == ("kv_orphan", UNIX + 10, UNIX + 14)
    assert confirmed.evidence["orphaned_blocks"] == 5
    grown = told(table, 50, 20.0)
    assert grown is not None
    assert (grown.phase, grown.since, grown.changed) == ("confirmed", UNIX + 10, UNIX + 14)
    assert grown.evidence == {"orphaned_blocks": 50, "orphaned_ratio": 0.05, "orphaned_bytes": 50 * 1024 * 1024}
    resolved = told(table, 0, 30.0)
    assert resolved is not None
    assert (resolved.phase, resolved.since, resolved.changed) == ("resolved", UNIX + 10, UNIX + 30)
    assert resolved.sentence == grown.sentence


def test_a_suspicion_that_goes_away_leaves_no_trace() -> None:
    table = engine()
    assert phase(table, 3, 10.0) == "suspect"
    assert phase(table, 0, 12.0) == "none"
    assert phase(table, 3, 13.5) == "suspect"  # begins anew: 3.5 s after the first one
    assert phase(table, 3, 16.0) == "suspect"
    assert phase(table, 3, 16.5) == "confirmed"


def test_a_leak_that_returns_while_resolved_is_shown_is_a_new_suspicion() -> None:
    table = engine()
    phase(table, 1, 10.0)
    phase(table, 1, 13.0)
    assert phase(table, 0, 20.0) == "resolved"
    again = told(table, 1, 21.0)
    assert again is not None
    assert (again.phase, again.since) == ("suspect", UNIX + 21)


def test_what_is_not_known_is_no_verdict_and_ends_a_suspicion() -> None:
    table = engine()
    assert phase(table, None, 10.0) == "none"
    assert phase(table, 1, 11.0) == "suspect"
    assert phase(table, None, 12.0) == "none"


def test_a_leak_that_is_still_counted_after_a_silence_is_still_the_same() -> None:
    table = engine()
    told(table, 1, 10.0)
    told(table, 1, 13.0)
    state = table.look(20.0)
    (silent,) = state.engines
    assert (silent.phase, silent.verdicts) == ("silent", ())
    assert state.judgement is not None
    (held,) = state.judgement.verdicts  # it is not known to have gone
    assert (held.kind, held.phase, held.held) == ("kv_orphan", "confirmed", True)
    back = told(table, 1, 30.0)
    assert back is not None
    assert (back.phase, back.since) == ("confirmed", UNIX + 10)


def test_a_successor_does_not_inherit_verdicts() -> None:
    table = engine()
    told(table, 1, 10.0)
    told(table, 1, 13.0)
    table.disconnected("i1", 14.0)
    table.hello(make_hello(instance="i2"), 2, 15.0)
    table.report("i2", make_report(make_pool_report(orphaned=0)), 15.0)
    state = table.look(15.0)
    (successor,) = state.engines
    assert (successor.instance, successor.verdicts) == ("i2", ())
    assert state.judgement is not None
    (closed,) = state.judgement.verdicts  # and it is said why it is over
    assert (closed.kind, closed.phase, closed.ending) == ("kv_orphan", "resolved", ENGINE_GONE)


def test_the_same_instance_keeps_its_verdict_over_a_lost_link() -> None:
    table = engine()
    told(table, 1, 10.0)
    told(table, 1, 13.0)
    table.disconnected("i1", 14.0)
    table.hello(make_hello(), 1, 15.0)
    assert phase(table, 1, 15.0) == "confirmed"


def states(table: Watched, now: float) -> dict[str, EngineState]:
    return {state.engine: state for state in table.look(now).engines}


def test_what_the_engine_says_of_kept_blocks_is_in_its_pool() -> None:
    table = engine()
    table.report("i1", make_report(make_pool_report(delayed=40, deferred=7, pinned=24)), 10.0)
    pool = states(table, 10.0)["m"].pool
    assert pool is not None
    assert (pool.delayed, pool.deferred, pool.pinned) == (40, 7, 24)
    table.report("i1", make_report(make_pool_report()), 11.0)
    pool = states(table, 11.0)["m"].pool
    assert pool is not None
    assert (pool.delayed, pool.deferred, pool.pinned) == (None, None, None)


def test_a_leak_is_told_with_who_left_it() -> None:
    table = engine()
    table.detail("i1", make_detail(leaks=(make_leak(),), pools=()), 9.9)
    verdict = told(table, 4, 10.0)
    assert verdict is not None
    assert verdict.sentence.endswith(
        " Last held by tenant acme, request 3fa2b1c4d5e6, aborted at the front end 14 s ago."
    )


def test_a_detail_that_stays_behind_its_reports_is_known_no_more() -> None:
    table = engine()
    table.detail("i1", make_detail(monotonic=50.0, waiting=make_waiting(stalled_seconds=60.0), pools=()), 10.0)
    table.report("i1", make_report(make_pool_report(), monotonic=56.0), 16.0)
    state = states(table, 16.0)["m"]
    assert state.detail is not None
    assert [verdict.kind for verdict in state.verdicts] == ["kv_stall"]
    table.report("i1", make_report(make_pool_report(), monotonic=56.125), 16.125)
    state = states(table, 16.125)["m"]
    assert (state.phase, state.detail, state.verdicts) == ("live", None, ())


def test_a_detail_ages_with_its_engine_and_not_with_our_clock() -> None:
    table = Watched()
    table.hello(make_hello(in_process=True), 1, 0.0)
    table.report("i1", make_report(), 1.0)
    table.detail("i1", make_detail(), 1.0)
    table.heartbeat("i1", Heartbeat(silent_seconds=1000.0), 1000.0)
    assert states(table, 1000.0)["m"].detail == make_detail()  # at rest in its caller's hands: it still holds


def test_a_silent_engine_has_no_detail() -> None:
    table = engine()
    table.report("i1", make_report(), 10.0)
    table.detail("i1", make_detail(), 10.0)
    assert states(table, 10.0)["m"].detail is not None
    assert states(table, 20.0)["m"].detail is None


def test_verdicts_stand_in_the_order_of_the_harm_that_they_do() -> None:
    table = engine()
    told(table, 1, 10.0)
    table.detail("i1", make_detail(waiting=make_waiting(stalled_seconds=60.0), pools=()), 11.0)
    table.report("i1", make_report(make_pool_report(orphaned=1, over_freed=1)), 11.0)
    kinds = [verdict.kind for verdict in states(table, 11.0)["m"].verdicts]
    assert kinds == ["kv_over_freed", "kv_stall", "kv_orphan"]


def test_a_peer_on_this_node_is_called_by_its_label() -> None:
    table = engine()
    table.hello(make_hello(instance="i2", engine_id="e2", name="decode"), 2, 0.0)
    table.report("i2", make_report(), 2.0)
    table.detail("i2", make_detail(transfer_id="nixl-d"), 2.0)
    table.look(2.0)  # then it falls silent
    late = make_delayed(peer="nixl-d", blocks=4, expired=4, oldest_seconds=900.0)
    table.detail("i1", make_detail(delayed=(late,), pools=(), waiting=None), 9.0)
    table.report("i1", make_report(), 10.0)
    (verdict,) = states(table, 10.0)["m"].verdicts
    assert verdict.kind == "kv_delayed_free"
    assert "kept for engine decode (send)" in verdict.sentence
