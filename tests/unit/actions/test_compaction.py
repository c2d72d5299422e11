"""When a pool is made smaller by the agent itself, and when it is let alone or whole again. Each case has its twin."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from agent.actions.memory import IDLE, NEIGHBOUR, Memory
from agent.actions.planner import plans
from agent.actions.room import Room
from agent.actions.types import Action, Outcome, Plan
from agent.policy.types import Policy
from agent.signals.types import EngineSignals, NodeSignals, Rate, Slow
from agent.state import AgentState, EngineState, Judgement, MemberState, Verdict
from agent.subject import Subject
from engine_hooks.levers.base import Done, number
from engine_hooks.levers.orders import Arguments, LeverRow
from tests.unit.actions.conftest import MakeRig
from tests.unit.actions.rig import Knob, policy, short
from tests.unit.actions.test_safety import past
from tests.unit.builders import MIB, make_engine, make_pool, make_state, make_worker
from tests.unit.details import make_compaction, make_detail
from tests.unit.node_builders import make_waterfall

HALF_HOUR = 1800.0
NOT_LISTED = "KVTIDE_LEVERS in the engine's environment does not list compact"
CAN = (LeverRow(lever="compact", ok=True),)
WHOLE = make_detail(compaction=make_compaction(state="idle", offline=0, released_bytes=None), allocation=None)
GPU = Subject(scope="gpu", gpu="0")


def calm(**changes: Any) -> EngineSignals:
    """An engine whose numbers say that nothing is wrong."""
    values: dict[str, Any] = {"engine": "m", "instance": "i1", "hooked": True, "age_seconds": 1e4, "settled": True}
    return EngineSignals(**values | {"harm": False} | changes)


def pool(held: int = 100, **changes: Any) -> Any:
    values = {"held": held, "held_min": held, "held_max": held, "cached_idle": 0, "empty": 1000 - held, "orphaned": 0}
    return make_pool(**values | changes)


def worker(uuid: str = "GPU-0") -> MemberState:
    return make_worker(worker=replace(make_worker().worker, device_uuid=uuid))


def engine(**changes: Any) -> EngineState:
    values: dict[str, Any] = {"pool": pool(), "levers": CAN, "waiting": 0, "verdicts": (), "detail": WHOLE}
    return make_engine(**values | {"members": (worker(),)} | changes)


def state(
    now: float, *verdicts: Verdict, signals: EngineSignals | None = None, beside: tuple[EngineState, ...] = (), **m: Any
) -> AgentState:
    found = NodeSignals(engines=(signals or calm(),))
    judgement = Judgement(at=1e9 + now, verdicts=verdicts, signals=found)
    waterfalls = (make_waterfall(gpu="0", uuid="GPU-0"), make_waterfall(gpu="1", uuid="GPU-1"))
    node = make_state(engine(**m), *beside, judgement=judgement)
    return replace(node, at=1e9 + now, monotonic=now, waterfalls=waterfalls)


def offered(node: AgentState, room: Room, *recent: Action, chosen: Policy | None = None) -> list[Verdict]:
    assert node.judgement is not None
    judgement = room.take(node.judgement, node, chosen or policy(), recent)
    return [each for each in judgement.verdicts if each.kind in (IDLE, NEIGHBOUR)]


def after(seconds: float, *verdicts: Verdict, recent: tuple[Action, ...] = (), **values: Any) -> list[str]:
    """What is offered after so long in which nothing has changed."""
    room = Room()
    offered(state(0.0, *verdicts, **values), room, *recent)
    return [each.kind for each in offered(state(seconds, *verdicts, **values), room, *recent)]


def planned(node: AgentState, *live: Action, chosen: Policy | None = None, seconds: float = HALF_HOUR) -> list[Plan]:
    """The plans at a look half an hour after the first one."""
    room, memory, told = Room(), Memory(), chosen or policy()
    offered(replace(node, at=node.at - seconds, monotonic=node.monotonic - seconds), room, *live, chosen=told)
    assert node.judgement is not None
    judgement = room.take(node.judgement, node, told, live)
    memory.take(judgement, node.monotonic)
    return [plan for ladder in plans(judgement, node, told, memory, live) for plan in ladder]


def compacted(ago: float, *, now: float = HALF_HOUR, phase: str = "undone", **changes: Any) -> Action:
    """A compaction of the agent's own that ended (or began) so long before ``now``."""
    action = past("compact", phase=phase)
    made = replace(action.plan, kind=IDLE, rung="compact", arguments={"to_blocks": 400}, targets=("i1",))
    return replace(action, plan=made, at=1e9 + now - ago, changed=1e9 + now - ago, **changes)


