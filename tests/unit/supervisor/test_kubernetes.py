"""Pods are evicted, not deleted: only the one that is meant, never against a budget, and its successor is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.balancer.http_client import JsonClient
from agent.supervisor.base import RefusedError, SupervisorError, Target
from agent.supervisor.kubernetes import KubernetesSupervisor
from tests.unit.balancer.kube_api import TOKEN
from tests.unit.supervisor.pods import STARTED, PodApi


@pytest.fixture
def api() -> Iterator[PodApi]:
    found = PodApi()
    yield found
    found.close()


@pytest.fixture
def supervisor(api: PodApi, tmp_path: Path) -> KubernetesSupervisor:
    (tmp_path / "token").write_text(TOKEN)
    return KubernetesSupervisor(JsonClient(api.url, tmp_path / "token", None), "llm")


def target(host: str, started_at: float = STARTED) -> Target:
    return Target(engine="llama", instance="i1", host=host, pid=0, started_at=started_at)


async def test_the_pod_is_evicted_and_its_successor_is_found(api: PodApi, supervisor: KubernetesSupervisor) -> None:
    pod, other = api.add(), api.add()
    api.add(app="another")
    await supervisor.probe(target(pod))
    assert api.evicted == []
    api.ready = False
    await supervisor.restart(target(pod))
    assert api.evicted == [
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": "llm"},
            "deleteOptions": {"preconditions": {"uid": "uid-0"}},
        }
    ]
    assert other in api.pods
    assert not await supervisor.succeeded(target(pod)), "the other was ready before, and the new one is not"
    api.ready = True
    api.add(app="another")
    assert not await supervisor.succeeded(target(pod)), "another's pod is no successor"
    api.add()
    assert await supervisor.succeeded(target(pod))
    await supervisor.close()


async def test_a_disruption_budget_is_respected(api: PodApi, supervisor: KubernetesSupervisor) -> None:
    pod = api.add()
    api.budget = 0
    with pytest.raises(RefusedError, match="HTTP 429: Cannot evict pod as it would violate"):
        await supervisor.restart(target(pod))
    assert (list(api.pods), api.evicted) == ([pod], [])
    api.budget = 1
    await supervisor.restart(target(pod))
    await supervisor.close()


async def test_a_successor_of_the_same_name_is_left_alone(api: PodApi, supervisor: KubernetesSupervisor) -> None:
    api.add("vllm-0", created="2023-11-14T22:20:00Z")  # ten minutes after the engine that is meant
    with pytest.raises(RefusedError, match="younger than the engine that is meant"):
        await supervisor.restart(target("vllm-0"))
    meant = await supervisor._found(target("vllm-0", STARTED + 900.0))
    api.pods["vllm-0"]["metadata"]["uid"] = "another"  # between the look and the eviction
    assert meant.uid != "another"
    status, _ = api._evict("vllm-0", {"deleteOptions": {"preconditions": {"uid": meant.uid}}})
    assert status == 409
    await supervisor.close()


async def test_what_nobody_would_make_again_is_not_evicted(api: PodApi, supervisor: KubernetesSupervisor) -> None:
    api.controlled = False
    pod = api.add()
    with pytest.raises(RefusedError, match="has no controller"):
        await supervisor.probe(target(pod))
    await supervisor.close()


@pytest.mark.parametrize(
    ("host", "why"), [("gone", 'HTTP 404: pods "gone" not found'), ("no/name", "no/name is no name of a pod")]
)
async def test_what_is_no_pod_is_refused(supervisor: KubernetesSupervisor, host: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        await supervisor.probe(target(host))
    await supervisor.close()


async def test_an_api_server_that_is_not_well_is_no_success(api: PodApi, supervisor: KubernetesSupervisor) -> None:
    pod = api.add()
    await supervisor.restart(target(pod))
    api.status = 503
    with pytest.raises(SupervisorError, match="the server is not well"):
        await supervisor.succeeded(target(pod))
    await supervisor.close()
