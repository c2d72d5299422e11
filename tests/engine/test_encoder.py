"""The encoder cache's books: vLLM's real manager in its real scheduler. What a leak leaves is said exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine_hooks.core import encoder
from engine_hooks.core.encoder import EncoderObserver
from engine_hooks.core.observers import UnsupportedError
from engine_hooks.detail import EncoderRow
from tests.bed.connectors import make_connector_scheduler
from tests.bed.connectors import step as connector_step
from tests.bed.images import IMAGE, give_encoder, with_images
from tests.bed.scheduler import make_scheduler, step
from tests.engine.observing import Watched

# isort: split
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager, EncoderDecoderCacheManager
from vllm.v1.request import Request, RequestStatus

CAPACITY = 256
TOKENS = 64  # of one step: the first one ends inside a prompt's second image, which is then held


class Encoder(Watched[EncoderObserver]):
    """A scheduler and its encoder observer."""

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler, EncoderObserver)

    def look(self, times: int = 1) -> EncoderRow:
        """The last of ``times`` sections."""
        rows: list[EncoderRow] = [super(Encoder, self).look() for _ in range(times)]
        return rows[-1]


@pytest.fixture
def watched() -> Encoder:
    scheduler = make_scheduler(400, max_num_seqs=32, tokens=TOKENS)
    give_encoder(scheduler, CAPACITY)
    return Encoder(scheduler)


def forget_to_free(watched: Encoder, request_id: str) -> None:
    """Abort a request on a path that leaves its references in the encoder cache."""
    free, watched.scheduler.encoder_cache_manager.free = (
        watched.scheduler.encoder_cache_manager.free,
        lambda request: None,
    )
    watched.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)
    watched.scheduler.encoder_cache_manager.free = free


def test_entries_of_an_aborted_request_are_orphaned_exactly(watched: Encoder) -> None:
    watched.scheduler.add_request(with_images(0, "cat", "dog"))
    watched.scheduler.add_request(with_images(1, "dog"))
    step(watched.scheduler)
    assert watched.scheduler.encoder_cache_manager.cached == {"cat": set(), "dog": {"r0"}}
    forget_to_free(watched, "r0")
    assert watched.look().orphaned_entries == 0, "one look may come at an odd moment"
    row = watched.look()
    assert (row.orphaned_entries, row.orphaned_tokens) == (1, IMAGE)
    assert (row.capacity, row.held, row.freeable, row.entries) == (CAPACITY, IMAGE, IMAGE, 2)


def test_an_aborted_request_that_lets_its_entries_go_is_quiet(watched: Encoder) -> None:
    watched.scheduler.add_request(with_images(0, "cat", "dog"))
    step(watched.scheduler)
    held = watched.look().held
    watched.scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
    row = watched.look(3)
    assert held == IMAGE
    assert row.orphaned_entries == row.orphaned_tokens == row.held == 0
    assert (row.freeable, row.entries) == (2 * IMAGE, 2)


def test_an_entry_that_a_living_request_shares_is_orphaned_when_that_one_has_ended(watched: Encoder) -> None:
    scheduler = watched.scheduler
    scheduler.add_request(with_images(0, "cat", "dog"))
    step(scheduler)
    forget_to_free(watched, "r0")
    scheduler.add_request(with_images(1, "cat", "dog"))
    step(scheduler)
    assert scheduler.encoder_cache_manager.cached["dog"] == {"r0", "r1"}
    assert watched.look(3).orphaned_entries == 0
    scheduler.finish_requests("r1", RequestStatus.FINISHED_ABORTED)
    assert watched.look(2).orphaned_entries == 1


def test_a_busy_encoder_cache_is_quiet_and_evicts(watched: Encoder) -> None:
    scheduler = watched.scheduler
    held = []
    for i in range(24):
        scheduler.add_request(with_images(i, f"image {i % 12}", f"image {(i * 5) % 12}", max_tokens=3))
        step(scheduler)
        if i % 3 == 0:
            scheduler.finish_requests(f"r{i}", RequestStatus.FINISHED_ABORTED)
        row = watched.look()
        held.append(row.held)
        assert row.orphaned_entries == 0
        manager = scheduler.encoder_cache_manager
        free = row.capacity - row.held - row.freeable
        assert free == manager.num_free_slots
        assert row.held == sum(manager.num_embeds_by_hash[e] for e, holders in manager.cached.items() if holders)
    while scheduler.requests:
        step(scheduler)
        assert watched.look().orphaned_entries == 0
    assert max(held) > 0
    assert watched.look(2).held == 0


def test_a_finished_request_whose_blocks_a_connector_keeps_holds_no_entry() -> None:
    scheduler = make_connector_scheduler("RemoteConnector", max_num_seqs=32, tokens=TOKENS)
    give_encoder(scheduler, CAPACITY)
    watched = Encoder(scheduler)
    scheduler.add_request(with_images(0, "cat", "dog"))
    scheduler.requests["r0"].kv_transfer_params = {"do_remote_decode": True}
    connector_step(scheduler)
    scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
    assert "r0" in scheduler.requests
    assert watched.look(3).orphaned_entries == 0
    # Had it kept one, that would be a leak although the scheduler still knows it.
    scheduler.encoder_cache_manager.cached["cat"].add("r0")
    assert watched.look(2).orphaned_entries == 1


def again(i: int, *images: str) -> Request:
    """Return another request, with a prompt of its own, under the id of the first."""
    request = with_images(i, *images)
    request.request_id = "r0"
    return request


def test_an_id_that_comes_again_does_not_hide_what_its_first_request_left(watched: Encoder) -> None:
    watched.scheduler.add_request(with_images(0, "cat", "dog"))
    step(watched.scheduler)
    forget_to_free(watched, "r0")
    watched.scheduler.add_request(again(1, "bird", "horse"))
    step(watched.scheduler)
    assert watched.scheduler.encoder_cache_manager.cached == {
        "cat": set(),
        "dog": {"r0"},
        "bird": set(),
        "horse": {"r0"},
    }
    row = watched.look(2)
    assert (row.orphaned_entries, row.orphaned_tokens, row.held) == (1, IMAGE, 2 * IMAGE)
    watched.scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
    row = watched.look(2)
    assert (row.orphaned_entries, row.held) == (1, IMAGE)


def test_an_id_that_comes_again_for_the_same_image_holds_it_rightly(watched: Encoder) -> None:
    """The books have one mark for both: it goes when the second ends, and until then it is the second's."""
    watched.scheduler.add_request(with_images(0, "cat", "dog"))
    step(watched.scheduler)
    forget_to_free(watched, "r0")
    assert watched.look(2).orphaned_entries == 1
    watched.scheduler.add_request(again(1, "cat", "dog"))
    step(watched.scheduler)
    assert watched.scheduler.encoder_cache_manager.cached["dog"] == {"r0"}
    row = watched.look(2)
    assert (row.orphaned_entries, row.held) == (0, IMAGE)
    watched.scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
    row = watched.look(2)
    assert (row.orphaned_entries, row.held) == (0, 0)


