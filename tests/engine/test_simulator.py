"""The simulator on vLLM's real scheduler: what it plants is what the hooks and the judge find, no more and no less."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.advise.measure import measure
from agent.bundle.format import Bundle, read
from agent.errors import ConfigError
from agent.judge import Judge
from agent.simulate.run import Engine, Event, Fault, Load, Simulator, Spec, Summary, simulate
from agent.state import AgentState

PYTHON = Path(sys.executable)
START = 1000.0  # monotonic seconds of a run's beginning
SHORT = {"seconds": 240.0, "load": Load(interrupts=0.2)}


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator(PYTHON) as process:
        yield process


@pytest.fixture
def run(simulator: Simulator, tmp_path: Path) -> Iterator[object]:
    def one(spec: Spec, name: str = "run.kvtide") -> tuple[Summary, Bundle]:
        summary = simulate(spec, tmp_path / name, simulator=simulator)
        return summary, read(tmp_path / name)

    return one


def last(bundle: Bundle) -> AgentState:
    *_, state = bundle.states()
    assert state.engines[0].hooks.errors == {}
    return state


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        ("orphan", Engine()),
        ("slow_leak", Engine()),
        ("staircase", Engine()),
        ("burst_leak", Engine()),
        ("shared_prefix", Engine()),
        ("spec_residue", Engine(drafts=4)),
    ],
)
def test_orphans_are_counted_exactly(run, kind: str, engine: Engine) -> None:
    summary, bundle = run(Spec(**SHORT, engine=engine, faults=(Fault(kind=kind, onset=60.0),)))
    pool = last(bundle).engines[0].pool
    assert summary.planted[0] > 0
    assert pool.orphaned == summary.planted[0]
    assert (pool.over_freed, pool.exact) == (0, True)
    (label,) = bundle.header.labels
    assert label.onset >= START + 60.0
    before = [s.engines[0].pool.orphaned for s in bundle.states() if s.monotonic < label.onset]
    assert set(before) == {0}


@pytest.mark.parametrize(
    "engine",
    [
        Engine(),
        Engine(drafts=4),
        Engine(connector="remote"),
        Engine(connector="opaque"),
        Engine(caching=False),
        Engine(priority=True, blocks=1200),
    ],
)
def test_a_sound_engine_has_none(run, engine: Engine) -> None:
    summary, bundle = run(Spec(**SHORT, engine=engine))
    assert summary.labels == ()
    assert bundle.header.labelled
    for state in bundle.states():
        pool = state.engines[0].pool
        assert (pool.orphaned, pool.over_freed) == (0, 0)
    assert last(bundle).engines[0].detail.tenants[0].generated_tokens_total > 10_000


def test_a_leak_is_named_within_ten_seconds(run) -> None:
    summary, bundle = run(Spec(**SHORT, faults=(Fault(kind="orphan", onset=60.0, rate=30.0),)))
    judge = Judge()
    named = [
        state.monotonic
        for state in bundle.states()
        if any(v.kind == "kv_orphan" and v.phase == "confirmed" for v in judge.look(state).verdicts)
    ]
    assert summary.labels[0].onset < named[0] <= summary.labels[0].onset + 10.0


def test_blocks_that_are_freed_twice_are_seen_while_others_read_them(run) -> None:
    _, bundle = run(Spec(**SHORT, faults=(Fault(kind="double_free", onset=60.0, rate=60.0),)))
    (label,) = bundle.header.labels
    counts = {s.monotonic: s.engines[0].pool.over_freed for s in bundle.states()}
    assert not any(count for at, count in counts.items() if at < label.onset)
    assert any(count for at, count in counts.items() if at >= label.onset)


@pytest.mark.parametrize("kind", ["delayed_free", "abort_loading"])
def test_what_nobody_signals_stays_delayed_past_its_lease(run, kind: str) -> None:
    engine = Engine(connector="remote", lease_seconds=30.0)
    summary, bundle = run(Spec(**SHORT, engine=engine, faults=(Fault(kind=kind, onset=60.0, blocks=40),)))
    state = last(bundle).engines[0]
    assert summary.planted[0] >= 40
    assert sum(row.expired for row in state.detail.delayed) == summary.planted[0]
    assert state.pool.orphaned == 0


def test_a_lease_ends_what_a_peer_that_is_away_does_not(run) -> None:
    engine = Engine(connector="remote", lease_seconds=30.0)
    _, bundle = run(Spec(**SHORT, engine=engine, events=(Event(kind="bounded_delay", at=60.0, seconds=60.0),)))
    oldest = [
        max((row.oldest_seconds for row in s.engines[0].detail.delayed), default=0.0)
        for s in bundle.states()
        if s.engines[0].detail
    ]
    assert 25.0 < max(oldest) <= 31.0
    assert max(oldest[-20:]) < 5.0


def test_an_unknown_pin_is_orphaned_once_it_is_old(run) -> None:
    engine = Engine(connector="opaque", pin_seconds=60.0)
    summary, bundle = run(Spec(**SHORT, engine=engine, faults=(Fault(kind="unknown_pin", onset=60.0, blocks=12),)))
    assert last(bundle).engines[0].pool.orphaned == summary.planted[0] == 12


def test_a_stall_and_a_pause_differ(run) -> None:
    stall = Fault(kind="stall", onset=60.0, seconds=60.0)
    _, stalled = run(Spec(**SHORT, faults=(stall,)), "stall.kvtide")
    _, paused = run(Spec(**SHORT, events=(Event(kind="pause", at=60.0, seconds=60.0),)), "pause.kvtide")

    def still(bundle: Bundle) -> float:
        rows = [s.engines[0].detail.waiting for s in bundle.states() if s.engines[0].detail]
        return max(row.stalled_seconds or 0.0 for row in rows)

    assert still(stalled) > 30.0
    assert still(paused) < 2.0
    (label,) = stalled.header.labels
    assert START + 60.0 < label.onset < START + 120.0
    assert label.ended == pytest.approx(START + 120.0, abs=1.0)


def test_a_pool_too_small_thrashes(run) -> None:
    summary, bundle = run(Spec(**SHORT, faults=(Fault(kind="preemption_thrash", onset=30.0),)))
    assert summary.labels[0].kind == "preemption_thrash"
    assert last(bundle).engines[0].detail.allocation.preempted_total > 10


def test_a_restarted_engine_is_another(run) -> None:
    _, bundle = run(Spec(**SHORT, events=(Event(kind="restart", at=60.0, seconds=30.0),)))
    seen = {s.engines[0].instance if s.engines else "": s.monotonic for s in bundle.states()}
    assert len(seen) == 3
    assert list(seen)[1] == ""
    assert last(bundle).engines[0].started_at > Spec().start + 80.0


def test_the_same_seed_gives_the_same_bundle(run, tmp_path: Path) -> None:
    load = Load(tenants=5, turns=3.0, interrupts=0.1, urgent=0.2)
    spec = Spec(seconds=120.0, seed=7, load=load, faults=(Fault(kind="orphan", onset=30.0),))
    run(spec, "one.kvtide")
    simulate(spec, tmp_path / "two.kvtide", PYTHON)  # in another process, which has run nothing before
    run(Spec(seconds=120.0, seed=8, load=load, faults=spec.faults), "other.kvtide")
    one, two, other = ((tmp_path / f"{name}.kvtide").read_bytes() for name in ("one", "two", "other"))
    assert one == two
    assert one != other


def test_a_trace_file_is_played(run, tmp_path: Path) -> None:
    lines = [
        f'{{"timestamp": {1000 * n}, "input_length": 900, "output_length": 50, "hash_ids": [0, {n}]}}'
        for n in range(60)
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(lines))
    _, bundle = run(Spec(seconds=90.0, load=Load(trace=str(path), interrupts=0.0)))
    (tenant,) = last(bundle).engines[0].detail.tenants
    assert tenant.requests_total == 60
    assert tenant.prompt_tokens_total == 60 * 900
    assert tenant.generated_tokens_total == 60 * 50


def test_a_bad_trace_is_told_in_one_line_and_the_process_lives_on(run, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0}\n')
    with pytest.raises(ConfigError, match=r"trace.jsonl: line 1: .*input_length"):
        run(Spec(seconds=60.0, load=Load(trace=str(path))), "bad.kvtide")
    assert not list(tmp_path.glob("*bad*"))
    summary, _ = run(Spec(seconds=30.0))
    assert summary.states == 30


def test_a_watermark_keeps_blocks_free_at_admission(simulator: Simulator) -> None:
    """What `kvtide advise` tries: with most of the pool kept free fewer requests are let in at once."""
    load = Load(rate=6.0, prompt=800, output=100, interrupts=0.0)
    found = {}
    for share in (0.0, 0.6):
        engine = Engine(blocks=400, watermark=share)
        found[share] = measure(Spec(seconds=120.0, engine=engine, load=load), simulator)
    assert found[0.6].use_ratio < 0.75 * found[0.0].use_ratio
    assert found[0.6].ended > 0