GROWING = Rate(per_minute=0.01, low=0.005, high=0.015, seconds=300.0, samples=300)
NOISE = Rate(per_minute=0.01, low=-0.01, high=0.03, seconds=300.0, samples=300)
SLOWLY = Slow(per_hour=0.5, low=0.4, high=0.6, later_per_hour=0.5, seconds=7200.0, retained_ratio=0.9, leaks=True)
CACHE = {"pool": pool(100, cached_idle=800, empty=100)}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, [IDLE]),
        ({"pool": pool(299)}, [IDLE]),
        ({"pool": pool(300)}, []),  # busy
        ({"pool": pool(100, held_max=350)}, []),  # busy for a moment
        ({"signals": calm(growth=GROWING)}, []),  # 30 % more in half an hour
        ({"signals": calm(growth=NOISE)}, [IDLE]),  # not sure that it grows at all
        ({"signals": calm(growth=GROWING, in_teeth=True)}, [IDLE]),  # a saw's teeth
        ({"signals": calm(slow=SLOWLY)}, []),
        (CACHE | {"signals": calm(prefix_hit_ratio=0.5)}, []),  # a cache that is worth keeping
        (CACHE | {"signals": calm(prefix_hit_ratio=0.05)}, [IDLE]),
        (CACHE | {"signals": calm(prefix_hit_ratio=None)}, [IDLE]),
        ({"waiting": 1}, []),
        ({"signals": calm(harm=True)}, []),
        ({"signals": calm(harm=None)}, []),
        ({"signals": calm(settled=False)}, []),
        ({"pool": None}, []),
        ({"phase": "silent"}, []),
        ({"pool": pool(100, longest_tokens=16 * 900)}, []),  # one request may need 900 blocks
        ({"pool": pool(100, longest_tokens=16 * 400)}, [IDLE]),
    ],
)
def test_a_pool_that_is_far_too_big(values: dict[str, Any], expected: list[str]) -> None:
    assert after(HALF_HOUR, **values) == expected


@pytest.mark.parametrize("changes", [{}, {"phase": "suspect"}, {"kind": "host_growth"}])
def test_an_engine_with_which_something_is_wrong_is_let_alone(changes: dict[str, Any]) -> None:
    assert after(HALF_HOUR, short(**changes)) == []
    assert after(HALF_HOUR, short(**changes, tier="note")) == [IDLE], "a note asks for nothing"


def test_half_an_hour_without_a_break_and_the_most_of_it_counts() -> None:
    room = Room()
    assert offered(state(0.0), room) == []
    assert offered(state(900.0, pool=pool(200)), room) == []
    assert offered(state(HALF_HOUR - 1), room) == []
    (verdict,) = offered(state(HALF_HOUR), room)
    assert (verdict.evidence["needed_blocks"], verdict.evidence["target_blocks"]) == (200.0, 400.0)
    assert offered(state(HALF_HOUR + 1, pool=pool(310)), room) == []
    assert offered(state(2 * HALF_HOUR), room) == [], "from the beginning"
    assert len(offered(state(3 * HALF_HOUR), room)) == 1
    other = {"instance": "i2"}
    assert offered(state(3 * HALF_HOUR + 1, **other), room) == [], "another life of the engine"


