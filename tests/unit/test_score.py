"""Health scores: both forms, the harm rule, the penalties, and what has no score."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.policy.types import DEFAULT, TEXTBOOK, Policy, ScorePolicy
from agent.signals.score import fragmentation_penalty, leak_penalty, scores
from agent.signals.types import AllocatorSignals, EngineSignals, NodeSignals, Score
from agent.sources.device.state import GpuMemory
from agent.state import AgentState
from agent.subject import Subject
from agent.waterfall.state import Part, Waterfall
from tests.unit.builders import make_engine, make_pool, make_state, make_verdict, make_worker
from tests.unit.node_builders import make_cgroup, make_devices, make_gpu, make_host

GIB = 2**30


def signals(use: float, harm: bool | None, **allocator: Any) -> NodeSignals:
    engine = EngineSignals(
        engine="m", instance="i1", hooked=True, age_seconds=1000.0, settled=True, use_ratio=use, harm=harm
    )
    each = AllocatorSignals(engine="m", process="", role="worker", rank=0, pid=1, gpu="0", **allocator)
    return NodeSignals(engines=(engine,), allocators=(each,))


def node(*, parts: dict[str, int] | None = None, free: int = 8, orphaned: int = 0, **changes: Any) -> AgentState:
    """An 80 GiB GPU with a KV pool on it, as an engine preallocates it."""
    sizes = (
        {"weights": 20, "kv_held": 30, "kv_cached_idle": 10, "kv_empty": 10, "context": 2} if parts is None else parts
    )
    memory = GpuMemory(total=80 * GIB, used=(80 - free) * GIB, free=free * GIB, reserved=0)
    owned = [Part(part=name, bytes=size * GIB, error_bytes=0, owner="m") for name, size in sizes.items()]  # type: ignore[arg-type]
    owned.append(Part(part="free", bytes=free * GIB, error_bytes=0))
    fall = Waterfall(
        gpu="0", uuid="GPU-1", total_bytes=80 * GIB, parts=tuple(owned), unattributed_bytes=0, error_bytes=0
    )
    engine = make_engine(pool=make_pool(orphaned=orphaned), members=(make_worker(),), verdicts=())
    values = {"device": make_devices(make_gpu("0", uuid="GPU-1", memory=memory)), "waterfalls": (fall,), "host": None}
    return make_state(engine, **values | changes)


def made(state: AgentState, told: NodeSignals, policy: Policy = DEFAULT, verdicts: Any = ()) -> dict[str, Score]:
    return {f"{each.scope}/{each.form}": each for each in scores(state, told, tuple(verdicts), policy)}


def test_a_pool_with_room_has_all_points() -> None:
    assert made(node(), signals(0.5, harm=False))["kv/kvtide"].value == 100


@pytest.mark.parametrize(
    ("use", "harm", "policy", "value"),
    [
        (0.80, True, DEFAULT, 50),
        (0.95, True, DEFAULT, 0),
        (0.95, False, DEFAULT, 60),
        (0.80, False, DEFAULT, 60),
        (0.72, False, DEFAULT, 90),
        (0.95, False, TEXTBOOK, 0),
    ],
)
def test_a_full_pool_is_ill_only_with_harm_or_by_the_textbook(
    use: float, harm: bool | None, policy: Policy, value: float
) -> None:
    assert made(node(), signals(use, harm=harm), policy)["kv/kvtide"].value == pytest.approx(value)


def test_a_preallocated_gpu_is_not_ill_for_that_and_by_the_textbook_is() -> None:
    found = made(node(), signals(0.5, harm=False))

    assert found["device/kvtide"].value == 100
    assert found["device/textbook"].value == pytest.approx(0.0, abs=1e-6)
    assert found["engine/kvtide"].value == 100
    assert found["engine/textbook"].value == found["device/textbook"].value


def test_the_textbook_form_is_raw_free_memory_less_the_reserve() -> None:
    found = made(node(parts={"weights": 40}, free=40), signals(0.5, harm=False))

    assert found["device/textbook"].value == pytest.approx(40)


def test_a_gpu_whose_memory_nobody_splits_has_no_score_but_the_textbook_s() -> None:
    found = made(node(parts={"other_processes": 72}), signals(0.5, harm=False))

    assert "device/kvtide" not in found
    assert "device/textbook" in found
    roomy = made(node(parts={"other_processes": 20}, free=60), signals(0.5, harm=False))
    assert roomy["device/kvtide"].value == 100


@pytest.mark.parametrize(
    ("ratio", "points"), [(None, 0), (0.1, 0), (0.2, 0), (0.3, 10), (0.4, 20), (0.6, 40), (0.9, 40)]
)
def test_fragmentation_takes_points_off(ratio: float | None, points: float) -> None:
    assert fragmentation_penalty(ratio) == pytest.approx(points)


def test_fragmentation_of_next_to_nothing_takes_none_off() -> None:
    much = made(node(), signals(0.5, harm=False, fragmentation=0.4, free_bytes=2 * GIB))
    little = made(node(), signals(0.5, harm=False, fragmentation=0.9, free_bytes=2**20))

    assert much["device/kvtide"].fragmentation_penalty == pytest.approx(20)
    assert much["kv/kvtide"].fragmentation_penalty == 0
    assert little["device/kvtide"].fragmentation_penalty == 0


@pytest.mark.parametrize(
    ("leaked", "confirmed", "points"),
    [(0, False, 0), (0, True, 10), (0.02, True, 10), (0.1, False, 20), (0.6, True, 50)],
)
def test_a_leak_takes_points_off(leaked: float, confirmed: bool, points: float) -> None:
    assert leak_penalty(leaked, confirmed) == pytest.approx(points)


def test_a_leak_s_points_are_off_the_pool_that_has_it_once_it_is_confirmed() -> None:
    mine = make_verdict(subject=Subject(scope="engine", engine="m"))
    other = make_verdict(subject=Subject(scope="engine", engine="n"))
    suspect = make_verdict(subject=Subject(scope="engine", engine="m"), phase="suspect")

    def points(*verdicts: Any, orphaned: int = 0) -> float:
        return made(node(orphaned=orphaned), signals(0.5, harm=False), verdicts=verdicts)["kv/kvtide"].leak_penalty

    assert points(mine) == 10
    assert points(other) == 0
    assert points(suspect) == 0
    assert points(orphaned=100) == pytest.approx(20)
    assert made(node(), signals(0.5, harm=False), verdicts=[mine])["engine/kvtide"].value == 90


@pytest.mark.parametrize(
    ("kind", "subject", "points"),
    [
        ("device_growth", Subject(scope="gpu", gpu="0"), 10),
        ("device_growth", Subject(scope="gpu", gpu="1"), 0),
        ("allocator_growth", Subject(scope="process", engine="m", process="worker/0"), 10),
        ("allocator_growth", Subject(scope="process", engine="m", process="worker/1"), 0),
        ("sleep_residue", Subject(scope="engine", engine="m"), 10),
        ("sleep_residue", Subject(scope="engine", engine="other"), 0),
        ("kv_orphan", Subject(scope="engine", engine="m"), 0),
    ],
)
def test_a_leak_on_a_gpu_takes_points_off_that_gpu_whatever_it_is_a_verdict_on(
    kind: str, subject: Subject, points: float
) -> None:
    told = signals(0.5, harm=False, fragmentation=0.0)
    verdict = make_verdict(kind=kind, subject=subject, tier="warn")
    assert made(node(), told, verdicts=(verdict,))["device/kvtide"].leak_penalty == points


def test_the_host_and_its_cgroups_have_scores_and_a_host_that_is_not_read_has_none() -> None:
    group = make_cgroup(limit_bytes=100, limit_current_bytes=80, current_bytes=80, working_set_bytes=80)
    host = make_host(cgroups=(group,), killed=(), memory={"total": 100, "available": 50})
    state = node(host=host)
    found = [each for each in scores(state, signals(0.5, harm=False), (), DEFAULT) if each.scope == "host"]

    assert {(each.engine, each.harm): each.value for each in found} == {("", True): 100, ("m", True): 50}
    assert made(state, signals(0.5, harm=False))["engine/kvtide"].value == pytest.approx(50)
    assert not [each for each in scores(node(), signals(0.5, harm=False), (), DEFAULT) if each.scope == "host"]


@given(
    st.floats(0, 1.2),
    st.sampled_from([True, False, None]),
    st.floats(0, 1) | st.none(),
    st.integers(0, 1000),
    st.sampled_from([DEFAULT, TEXTBOOK]),
)
def test_a_score_is_never_outside_its_scale(
    use: float, harm: bool | None, fragmentation: float | None, orphaned: int, policy: Policy
) -> None:
    told = signals(use, harm, fragmentation=fragmentation, free_bytes=4 * GIB, retries_per_minute=1.0)

    assert all(0 <= each.value <= 100 for each in scores(node(orphaned=orphaned), told, (), policy))


def test_where_harm_is_not_known_a_pool_that_may_be_ill_has_no_score() -> None:
    unknown, roomy = made(node(), signals(0.95, harm=None)), made(node(), signals(0.5, harm=None))
    assert "kv/kvtide" not in unknown
    assert "engine/kvtide" not in unknown, "the least of its parts is not known"
    assert "engine/textbook" in unknown
    assert roomy["kv/kvtide"].value == 100
    assert roomy["kv/kvtide"].harm is None


@pytest.mark.parametrize(
    ("use", "tier"), [(0.7, ""), (0.79, "warning"), (0.83, "severe"), (0.87, "emergency"), (0.95, "emergency")]
)
def test_a_score_says_how_soon_somebody_has_to_respond_by_the_policy_in_force(use: float, tier: str) -> None:
    assert made(node(), signals(use, harm=True))["kv/kvtide"].tier == tier
    calm = Policy(score=ScorePolicy(warn_below=3, severe_below=2, emergency_below=1))
    assert made(node(), signals(min(use, 0.89), harm=True), calm)["kv/kvtide"].tier == ""
