"""What an engine says of its pool when it comes up: how large, in what type, and how long a request may be."""

from __future__ import annotations

from engine_hooks.core.view import SchedulerView
from tests.bed.scheduler import make_scheduler


def test_a_real_scheduler_tells_the_type_of_its_cache_and_its_longest_request() -> None:
    scheduler = make_scheduler()
    info = SchedulerView(scheduler).pool_info()
    assert info is not None
    assert info.cache_dtype == scheduler.cache_config.cache_dtype
    assert info.longest_tokens == scheduler.max_model_len
    assert info.longest_tokens > 0


def test_one_that_does_not_tell_is_not_guessed() -> None:
    scheduler = make_scheduler()
    scheduler.max_model_len = None
    scheduler.cache_config = None
    info = SchedulerView(scheduler).pool_info()
    assert info is not None
    assert (info.cache_dtype, info.longest_tokens) == ("", None)
