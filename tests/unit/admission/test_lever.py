"""The lever on a desk: what it says, when it is there, and that its rules end with the lease."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from engine_hooks.frontend.admission import wiring
from engine_hooks.frontend.admission.gate import Gate
from engine_hooks.frontend.admission.table import TableError
from engine_hooks.frontend.admission.wiring import open_desk, pool_of
from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.guard import Guard
from engine_hooks.levers.desk import LeverDesk
from engine_hooks.levers.orders import ActionOrder
from engine_hooks.settings import Settings
from tests.unit.admission.asking import Bed, completion, run


def order(op: Any, **arguments: Any) -> ActionOrder:
    return ActionOrder(action="a1", lever="admission", op=op, instance="me", lease_seconds=10.0, arguments=arguments)


def desk_of(bed: Bed) -> LeverDesk:
    levers = {"admission": bed.lever}
    return LeverDesk("me", levers, unsupported={}, allowed=["admission"], guard=Guard(), clock=bed.clock)


def test_rules_end_with_the_lease_and_renewing_keeps_them() -> None:
    bed = Bed()
    desk = desk_of(bed)
    tried = desk.execute(order("try", shed=True), 0.0)
    assert (tried.code, bed.gate.rules, bed.gate.table) == ("would", None, None)
    assert desk.execute(order("apply", shed=True), 0.0).in_force
    bed.clock.now += 9.0
    assert desk.execute(order("renew"), 0.0).ok
    bed.clock.now += 9.0
    assert desk.tick() == ()
    assert run(lambda: bed.post(completion(1))).status == 503
    bed.clock.now += 1.1
    (ended,) = desk.tick()
    assert (ended.code, ended.effect) == ("expired", {"refused": 1})
    assert run(lambda: bed.post(completion(1))).status == 200


def test_amending_puts_other_rules_in_force() -> None:
    bed = Bed()
    desk = desk_of(bed)
    desk.execute(order("apply", concurrency={"acme": 5}), 0.0)
    assert desk.execute(order("amend", concurrency={"acme": 0}), 0.0).ok
    assert run(lambda: bed.post(completion(1))).status == 429
    assert desk.execute(order("undo"), 0.0).code == "undone"
    assert run(lambda: bed.post(completion(1))).status == 200


class Watched(Gate):
    """Notes each value that its rules have had: a request may come at any of them."""

    seen: ClassVar[list[Any]] = []

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "rules":
            self.seen.append(value)
        super().__setattr__(name, value)


def test_no_request_finds_the_gate_open_while_rules_are_changed() -> None:
    bed = Bed()
    desk = desk_of(bed)
    desk.execute(order("apply", shed=True), 0.0)
    bed.gate.__class__ = Watched
    Watched.seen.clear()
    changed = desk.execute(order("amend", shed=True, retry_after=9), 0.0)
    assert (changed.code, changed.in_force) == ("done", True)
    assert [rules is not None and rules.retry_after for rules in Watched.seen] == [9]
    refused = desk.execute(order("amend", quota=1), 0.0)  # there is no such rule: those from before stay
    assert (refused.code, refused.in_force, len(Watched.seen)) == ("bad_argument", True, 1)
    assert desk.in_force()[0].arguments == {"shed": True, "retry_after": 9}


def test_it_says_what_is_in_flight() -> None:
    bed = Bed()
    desk = desk_of(bed)
    effect = desk.execute(order("apply", reserved={"gold": 30}), 0.0).effect
    assert effect == {
        "rules": 1,
        "capacity_blocks": 100,
        "reserved_blocks": 30,
        "in_flight_blocks": 0,
        "in_flight_requests": 0,
    }


@pytest.mark.parametrize("arguments", [{"quota": 1}, {"reserved": {"gold": 101}}])
def test_bad_arguments_leave_nothing_in_force(arguments: Any) -> None:
    bed = Bed()
    for op in ("try", "apply"):
        assert desk_of(bed).execute(order(op, **arguments), 0.0).code == "bad_argument"
    assert bed.gate.rules is None


def test_without_an_application_or_a_table_it_is_unsupported() -> None:
    bed = Bed()
    bed.gate.why_not = "nobody asks"
    refused = desk_of(bed).execute(order("apply"), 0.0)
    assert (refused.code, refused.detail) == ("unsupported", "nobody asks")

    def no_table() -> Any:
        raise TableError("no room")

    bed = Bed(open_table=no_table)
    result = desk_of(bed).execute(order("apply"), 0.0)
    assert (result.code, result.detail, bed.gate.rules) == ("unsupported", "no room", None)


# -- what vLLM says ------------------------------------------------------------------------------------------------


def llm(**cache: Any) -> Any:
    config = SimpleNamespace(
        cache_config=SimpleNamespace(**{"num_gpu_blocks": 301, "block_size": 32, **cache}),
        model_config=SimpleNamespace(max_model_len=2048, served_model_name=["tiny", "alias"]),
        parallel_config=SimpleNamespace(data_parallel_size=1),
    )
    return SimpleNamespace(vllm_config=config, engine_core=SimpleNamespace(core_engines=[b"0"]))


def open_one(async_llm: Any, levers: str = "admission", servers: int = 1) -> tuple[Gate, LeverDesk]:
    gate = Gate(TenantSettings())
    gate.why_not = ""
    settings = Settings.from_environment({"KVTIDE_LEVERS": levers})
    return gate, open_desk(gate, async_llm, instance="me", settings=settings, servers=servers, number=0)


def test_the_pool_is_what_vllm_has_configured() -> None:
    pool = pool_of(llm())
    assert pool is not None
    assert (pool.blocks, pool.block_tokens, pool.ranks, pool.model_tokens) == (300, 32, 1, 2048)
    two = llm(num_gpu_blocks=602, effective_attention_block_size=64)
    two.engine_core.core_engines = [b"0", b"1"]
    pool = pool_of(two)
    assert pool is not None
    assert (pool.rank_blocks, pool.block_tokens, pool.ranks) == (300, 64, 2)


def test_the_desk_of_an_api_server() -> None:
    gate, desk = open_one(llm())
    assert [(row.lever, row.ok) for row in desk.rows()] == [("admission", True)]
    assert gate.served == {"tiny", "alias"}
    assert desk.execute(order("apply"), 0.0).ok
    gate.close()
    assert (gate.rules, gate.table) == (None, None)
    assert [row.ok for row in open_one(llm(), levers="")[1].rows()] == [False]


@pytest.mark.parametrize("cache", [{"num_gpu_blocks": None}, {"block_size": None}, {"num_gpu_blocks": 1}])
def test_a_vllm_that_does_not_say_its_pool_is_unsupported(cache: Any) -> None:
    (row,) = open_one(llm(**cache))[1].rows()
    assert (row.ok, "pool" in row.reason) == (False, True)


def test_a_front_end_that_serves_grpc_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm.entrypoints.launchers.grpc_server", SimpleNamespace())  # type: ignore[misc]
    (row,) = open_one(llm())[1].rows()
    assert (row.ok, "gRPC" in row.reason) == (False, True)


def test_two_servers_share_a_file_that_goes_with_the_last(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "folder_of_this_user", lambda: tmp_path / "own")
    (first, first_desk), (second, second_desk) = open_one(llm(), servers=2), open_one(llm(), servers=2)
    assert first_desk.execute(order("apply"), 0.0).ok
    assert second_desk.execute(order("apply"), 0.0).ok
    assert len(list((tmp_path / "own").iterdir())) == 1
    first.close()
    first.close()
    assert len(list((tmp_path / "own").iterdir())) == 1
    second.close()
    assert list((tmp_path / "own").iterdir()) == []
