"""Advice: only what is better by more than chance is advised, and how sure that is is said."""

from __future__ import annotations

from agent.advise.compare import Advice, Estimate, Tried, advise, tried
from agent.advise.grid import Trial
from agent.advise.measure import Measured
from engine_hooks.simulator.spec import Engine


def value(name: str, *, usual: bool = False, **estimates: tuple[float, float, float]) -> Tried:
    """A value whose measures are (mean, low, high); those that are not named are the same everywhere."""
    known = {"p99_seconds": (10.0, 9.0, 11.0), "preempted_ratio": (0.1, 0.09, 0.11)}
    known |= {"rebuild_ratio": (0.05, 0.04, 0.06), "waste_ratio": (0.2, 0.19, 0.21), "use_ratio": (0.5, 0.5, 0.5)}
    made = {key: Estimate(mean=mean, low=low, high=high) for key, (mean, low, high) in (known | estimates).items()}
    return Tried(setting="block size", value=name, usual=usual, blocks=1, block_size=16, runs=3, estimates=made)


def advice(*values: Tried) -> Advice:
    found = advise(values)
    assert found is not None
    return found


def test_what_is_the_same_everywhere_stays() -> None:
    found = advice(value("16", usual=True), value("32"))
    assert (found.value, found.sure) == ("16", True)


def test_a_surely_better_p99_is_advised() -> None:
    found = advice(
        value("16", usual=True), value("32", p99_seconds=(6.0, 5.0, 7.0)), value("64", p99_seconds=(8.0, 7.5, 8.5))
    )
    assert (found.value, found.sure) == ("32", True)
    assert found.reason == "P99 (proxy) 6.0 s (5.0..7.0) instead of 10.0 s (9.0..11.0)"


def test_better_on_average_only_is_not_sure() -> None:
    found = advice(value("16", usual=True), value("32", p99_seconds=(8.0, 5.0, 12.0)))
    assert (found.value, found.sure) == ("32", False)


def test_a_little_better_is_not_worth_a_change() -> None:
    assert advice(value("16", usual=True), value("32", p99_seconds=(9.7, 9.6, 9.8))).value == "16"


def test_less_waste_is_not_bought_with_a_worse_p99() -> None:
    worse = value("8", waste_ratio=(0.05, 0.04, 0.06), p99_seconds=(14.0, 13.0, 15.0))
    assert advice(value("16", usual=True), worse).value == "16"
    same = value("8", waste_ratio=(0.05, 0.04, 0.06))
    assert advice(value("16", usual=True), same).value == "8"


def test_what_can_t_be_told_is_not_zero() -> None:
    runs = [
        Measured(ended=10, waste_ratio=None, preempted_ratio=0.1, rebuild_ratio=None, p99_seconds=2.0, use_ratio=0.5),
        Measured(ended=10, waste_ratio=None, preempted_ratio=0.3, rebuild_ratio=None, p99_seconds=None, use_ratio=0.5),
    ]
    found = tried(Trial("pool", "100%", Engine(), usual=True), runs)
    assert found.estimates["waste_ratio"] is None
    assert found.estimates["preempted_ratio"] == Estimate(mean=0.2, low=0.1, high=0.3)
    assert found.estimates["p99_seconds"] == Estimate(mean=2.0, low=2.0, high=2.0)


def test_without_what_is_in_use_there_is_no_advice() -> None:
    assert advise([value("50%"), value("90%")]) is None