def test_never_below_the_floor_and_not_for_little() -> None:
    (plan,) = planned(state(HALF_HOUR, pool=pool(1)))
    assert plan.arguments["to_blocks"] == 250
    (plan,) = planned(state(HALF_HOUR, pool=pool(290)))
    assert plan.arguments["to_blocks"] == 580
    little = Policy.model_validate({"compaction": {"least_ratio": 0.5}})
    assert planned(state(HALF_HOUR, pool=pool(290)), chosen=little) == []


def test_the_plan() -> None:
    (plan,) = planned(state(HALF_HOUR))
    assert (plan.lever, plan.rung, plan.kind, plan.targets) == ("compact", "compact", IDLE, ("i1",))
    assert plan.arguments == {"to_blocks": 250, "priority": {}}
    assert plan.expected is not None
    assert (plan.expected.signal, plan.expected.direction) == ("released_kv_bytes", "up")
    assert plan.expected.amount == 375 * MIB


@pytest.mark.parametrize(
    ("levers", "number_of_plans"),
    [
        (CAN, 1),
        ((LeverRow(lever="compact", ok=False, reason=NOT_LISTED),), 1),  # a dry-run may ask it
        ((LeverRow(lever="compact", ok=False, reason="more than one KV cache group"),), 0),
        ((), 0),
    ],
)
def test_only_an_engine_that_has_it_is_asked(levers: tuple[LeverRow, ...], number_of_plans: int) -> None:
    assert len(planned(state(HALF_HOUR, levers=levers))) == number_of_plans


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (compacted(ago=3599.0), []),
        (compacted(ago=3600.0), [IDLE]),
        (compacted(ago=3599.0, phase="would"), []),  # in a dry-run it is asked once in that time
        (compacted(ago=3599.0, by="ann"), []),
        (compacted(ago=9e3, by="ann", phase="in_force"), []),  # a person's is theirs
        (replace(past("watermark", phase="in_force"), at=0.0), []),  # what is throttled needs more than it shows
        (replace(past("watermark", phase="undone"), at=0.0), [IDLE]),
    ],
)
def test_rest_after_each_and_other_levers(action: Action, expected: list[str]) -> None:
    assert after(HALF_HOUR, recent=(action,)) == expected


def told(release_bytes: int) -> tuple[Outcome, ...]:
    return (Outcome(target="i1", code="done", detail="", effect={"release_bytes": release_bytes}, in_force=True),)


def test_where_nothing_can_be_given_back_it_is_taken_back_and_not_done_again() -> None:
    in_vain = compacted(ago=10.0, phase="in_force", outcomes=told(0))
    assert backs(in_vain) == ["nothing was given back: this platform can't"]
    assert backs(compacted(ago=10.0, phase="in_force", outcomes=told(MIB))) == []
    assert after(HALF_HOUR, recent=(compacted(ago=9e3, outcomes=told(0)),)) == []
    assert after(HALF_HOUR, recent=(compacted(ago=9e3, outcomes=told(MIB)),)) == [IDLE]
    assert after(HALF_HOUR, recent=(compacted(ago=9e3, outcomes=told(0)),), instance="i2") == [IDLE], "another life"


def other(uuid: str = "GPU-0", offline: int = 0) -> EngineState:
    detail = make_detail(compaction=make_compaction(offline=offline), allocation=None)
    return engine(engine="n", instance="i9", members=(worker(uuid),), detail=detail)


FULL = short(kind="over_budget", subject=GPU)
HUNGRY = short(subject=Subject(scope="engine", engine="n"))
FAILED = short(kind="oom", subject=Subject(scope="engine", engine="n"))