def test_an_id_that_comes_again_after_a_clean_end_is_quiet(watched: Encoder) -> None:
    for i, image in enumerate(("dog", "dog", "bird")):
        watched.scheduler.add_request(again(i, "cat", image))
        step(watched.scheduler)
        row = watched.look(2)
        assert (row.orphaned_entries, row.held) == (0, IMAGE)
        watched.scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)


def test_who_asked_is_bounded_and_forgets_who_has_gone(watched: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "MAX_LOOKED_AT", 4)
    watched.observer._most_asked = 4
    scheduler = watched.scheduler
    for i in range(60):
        scheduler.add_request(with_images(i, "cat", f"image {i % 5}", max_tokens=1))
        while scheduler.requests:
            step(scheduler)
        assert len(watched.observer._asked) <= 8
    assert watched.look(2).orphaned_entries == 0


def test_sizes_are_bounded_although_nobody_looks(watched: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an agent there is no section: what was evicted is forgotten all the same."""
    monkeypatch.setattr(encoder, "MAX_LOOKED_AT", 4)
    for i in range(40):
        watched.scheduler.add_request(with_images(i, f"image {i}", max_tokens=1))
        while watched.scheduler.requests:
            step(watched.scheduler)
    cached = watched.scheduler.encoder_cache_manager.cached
    assert len(watched.observer._sizes) <= 2 * len(cached) + 4
    assert cached.keys() <= watched.observer._sizes.keys()


def test_a_large_cache_is_looked_at_in_turns(watched: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "MAX_LOOKED_AT", 4)
    manager = watched.scheduler.encoder_cache_manager
    for n in range(10):
        manager.cached[f"image {n}"] = {"gone"} if n >= 8 else set()
    seen = [watched.look().orphaned_entries for _ in range(4)]
    assert seen == [0, 0, 0, 2]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: EncoderCacheManager(cache_size=0), "this model has no encoder"),
        (lambda: EncoderDecoderCacheManager(cache_size=64), "keeps no references"),
        (lambda: type("Scored", (EncoderCacheManager,), {})(cache_size=64), "Scored is not vLLM's own"),
    ],
)
def test_what_cannot_be_told_is_unsupported_with_the_reason(make: Callable[[], Any], reason: str) -> None:
    scheduler = make_scheduler()
    give_encoder(scheduler, CAPACITY, make())
    with pytest.raises(UnsupportedError, match=reason):
        Encoder(scheduler)


def test_a_text_model_says_that_it_has_no_encoder() -> None:
    with pytest.raises(UnsupportedError, match="no encoder"):
        Encoder(make_scheduler())
