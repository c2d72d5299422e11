"""From which age on what nobody has asked for again is not worth waiting for: learned from the prompts that come."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine_hooks.core.levers.reuse import (
    EVERY_SECONDS,
    HORIZON_SECONDS,
    LEAST_SECONDS,
    LEAST_SEEN,
    MAX_FOLLOWED,
    MAX_TENANTS,
    Reuse,
)

LATE = 10_000.0


def told(afters: list[float | None]) -> float | None:
    """What is said where each prompt came again after so many seconds, None: never."""
    reuse, spacing = Reuse(), 2 * EVERY_SECONDS
    events = [(spacing * number, f"{number}", False) for number in range(len(afters))]
    events += [(at + after, key, True) for (at, key, _), after in zip(events, afters, strict=True) if after is not None]
    for at, key, again in sorted(events):
        reuse.note("" if not again else "who asks again does not matter", [key, f"{key} answer"], 0 if again else 1, at)
    return reuse.age("", LATE)


def test_too_little_is_known() -> None:
    assert told([]) is None
    assert told([5.0] * (LEAST_SEEN - 1)) is None
    assert told([5.0] * LEAST_SEEN) is not None
    assert Reuse().age("", LATE) is None


def test_an_outcome_counts_once_it_had_its_time() -> None:
    reuse = Reuse()
    for number in range(LEAST_SEEN):
        reuse.note("", [number], 1, 2.0 * number)
    last = 2.0 * (LEAST_SEEN - 1)
    assert reuse.age("", last + HORIZON_SECONDS - 0.1) is None
    assert reuse.age("", last + HORIZON_SECONDS) == LEAST_SECONDS


def test_where_most_come_back_one_waits_until_those_to_come_are_the_fewer() -> None:
    assert told([None] * 40) == LEAST_SECONDS
    assert told([60.0] * 20 + [None] * 20) == LEAST_SECONDS  # as many
    assert told([60.0] * 21 + [None] * 19) == 60.0
    assert told([*map(float, range(20, 120)), *[None] * 10]) == 20.0 + 100 - 10 - 1
    assert told([60.0] * 40) == 60.0
    assert told([HORIZON_SECONDS + 1] * 40) == LEAST_SECONDS  # too late to be waited for
    assert told([1.0] * 40) == LEAST_SECONDS  # what is so young is let be


@settings(deadline=None, max_examples=50)
@given(st.lists(st.one_of(st.none(), st.floats(0.5, 299.0)), min_size=LEAST_SEEN, max_size=60))
def test_from_that_age_on_no_more_come_than_stay_away_and_before_it_more_do(afters: list[float | None]) -> None:
    age = told(afters)
    assert age is not None
    never = afters.count(None)
    came = [after for after in afters if after is not None]
    assert sum(after > age + 1e-6 for after in came) <= never
    if age > LEAST_SECONDS:
        assert sum(after >= age - 1e-6 for after in came) > never


def test_tenants_are_told_apart_and_nothing_grows_without_bound() -> None:
    reuse, now = Reuse(), 0.0
    for number in range(3 * MAX_FOLLOWED):
        now += 2 * EVERY_SECONDS
        reuse.note("jobs", [("job", number)], 1, now)
        reuse.note("people", [("talk", number), ("answer", number)], 1, now)
        if number > 10:
            reuse.note("people", [("talk", number - 10), ("more", number)], 2, now)
    assert len(reuse._open) <= 2 * MAX_FOLLOWED
    assert reuse.age("jobs", now) == LEAST_SECONDS
    assert reuse.age("people", now) == 20 * EVERY_SECONDS
    for number in range(5 * MAX_TENANTS):
        now += EVERY_SECONDS
        reuse.note(f"tenant {number}", [("other", number)], 1, now)
    assert len(reuse._rows) == MAX_TENANTS
    assert len(reuse._open) == MAX_TENANTS
    assert reuse.age("jobs", now) is None


def test_of_many_at_once_some_are_followed() -> None:
    """Else a row would reach back over seconds where it is to reach back over minutes."""
    reuse = Reuse()
    for number in range(100 * MAX_FOLLOWED):
        reuse.note("", [number], 1, number / 100)
    assert reuse.age("", MAX_FOLLOWED) == LEAST_SECONDS


def test_a_prompt_of_less_than_a_block_says_nothing() -> None:
    reuse = Reuse()
    for number in range(100):
        reuse.note("", [], 0, 2.0 * number)
        reuse.note("", [number], 2, 2.0 * number)  # and one whose hashes are not all there
    assert reuse.age("", LATE) is None