@pytest.mark.parametrize(
    ("verdict", "values", "expected"),
    [
        (FULL, {}, [NEIGHBOUR]),
        (FULL, {"pool": pool(399)}, [NEIGHBOUR]),
        (FULL, {"pool": pool(400)}, []),
        (FULL, {"members": (worker("GPU-1"),)}, []),  # on another GPU
        (FULL, {"members": ()}, []),  # nobody knows where it is
        (short(kind="over_budget", subject=GPU, tier="note"), {}, []),
        (short(kind="over_budget", subject=GPU, phase="suspect"), {}, []),
        (short(kind="gpu_lost", subject=GPU), {}, []),  # memory is not what it wants
        (FAILED, {"beside": (other(),)}, [NEIGHBOUR]),
        (FAILED, {"beside": (other("GPU-1"),)}, []),
        (FAILED, {}, []),
        (HUNGRY, {"beside": (other(offline=100),)}, [NEIGHBOUR]),  # its own pool waits for memory
        (HUNGRY, {"beside": (other(offline=0),)}, []),  # a pool that can't grow gains nothing
        (FULL, {"signals": calm(harm=True)}, []),
        (FULL, CACHE | {"signals": calm(prefix_hit_ratio=0.5)}, []),
    ],
)
def test_a_neighbour_that_is_short(verdict: Verdict, values: dict[str, Any], expected: list[str]) -> None:
    assert after(60.0, verdict, **values) == expected
    assert after(59.0, verdict, **values) == []


def backs(action: Action, *verdicts: Verdict, looks: int = 3, **values: Any) -> list[str]:
    """Why it is taken back at the last of some looks."""
    room, found = Room(), []
    for look in range(looks):
        found = list(room.back((action,), state(HALF_HOUR + look, *verdicts, **values), policy(breaches=3)))
    return [why for _, why in found]


IN_FORCE = compacted(ago=10.0, phase="in_force")


@pytest.mark.parametrize(
    ("values", "taken_back"),
    [
        ({}, False),
        ({"pool": pool(300)}, False),  # just 75 % of the 400
        ({"pool": pool(301)}, True),
        ({"pool": pool(301), "looks": 2}, False),
        ({"pool": pool(200), "signals": calm(growth=GROWING)}, True),
        ({"signals": calm(harm=True), "looks": 1}, True),
        ({"pool": None}, False),
    ],
)
def test_whole_again_when_it_is_needed(values: dict[str, Any], taken_back: bool) -> None:
    assert bool(backs(IN_FORCE, **values)) is taken_back
    assert backs(replace(IN_FORCE, by="ann"), **values) == [], "a person's is theirs"


@pytest.mark.parametrize("kind", ["kv_pressure", "preemption_thrash", "eviction_storm", "kv_stall"])
def test_whole_again_at_once_under_pressure(kind: str) -> None:
    assert backs(IN_FORCE, short(kind=kind), looks=1) == [f"its pool is needed: {kind}"]
    assert backs(IN_FORCE, short(kind=kind, tier="note"), looks=1) == []
    assert backs(IN_FORCE, short(kind="kv_orphan"), looks=1) == [], "a bigger pool mends no leak"


def test_need_that_goes_up_and_down_between_the_lines_moves_nothing() -> None:
    room = Room()
    for look in range(60):
        node = state(float(look), pool=pool(290 if look % 2 else 150))
        assert list(room.back((IN_FORCE,), node, policy(breaches=3))) == []
    for look in range(60):
        node = state(100.0 + look, pool=pool(320 if look % 3 else 150))
        assert list(room.back((IN_FORCE,), node, policy(breaches=3))) == [], "never at three looks in a row"


class Shrinks(Knob):
    """A lever that takes the agent's arguments, and answers as the engine's does."""

    def __init__(self) -> None:
        super().__init__("compact", "to_blocks")

    def apply(self, arguments: Arguments) -> Done:
        done = super().apply(arguments)
        return Done(done.effect | {"release_bytes": MIB}, done.undo)

    def _wanted(self, arguments: Arguments) -> float:
        return number(arguments, "to_blocks", 1, 1e9, 1)


