"""The readiness gate: each pod's condition follows its engine, is told again, and one pod that fails costs no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.balancer.coordinator import CoordinatorError, NoCoordinator
from agent.balancer.gate import CONDITION, ReadinessGate
from agent.balancer.grants import Grants
from agent.balancer.http_client import JsonClient
from agent.balancer.state import Weight
from tests.unit.balancer.kube_api import TOKEN, KubeApi
from tests.unit.balancer.made import Agrees, Clock, Node, signals
from tests.unit.builders import make_engine

FULL = Weight(since=1_700_000_000.0)
OUT = Weight(percent=0, mode="drain", since=1_700_000_060.0, why="it leaks", step="isolated")
OTHERS = {"type": "Ready", "status": "True"}


@pytest.fixture
def api() -> Iterator[KubeApi]:
    found = KubeApi()
    found.conditions = {"vllm-0": [OTHERS], "vllm-1": []}
    yield found
    found.close()


@pytest.fixture
def client(api: KubeApi, tmp_path: Path) -> JsonClient:
    (tmp_path / "token").write_text(TOKEN)
    return JsonClient(api.url, tmp_path / "token", None)


async def test_the_condition_follows_and_others_stay(api: KubeApi, client: JsonClient) -> None:
    clock = Clock()
    gate = ReadinessGate(client, "llm", clock)
    await gate.tell({"vllm-0": FULL, "vllm-1": FULL})
    assert [each["status"] for each in api.conditions["vllm-0"]] == ["True", "True"]
    await gate.tell({"vllm-0": OUT, "vllm-1": FULL})
    assert api.conditions["vllm-0"] == [
        OTHERS,
        {
            "type": CONDITION,
            "status": "False",
            "reason": "Isolated",
            "message": "it leaks",
            "lastTransitionTime": "2023-11-14T22:14:20Z",
        },
    ]
    assert api.patches == 3, "what has not changed is not told again"
    clock.now += 31.0
    await gate.tell({"vllm-0": OUT, "vllm-1": FULL})
    assert api.patches == 5, "but after half a minute: a pod of the same name may be new"
    await gate.close()


async def test_a_pod_that_is_not_there_costs_no_other(api: KubeApi, client: JsonClient) -> None:
    gate = ReadinessGate(client, "llm")
    with pytest.raises(CoordinatorError, match="pod gone: HTTP 404"):
        await gate.tell({"gone": FULL, "vllm-1": OUT})
    assert api.conditions["vllm-1"][0]["status"] == "False"
    await gate.close()


@pytest.mark.parametrize("name", ["../secrets/x", "a/b", "", "A", "a?b", "-", "x" * 300])
async def test_a_name_that_is_none_is_not_asked_for(api: KubeApi, client: JsonClient, name: str) -> None:
    gate = ReadinessGate(client, "llm")
    with pytest.raises(CoordinatorError, match="is no name of a pod"):
        await gate.tell({name: FULL})
    assert api.patches == 0
    await gate.close()


async def test_it_is_told_where_nothing_is_enforced_too(api: KubeApi, client: JsonClient) -> None:
    """A pod with the gate is not ready before somebody says so."""
    grants = Grants(NoCoordinator(), ReadinessGate(client, "llm"))
    grants.want((), (), {"vllm-1": FULL})
    await grants.once()
    assert api.conditions["vllm-1"][0]["status"] == "True"
    await grants.close()


async def test_an_agent_that_ends_leaves_no_pod_out(api: KubeApi, client: JsonClient) -> None:
    node = Node(Agrees(), gate=ReadinessGate(client, "llm"), host="vllm-1")
    leak = signals(0.09, lasts=200.0)
    assert await node.look(leak, seconds=10) == 0
    assert api.conditions["vllm-1"][0]["status"] == "False"
    node.balancer.let_go()
    await node.balancer.close()
    assert api.conditions["vllm-1"][0]["status"] == "True"


async def test_a_pod_of_several_engines_serves_while_one_does(api: KubeApi, client: JsonClient) -> None:
    node = Node(Agrees(), gate=ReadinessGate(client, "llm"), host="vllm-1")
    leak, well = signals(0.09, lasts=200.0), signals(engine="o", instance="o1")
    assert await node.look(leak, well, seconds=10) == 0
    assert api.conditions["vllm-1"][0]["status"] == "True"
    await node.look(leak, signals(0.09, lasts=200.0, engine="o", instance="o1"), seconds=10)
    assert api.conditions["vllm-1"][0]["status"] == "False"
    await node.balancer.close()


async def test_a_pod_whose_engine_falls_silent_is_let_go_too(api: KubeApi, client: JsonClient) -> None:
    node = Node(Agrees(), gate=ReadinessGate(client, "llm"), host="vllm-1")
    assert await node.look(signals(0.09, lasts=200.0), seconds=10) == 0
    silent = make_engine(engine="m", instance="i1", host="vllm-1", phase="silent")
    await node.look(seconds=60, engines=(silent,))
    assert api.conditions["vllm-1"][0]["status"] == "False"
    await node.look(seconds=70, engines=(silent,))
    assert api.conditions["vllm-1"][0]["status"] == "True"
    await node.balancer.close()
