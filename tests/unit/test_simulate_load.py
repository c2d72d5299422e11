"""The simulator's load, without vLLM: how much comes, from whom, how long it is, and who goes on with what."""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine_hooks.simulator.load import Arrival, Load
from engine_hooks.simulator.shapes import Form, MooncakeShapes, PoissonShapes, Shape, Shift
from engine_hooks.simulator.spec import Engine, Spec, SpecError
from engine_hooks.simulator.spec import Load as LoadSpec
from engine_hooks.simulator.text import Texts

POOL = Engine(blocks=100_000)


def played(load: Load, seconds: float, step: float = 0.25) -> list[Arrival]:
    return [arrival for n in range(1, int(seconds / step) + 1) for arrival in load.due(n * step)]


def make(seed: int = 1, **values: object) -> Load:
    return Load(Spec(seed=seed, engine=POOL, load=LoadSpec(**values)), random.Random(seed))


def test_as_many_come_as_the_rate_says() -> None:
    assert len(played(make(rate=3.0), 1000.0)) == pytest.approx(3000, rel=0.08)


def test_mooncake_has_the_shape_of_the_trace() -> None:
    draw, texts = random.Random(2), Texts()
    shapes = MooncakeShapes(LoadSpec(trace="mooncake"), draw, texts)
    made = [shapes.make(0, Form()) for _ in range(3000)]
    lengths = sorted(len(shape.prompt) for shape in made)
    assert lengths[1500] == pytest.approx(6909, rel=0.1)
    assert lengths[2700] == pytest.approx(27_367, rel=0.15)
    assert statistics.fmean(shape.output for shape in made) == pytest.approx(343, rel=0.1)
    # One beginning that all have, and conversations that are gone on with.
    assert len({shape.prompt[0] for shape in made}) == 1
    second = [shape.prompt[512] for shape in made if len(shape.prompt) > 512]
    assert len(set(second)) / len(second) == pytest.approx(7373 / 12031, abs=0.08)


def test_mooncake_comes_in_batches() -> None:
    came = [arrival.at for arrival in played(make(trace="mooncake", rate=2.0), 300.0)]
    assert len(came) == pytest.approx(600, rel=0.2)
    assert {at % 3.0 for at in came} == {0.0}


def test_tenants_have_skewed_shares_and_their_own_beginnings() -> None:
    came = played(make(rate=5.0, tenants=4), 600.0)
    counts = [sum(arrival.tenant == f"t{n}" for arrival in came) for n in range(1, 5)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] / counts[3] == pytest.approx(4.0, rel=0.3)
    assert len({(arrival.tenant, tuple(arrival.shape.prompt[:128])) for arrival in came}) == 4


def test_a_session_goes_on_with_what_was_said_unless_its_context_is_lost() -> None:
    for ttl, keeps in ((0.0, True), (0.001, False)):
        load = make(rate=50.0, turns=50.0, idle_seconds=5.0, context_ttl=ttl)
        first = next(iter(played(load, 10.0)))
        said = [*first.shape.prompt, 5, 5, 5]
        load.finished(SimpleNamespace(request_id=first.key, all_token_ids=said))
        turns = [a for n in range(41, 400) for a in load.due(n * 0.25) if a.shape.session == first.shape.session]
        assert turns
        assert (turns[0].shape.prompt[: len(said)] == said) is keeps


def test_a_shift_concerns_its_tenant_and_its_time() -> None:
    load = make(rate=4.0, tenants=2)
    load.shifts.append(Shift(100.0, 200.0, tenant="t2", rate=10.0, prompt=3.0))
    came = played(load, 300.0)

    def of(tenant: str, since: float) -> list[Arrival]:
        return [a for a in came if a.tenant == tenant and since < a.at <= since + 100.0]

    assert len(of("t2", 100.0)) > 5 * len(of("t2", 0.0))
    assert len(of("t2", 200.0)) < 2 * len(of("t2", 0.0))
    assert len(of("t1", 100.0)) == pytest.approx(len(of("t1", 0.0)), rel=0.35)
    longer = statistics.median(len(a.shape.prompt) for a in of("t2", 100.0))
    assert longer > 2 * statistics.median(len(a.shape.prompt) for a in of("t2", 0.0))


def test_the_long_tail_is_a_share() -> None:
    shapes = PoissonShapes(LoadSpec(), random.Random(3), Texts())
    lengths = [shapes.text_length(Form(long_tail=0.35)) for _ in range(3000)]
    assert sum(length > 4096 for length in lengths) / 3000 == pytest.approx(0.35, abs=0.04)


def test_clients_go_away_while_their_requests_run() -> None:
    load = make(rate=4.0, interrupts=0.25)
    came = played(load, 200.0)
    leaving = {arrival.key: arrival for arrival in came if arrival.leaves is not None}
    assert len(leaving) / len(came) == pytest.approx(0.25, abs=0.06)
    assert set(load.leavers(100.0)) == {key for key, a in leaving.items() if a.leaves <= 100.0}
    assert load.leavers(100.0) == []


def test_no_request_is_larger_than_the_pool_can_serve() -> None:
    spec = Spec(engine=Engine(blocks=100), load=LoadSpec(trace="mooncake", rate=5.0))
    for arrival in played(Load(spec, random.Random(4)), 60.0):
        assert len(arrival.shape.prompt) + arrival.shape.output <= 100 * 16 // 2 + 1


def test_what_is_added_comes_in_its_time_and_may_leave() -> None:
    load = make(rate=0.001)
    key = load.add(50.0, Shape([1, 2, 3], 10), "t1", leaves=52.0)
    assert all(arrival.key != key for arrival in load.due(49.0))
    assert [arrival.key for arrival in load.due(50.0)] == [key]
    assert load.leavers(52.0) == [key]


@pytest.mark.parametrize(
    ("values", "busy", "calm"),
    [({"burst": 6.0}, (300, 320), (330, 350)), ({"ramp_seconds": 600.0}, (500, 600), (0, 100))],
)
def test_the_rate_changes_with_time(values: dict[str, float], busy: tuple[int, int], calm: tuple[int, int]) -> None:
    came = [arrival.at for arrival in played(make(rate=5.0, **values), 620.0)]
    dense, thin = (sum(begin < at <= end for at in came) / (end - begin) for begin, end in (busy, calm))
    assert dense > 3 * thin


LINE = '{"timestamp": 5, "input_length": %s, "output_length": 7}\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has no request in it"),
        ("\n  \n", "has no request in it"),
        (LINE % 10**15, "line 1: Expected `int` <= 16777216"),
        (LINE % -1, "line 1: Expected `int` >= 0"),
        ("hello", "line 1: JSON is malformed"),
    ],
)
def test_a_trace_in_which_there_is_nothing_to_serve_is_refused(tmp_path: Path, text: str, told: str) -> None:
    """Of an empty one a bundle would be made in which nothing is wrong, and advice would be given."""
    file = tmp_path / "trace.jsonl"
    file.write_text(text)
    with pytest.raises(SpecError, match=f"trace {file}: {told}"):
        make(trace=str(file))


def test_a_trace_is_played_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text("\n" + LINE % 30 + LINE % 40)
    assert [len(each.shape.prompt) for each in played(make(trace=str(file)), 1.0)] == [30, 40]
