"""HiSparse: the conservation law over vLLM's real coordinator, connector, scheduler and both block pools.

Each test brings the books into one state that only HiSparse has, and checks that every reference is explained there;
the last ones plant what must be found in the same states.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine_hooks.core.pinned import Pinned
from engine_hooks.core.pins import HiSparsePins
from tests.bed.connectors import deliver
from tests.bed.hisparse import coordinator_of, make_hisparse_scheduler, report, step
from tests.bed.scheduler import make_request
from tests.engine.observing import Watched

# isort: split
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.request import Request, RequestStatus

ABORTED = RequestStatus.FINISHED_ABORTED


class HiSparse(Watched[Pinned]):
    """A watched HiSparse scheduler."""

    def __init__(self, **scheduler: Any) -> None:
        super().__init__(make_hisparse_scheduler(**scheduler), Pinned)
        assert self.accounts.support.ok
        [self.host] = self.accounts.others
        self.books = coordinator_of(self.scheduler)
        assert self.host.view.pool is self.books.get_host_block_pool()
        assert self.accounts.main.view.unknown_pinners == ()
        assert [type(source) for source in self.accounts.main.view.pins] == [HiSparsePins]

    def add(self, i: int, tokens: int, max_tokens: int = 64, shared: int = 0) -> None:
        self.scheduler.add_request(make_request(i, tokens, max_tokens, shared))

    def step(self, *, written: bool = False) -> None:
        """Run a step; ``written``: the workers report that all spills and copies that were under way are done."""
        step(self.scheduler, report(self.scheduler) if written else None)
        self.balanced()

    def finish(self, request_id: str) -> None:
        """End a request from outside, as a client that goes away does."""
        self.scheduler.finish_requests([request_id], ABORTED)
        self.balanced()

    def balanced(self) -> None:
        """The law, at this moment: what was counted is there, and is explained."""
        for pool in (self.accounts.main, self.host):
            assert pool.ledger is not None
            assert pool.ledger.references == pool.ledger.recount(), pool.view.name
            assert pool.ledger.net() == 0, pool.view.name

    def found(self) -> list[tuple[int | None, int | None]]:
        """Orphaned and over-freed blocks of the GPU's and of the host's pool, by audits."""
        self.audit()
        judged = [pool.judge() for pool in (self.accounts.main, self.host)]
        return [(judgement.orphaned, judgement.over_freed) for judgement in judged]

    def clean(self) -> None:
        assert self.found() == [(0, 0), (0, 0)]
        assert self.accounts.drift == self.host.drift == 0

    def state(self, request_id: str) -> Any:
        return self.books.request_states[request_id]

    def drain(self) -> None:
        """Run until nothing is left, and see that nothing is held then."""
        for _ in range(400):
            if not self.scheduler.requests and not self.books.has_pending_work():
                break
            self.step(written=True)
        self.clean()
        assert [pool.view.held() for pool in (self.accounts.main, self.host)] == [0, 0]


def spilling(watched: HiSparse) -> None:
    """One request whose prompt's pages are being written to the host."""
    watched.add(0, 60)
    watched.step()
    assert len(watched.books.pending_spills) == 3


def detached(watched: HiSparse) -> None:
    """A request that has gone while its pages were being written: they are kept, to be published."""
    spilling(watched)
    watched.step()
    watched.finish("r0")
    publications = [spill.request_state.publication for spill in watched.books.pending_spills.values()]
    assert all(publication and publication.detached_blocks for publication in publications)


def unpinned(watched: HiSparse) -> None:
    """A request that fills its window: its clean pages are lent to the pool."""
    watched.add(0, 200)
    for _ in range(8):
        watched.step(written=True)
    assert len(watched.state("r0").unpinned_pages) > 6


def lost(watched: HiSparse) -> None:
    """The same, and others have taken some of these pages since."""
    unpinned(watched)
    state, i = watched.state("r0"), 0
    before = len(state.unpinned_pages)
    while len(state.unpinned_pages) >= before:
        i += 1
        watched.add(i, 60)
        watched.step(written=True)
    changes = watched.books.resident_managers[0].residency_changes["r0"]
    assert any(block.is_null for block in changes.values())


def adopted(watched: HiSparse) -> None:
    """A request whose prefix another has left behind in the GPU's pool."""
    watched.add(0, 100, 2, 96)
    while watched.scheduler.requests:
        watched.step(written=True)
    watched.add(1, 110, 64, 96)
    watched.step(written=True)
    changes = watched.books.resident_managers[0].residency_changes["r1"]
    assert any(not block.is_null for block in changes.values())


STATES = [spilling, detached, unpinned, lost, adopted]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("state", STATES)
def test_every_reference_is_explained(state: Any, groups: int) -> None:
    watched = HiSparse(gpu_blocks=20 + 20 * groups, resident_groups=groups)
    state(watched)
    watched.clean()
    for _ in range(6):
        watched.step()
    watched.clean()
    watched.drain()


@pytest.mark.parametrize("state", STATES)
def test_a_planted_reference_is_found_in_either_pool(state: Any) -> None:
    watched = HiSparse(gpu_blocks=41)
    state(watched)
    pools = [watched.pool, watched.host.view.pool]
    taken = [pool.get_new_blocks(1)[0] for pool in pools]
    held = next(block for block in reversed(watched.pool.blocks) if block.ref_cnt and block not in taken)
    watched.pool.touch([held])
    assert watched.found() == [(2, 0), (1, 0)]
    for _ in range(3):
        step(watched.scheduler, report(watched.scheduler))
        assert watched.found()[1] == (1, 0)
    for pool, block in zip(pools, taken, strict=True):
        pool.free_blocks([block])
    watched.pool.free_blocks([held])
    watched.clean()