def by_itself(mode: str = "enforce", **actions: Any) -> Policy:
    values = {"mode": mode, "breaches": 3, "opt_in": ["compact"], "calm_seconds": 20.0}
    return Policy.model_validate({"actions": values | actions, "compaction": {"idle_seconds": 60.0}})


SMALL = make_detail(compaction=make_compaction(offline=750, released_bytes=750 * MIB), allocation=None)


async def test_a_smaller_pool_stays_while_it_is_calm_and_is_whole_again_once_and_not_again(make_rig: MakeRig) -> None:
    rig = await make_rig(by_itself(), levers={"compact": Shrinks()})
    rig.signals, rig.held = NodeSignals(engines=(calm(),)), 10
    lever = rig.processes[0].levers["compact"]
    quiet: dict[str, Any] = {"waiting": 0, "pool": pool(100)}
    await rig.seconds(62, **quiet, detail=WHOLE)
    assert not rig.done
    await rig.seconds(1, **quiet, detail=WHOLE)
    assert lever.value == 250
    await rig.seconds(300, **quiet, detail=SMALL)
    assert [(each.phase, each.verified) for each in rig.done] == [("in_force", "helped")]
    await rig.look(short(), **quiet, detail=SMALL)
    assert lever.value == 0
    (action,) = rig.done
    assert (action.phase, action.reason) == ("undone", "its pool is needed: kv_pressure")
    await rig.seconds(1000, step=10.0, **quiet, detail=WHOLE)
    assert len(rig.done) == 1, "not again within the hour"
    assert rig.actions.book.breaker.failures == 0


@pytest.mark.parametrize(
    ("chosen", "refused"),
    [
        (by_itself("observe"), "observe"),
        (by_itself(opt_in=[]), "observe"),
        (by_itself(off_peak=["22:00-06:00"]), "window"),
    ],
)
async def test_not_without_its_opt_in_its_mode_and_its_time(make_rig: MakeRig, chosen: Policy, refused: str) -> None:
    rig = await make_rig(chosen, levers={"compact": Shrinks()})
    rig.signals = NodeSignals(engines=(calm(),))
    await rig.seconds(90, waiting=0, pool=pool(100), detail=WHOLE)
    assert not rig.done
    assert rig.refusals() == {refused: 1} or rig.refusals() == {refused: 1, "hysteresis": 1}


async def test_a_dry_run_asks_once_and_changes_nothing(make_rig: MakeRig) -> None:
    rig = await make_rig(by_itself("dry-run"), levers={"compact": Shrinks()})
    rig.signals = NodeSignals(engines=(calm(),))
    lever = rig.processes[0].levers["compact"]
    await rig.seconds(200, waiting=0, pool=pool(100), detail=WHOLE)
    assert [each.phase for each in rig.done] == ["would"]
    assert (lever.calls["would"], lever.calls["apply"]) == (1, 0)


async def test_another_lever_is_taken_back_when_it_is_calm_and_the_pool_stays_small(make_rig: MakeRig) -> None:
    levers = {"compact": Shrinks(), "batch_tokens": Knob("batch_tokens", "")}
    rig = await make_rig(by_itself(), levers=levers)
    rig.signals = NodeSignals(engines=(calm(),))
    quiet: dict[str, Any] = {"waiting": 0, "pool": pool(100)}
    await rig.seconds(63, **quiet, detail=WHOLE)
    await rig.seconds(5, **quiet, detail=SMALL)
    heavy = short(kind="allocator_fragmentation", evidence={"overcommit_ratio": 1.3})
    await rig.seconds(30, heavy, **quiet, detail=SMALL)
    assert [levers["compact"].value, levers["batch_tokens"].value] == [250, 1]
    await rig.seconds(60, **quiet, detail=SMALL)
    assert [levers["compact"].value, levers["batch_tokens"].value] == [250, 0]
