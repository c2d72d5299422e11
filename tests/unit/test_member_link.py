"""A member's link: what it says and how often, that it never disturbs its owner, and when it ends."""

from __future__ import annotations

import gc
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine_hooks import member_link, wire
from engine_hooks.auth import Session
from engine_hooks.frontend import member as frontend
from engine_hooks.guard import ERROR_LIMIT, Guard, told
from engine_hooks.identity import Identity
from engine_hooks.member_link import MemberLink, attach, call_after, detach, member_of
from engine_hooks.members import FrontendRow, MemberReport, WorkerRow
from engine_hooks.own_memory import resident_bytes
from engine_hooks.worker.memory import storage_bytes, tensors_in
from tests.unit.support import Listener, Peer, eventually, settings_for

ROW = WorkerRow(tensor_parallel_rank=1, pipeline_parallel_rank=0, device="cpu", kv_bytes=5)


class Owner:
    """Somebody whose life is watched."""


def parallel(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(model_config=None, parallel_config=SimpleNamespace(**values))


@pytest.fixture
def settings(listener: Listener, key_file: Path, socket_path: Path) -> Any:
    return settings_for(socket_path, key_file)


def start(settings: Any, read: Any = lambda: ROW, owner: Any = None, role: str = "worker") -> tuple[Any, MemberLink]:
    owner = owner or Owner()
    link = MemberLink(owner, Identity.of_member(parallel(), settings, role, 2, 1), settings, read)
    attach(owner, link)
    return owner, link


def hear(peer: Peer) -> MemberReport:
    message = peer.receive()
    assert isinstance(message, MemberReport)
    return message


def test_it_says_who_it_is_and_what_it_holds(listener: Listener, settings: Any) -> None:
    owner, _link = start(settings)
    peer = listener.accept()
    _, hello = peer.shake_hands()
    assert (hello.role, hello.index, hello.rank, hello.pool) == ("worker", 2, 1, None)
    assert (hello.pid, hello.parent_pid) == (os.getpid(), os.getppid())
    assert not hello.audit.ok
    report = hear(peer)
    assert (report.worker, report.frontend) == (ROW, None)
    # Within a factor: both read the same process at different times.
    own = resident_bytes()
    assert own is not None
    assert report.resident_bytes is not None
    assert own / 2 < report.resident_bytes < own * 2
    assert report.memory is not None
    assert report.memory.resident_bytes is not None
    assert own / 2 < report.memory.resident_bytes < own * 2
    assert hear(peer).memory is None  # each ten seconds
    detach(owner)


def test_it_comes_back_and_speaks_at_once(listener: Listener, settings: Any) -> None:
    owner, _link = start(settings)
    peer = listener.accept()
    peer.shake_hands()
    first = hear(peer)
    peer.sock.close()
    peer = listener.accept()
    peer.shake_hands()
    second = hear(peer)
    assert second.monotonic > first.monotonic
    assert second.memory is not None  # there is somebody new to be told
    detach(owner)


def test_it_takes_no_orders(listener: Listener, settings: Any) -> None:
    owner, _link = start(settings, role="frontend")
    peer = listener.accept()
    session, _ = peer.shake_hands()
    payload = wire.encode_order(wire.Order(sequence=1, kind="check"))
    peer.send(wire.SignedOrder(payload=payload, mac=session.sign_order(payload)))
    answers = [message for message in (peer.receive(), peer.receive()) if isinstance(message, wire.OrderResult)]
    assert [(answer.ok, answer.detail) for answer in answers] == [(False, "a frontend takes no orders")]
    detach(owner)


def test_its_owners_end_is_its_own(listener: Listener, settings: Any) -> None:
    owner, link = start(settings)
    peer = listener.accept()
    peer.shake_hands()
    thread = link._link._thread
    del owner
    gc.collect()
    eventually(lambda: not thread.is_alive())
    peer.everything()  # to the end: there is one


def test_detaching_is_for_those_who_have_a_link() -> None:
    detach(Owner())
    detach(None)
    assert member_of(None) is None


def test_a_reader_that_keeps_raising_is_switched_off(
    listener: Listener, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_link, "PERIOD_SECONDS", 0.0)
    calls = 0

    def read() -> WorkerRow:
        nonlocal calls
        calls += 1
        raise RuntimeError("planted")

    owner, link = start(settings, read)
    peer = listener.accept()
    peer.shake_hands()
    eventually(lambda: "member" in link._guard.off)
    assert calls == ERROR_LIMIT
    assert link._link.up, "the link stays: the process lives"
    while not (report := hear(peer)).off:
        assert report.worker is None
    assert (report.errors, report.off) == ({"member": ERROR_LIMIT}, {"member": "RuntimeError: planted"})
    detach(owner)


def test_it_tells_what_hooks_of_its_process_have_caught(listener: Listener, settings: Any) -> None:
    owner, guard = Owner(), Guard()
    guard.note("tenant", ValueError("a header"))
    identity = Identity.of_member(parallel(), settings, "frontend", 0, 0)
    attach(owner, MemberLink(owner, identity, settings, lambda: None, guards=(guard,)))
    peer = listener.accept()
    peer.shake_hands()
    assert (hear(peer).errors, hear(peer).off) == ({"tenant": 1}, {})
    guard.note("tenant", ValueError("another"))
    assert hear(peer).errors == {"tenant": 2}
    assert told((guard, guard), 1)[0] == {"tenant": 4}
    guard.note("admission", ValueError("one name too many"))
    assert told((guard,), 1)[0] == {"tenant": 2}
    detach(owner)


def test_what_we_do_after_a_call_stays_with_us(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("vllm.kvtide"), "propagate", True)
    seen = []

    class Theirs:
        def work(self, value: int) -> int:
            if value < 0:
                raise ValueError(value)
            return value + 1

    def then(_self: Theirs, value: int) -> None:
        seen.append(value)
        if value == 7:
            raise RuntimeError("planted")

    call_after(Theirs, "work", then)
    call_after(Theirs, "work", then)  # once is enough
    assert [Theirs().work(1), Theirs().work(7)] == [2, 8]
    with pytest.raises(ValueError, match="-1"):
        Theirs().work(-1)
    assert seen == [1, 7]
    assert "goes on without us" in caplog.text


def test_an_api_server_counts_its_requests_and_does_not_keep_its_engine(listener: Listener, settings: Any) -> None:
    class AsyncLLM:
        def __init__(self) -> None:
            self.vllm_config = parallel(_api_process_count=2, _api_process_rank=1)
            self.output_processor = SimpleNamespace(get_num_unfinished_requests=lambda: 4)

    async_llm = AsyncLLM()
    link = frontend.watch(async_llm, settings)
    assert frontend.watch(async_llm, settings) is link
    peer = listener.accept()
    _, hello = peer.shake_hands()
    assert (hello.role, hello.index, hello.rank) == ("frontend", 0, 1)
    assert hear(peer).frontend == FrontendRow(count=2, requests=4)
    thread = link._link._thread
    del async_llm, link
    gc.collect()
    eventually(lambda: not thread.is_alive())


@pytest.mark.parametrize(
    ("values", "sizes"),
    [
        ({"world_size": 4, "local_world_size": 2, "distributed_executor_backend": "mp"}, (4, 2)),
        ({"world_size": 1, "distributed_executor_backend": "uni"}, (1, 1)),
        ({"world_size": 2}, (2, 2)),
        ({"world_size": 16, "local_world_size": 16, "distributed_executor_backend": "ray"}, (16, 0)),
        ({"world_size": 2, "local_world_size": 2, "distributed_executor_backend": "external_launcher"}, (2, 0)),
        ({}, (0, 0)),
    ],
)
def test_how_many_workers_there_should_be(settings: Any, values: dict[str, Any], sizes: tuple[int, int]) -> None:
    identity = Identity.of(SimpleNamespace(vllm_config=parallel(**values)), settings, in_process=False)
    hello = identity.hello(Session(bytes(32), bytes(32), bytes(32)), None, wire.Support(ok=True), 1.0)
    assert (hello.world_size, hello.local_world_size) == sizes


class Tensor:
    """What of a tensor is looked at."""

    def __init__(self, address: int, size: int) -> None:
        self.storage = SimpleNamespace(data_ptr=lambda: address, nbytes=lambda: size)

    def untyped_storage(self) -> Any:
        return self.storage


def test_each_storage_counts_once_however_deep_it_lies() -> None:
    one, view, two = Tensor(100, 64), Tensor(100, 64), Tensor(200, 8)
    assert storage_bytes(tensors_in([one, [view, (two, None)], {"layer": one}])) == 72
    assert storage_bytes(tensors_in([])) == 0