@pytest.mark.parametrize("state", [spilling, unpinned, lost, adopted])
def test_a_page_that_is_let_go_twice_is_over_freed(state: Any) -> None:
    watched = HiSparse(gpu_blocks=41)
    state(watched)
    request_id = next(reversed(watched.scheduler.requests))
    tail = watched.books.resident_managers[0].get_residency_row(request_id)[-1]
    watched.pool.free_blocks([tail])
    assert watched.found() == [(0, 1), (0, 0)]


def test_a_page_is_a_pin_only_while_it_is_being_written() -> None:
    watched = HiSparse()
    spilling(watched)
    watched.look()
    watched.now += 50.0
    gpu, host = watched.look()
    assert [(row.pool, row.holder, row.known, row.references) for row in (gpu, host)] == [
        ("gpu", "HiSparseConnector", True, 3),
        ("host", "HiSparseConnector", True, 3),
    ]
    assert gpu.oldest_seconds == host.oldest_seconds == 50.0
    watched.step(written=True)
    assert [row.references for row in watched.look()] == [0, 0]
    watched.clean()


def test_a_request_that_was_aborted_while_it_spills_is_kept_until_the_pages_are_written() -> None:
    watched = HiSparse()
    detached(watched)
    assert not watched.scheduler.requests
    for _ in range(3):
        watched.step()  # no worker has answered yet
        watched.clean()
        assert watched.host.view.held() == 3
    watched.step(written=True)
    watched.drain()


def test_its_id_may_come_again_meanwhile() -> None:
    watched = HiSparse()
    detached(watched)
    watched.add(0, 70)
    watched.step()
    watched.clean()
    watched.finish("r0")
    watched.clean()
    watched.drain()


def test_a_preempted_request_that_spills_is_not_kept() -> None:
    watched = HiSparse()
    spilling(watched)
    watched.step()
    victim = watched.scheduler.running.pop()
    watched.scheduler._preempt_request(victim, 0.0)
    watched.balanced()
    watched.clean()
    assert watched.host.view.held() == 3
    watched.drain()


def test_a_free_that_waits_for_a_step_in_flight() -> None:
    watched = HiSparse(asynchronous=True)
    assert watched.scheduler.defer_block_free
    watched.add(0, 60)
    flying = [watched.scheduler.schedule()]
    watched.balanced()
    watched.finish("r0")
    assert watched.scheduler.deferred_frees
    watched.clean()
    deliver(watched.scheduler, flying.pop(), worker_meta=report(watched.scheduler))
    watched.balanced()
    watched.drain()


def test_a_host_page_that_is_copied_before_it_is_written_to() -> None:
    """A prefix hit that ends inside a page: both ends of the copy are kept until the worker has made it."""
    watched = HiSparse(block_size=32, tokens=128, partial_hits=True)
    hasher = get_request_block_hasher(16, sha256)
    first = make_request(0, 82, 24, hasher=hasher)
    watched.scheduler.add_request(first)
    while watched.scheduler.requests:
        watched.step(written=True)
    again = [*first.prompt_token_ids, *range(3, 23)]
    watched.scheduler.add_request(
        Request("r1", again, first.sampling_params, None, block_hasher=hasher)  # type: ignore[arg-type]
    )
    watched.scheduler.schedule()
    watched.balanced()
    assert len(watched.books._retained_copies) == 1
    watched.clean()
    assert {row.pool: row.references for row in watched.look()}["host"] >= 2
    watched.books.release_completed_host_copies(list(watched.books._retained_copies))
    watched.balanced()
    watched.clean()
    watched.finish("r1")
    watched.drain()


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_the_law_holds(seed: int, groups: int) -> None:
    """Requests with shared prefixes come, end and are put back, while workers report late and in any order."""
    draw = random.Random(seed)
    watched = HiSparse(gpu_blocks=30 * (1 + groups), host_blocks=120, resident_groups=groups)
    states = {"pending": 0, "unpinned": 0, "changed": 0, "detached": 0}
    for i in range(120):
        if draw.random() < 0.4:
            watched.add(i % 40 if f"r{i % 40}" not in watched.scheduler.requests else 1000 + i, draw.randint(20, 180))
        if draw.random() < 0.3:
            shared = draw.choice([48, 96])
            watched.add(2000 + i, shared + draw.randint(5, 40), draw.randint(1, 40), shared)
        pending = list(watched.books.pending_spills)
        message = report(watched.scheduler, draw.sample(pending, draw.randint(0, (len(pending) + 1) // 2)))
        step(watched.scheduler, message)
        watched.balanced()
        if watched.scheduler.requests and draw.random() < 0.2:
            spilling_now = {spill.page[0] for spill in watched.books.pending_spills.values()}
            known = sorted(spilling_now & watched.scheduler.requests.keys()) or list(watched.scheduler.requests)
            watched.finish(draw.choice(known))
        if watched.scheduler.running and draw.random() < 0.05:
            watched.scheduler._preempt_request(watched.scheduler.running.pop(), 0.0)
            watched.balanced()
        if i % 10 == 0:
            watched.clean()
        states["pending"] += len(watched.books.pending_spills)
        states["unpinned"] += sum(len(state.unpinned_pages) for state in watched.books.request_states.values())
        states["changed"] += sum(map(len, watched.books.resident_managers[0].residency_changes.values()))
        states["detached"] += sum(
            bool(spill.request_state.publication and spill.request_state.publication.detached_blocks)
            for spill in watched.books.pending_spills.values()
        )
    assert all(states.values()), f"not all states were seen: {states}"
    for request_id in list(watched.scheduler.requests):
        watched.finish(request_id)
    watched.drain()
