"""Coordinators: whichever counts, no more than the share is ejected, leases end, and a failure grants nothing."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.balancer import http_client, lease_file
from agent.balancer.coordinator import LEASE_SECONDS, Coordinator, CoordinatorError, most_of
from agent.balancer.http_client import JsonClient
from agent.balancer.kubernetes import ENGINES, FLEET, GRANTS, KubernetesCoordinator
from agent.balancer.lease_file import FileCoordinator
from agent.balancer.webhook import WebhookCoordinator
from tests.unit.balancer.kube_api import TOKEN, KubeApi
from tests.unit.balancer.made import Clock

Make = Callable[[str], Coordinator]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def api(clock: Clock) -> Iterator[KubeApi]:
    found = KubeApi()
    found.wall = clock.wall
    yield found
    found.close()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


@pytest.fixture(params=["file", "kubernetes"])
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, api: KubeApi, token: Path) -> Make:
    def make(node: str) -> Coordinator:
        if request.param == "file":
            return FileCoordinator(tmp_path, node, 0.30, clock.wall)
        client = JsonClient(api.url, token, None, clock.wall)
        return KubernetesCoordinator(client, "llm", "fleet", node, 0.30, wall=clock.wall)

    return make


def put(file: Path, text: str) -> None:
    file.write_text(text)


def kubernetes(api: KubeApi, token: Path, clock: Clock, node: str = "n0", **more: object) -> KubernetesCoordinator:
    client = JsonClient(api.url, token, None, clock.wall)
    return KubernetesCoordinator(client, "llm", "fleet", node, 0.5, wall=clock.wall, **more)


async def test_three_of_ten_and_no_more(make: Make, clock: Clock) -> None:
    nodes = [make(f"n{number}") for number in range(10)]
    for node in nodes:
        await node.alive(["m"])
    answers = [await node.grant("m") for node in nodes]
    assert [answer.granted for answer in answers] == [True] * 3 + [False] * 7
    assert (answers[2].fleet, answers[2].ejected) == (10, 3)
    assert answers[3].why == "3 of 10 are below 50 % already, 3 may be"
    assert (await nodes[1].grant("m")).granted, "who has a grant renews it"
    await nodes[0].release("m")
    await nodes[0].release("m")
    assert (await nodes[9].grant("m")).granted
    assert not (await nodes[8].grant("m")).granted
    for node in nodes:
        await node.close()


async def test_all_at_once_get_no_more_than_the_share(make: Make) -> None:
    nodes = [make(f"n{number}") for number in range(10)]
    await asyncio.gather(*(node.alive(["m"]) for node in nodes))

    async def ask(node: Coordinator) -> bool:
        try:
            return (await node.grant("m")).granted
        except CoordinatorError:
            return False  # others wrote it meanwhile, again and again

    answers: list[bool] = []
    for _ in range(20):
        answers = await asyncio.gather(*(ask(node) for node in nodes))
        assert sum(answers) <= 3
        if sum(answers) == 3:
            break
    assert sum(answers) == 3
    for node in nodes:
        await node.close()


async def test_leases_end_and_those_that_are_renewed_do_not(make: Make, clock: Clock) -> None:
    nodes = [make(f"n{number}") for number in range(4)]
    for node in nodes:
        await node.alive(["m"])
    assert (await nodes[0].grant("m")).granted
    assert not (await nodes[1].grant("m")).granted
    clock.now += LEASE_SECONDS - 5
    for node in nodes[:3]:
        await node.alive(["m"])
    assert (await nodes[0].grant("m")).granted
    clock.now += 10
    answer = await nodes[1].grant("m")
    assert (answer.granted, answer.fleet, answer.ejected) == (False, 3, 1), (
        "the fourth is gone, and one of three is 33 %"
    )
    await nodes[3].alive(["m"])
    clock.now += LEASE_SECONDS - 5
    for node in nodes:
        await node.alive(["m"])
    clock.now += 10
    assert (await nodes[1].grant("m")).granted, "nobody renewed the first"
    for node in nodes:
        await node.close()


async def test_a_small_fleet_ejects_none(make: Make) -> None:
    nodes = [make(f"n{number}") for number in range(3)]
    for node in nodes:
        await node.alive(["m"])
    assert not (await nodes[0].grant("m")).granted
    for node in nodes:
        await node.close()


async def test_several_engines_on_a_node_count_each(make: Make) -> None:
    node = make("n0")
    await node.alive([f"m/{number}" for number in range(8)])
    answers = [(await node.grant(f"m/{number}")).granted for number in range(4)]
    assert answers == [True, True, False, False]
    await node.close()


@given(st.integers(0, 2000), st.floats(0.0, 0.5))
def test_the_share_is_never_more_than_the_share(fleet: int, share: float) -> None:
    assert most_of(fleet, share) <= fleet * share + 1e-6
    assert most_of(10, 0.30) == 3
    assert most_of(100, 0.29) == 29


# -- the file ------------------------------------------------------------------------------------------------


async def test_a_lock_that_is_kept_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_file, "TIMEOUT_SECONDS", 0.1)
    node = FileCoordinator(tmp_path, "n", 0.5)
    await node.alive(["m", "k"])
    with (tmp_path / "lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(CoordinatorError, match="another agent keeps the lock"):
            await node.grant("m")
    assert (await node.grant("m")).granted


@pytest.mark.parametrize("text", ["{", '{"engines": 3}', "[]", "\0", '{"grants": {"n/m": "x"}}'])
async def test_a_book_that_is_garbled_is_a_failure(tmp_path: Path, text: str) -> None:
    (tmp_path / "book.json").write_text(text)
    with pytest.raises(CoordinatorError, match="remove it to begin anew"):
        await FileCoordinator(tmp_path, "n", 0.5).grant("m")
    assert (tmp_path / "book.json").read_text() == text


async def test_a_folder_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(CoordinatorError, match="No such file"):
        await FileCoordinator(tmp_path / "none", "n", 0.5).alive(["m"])


async def test_a_clock_that_was_set_back_ends_leases(tmp_path: Path, clock: Clock) -> None:
    node = FileCoordinator(tmp_path, "n", 0.5, clock.wall)
    await node.alive(["m", "k"])
    await node.grant("m")
    clock.now -= 10_000
    other = FileCoordinator(tmp_path, "o", 0.5, clock.wall)
    await other.alive(["m", "k"])
    answer = await other.grant("m")
    assert (answer.granted, answer.fleet) == (True, 2)


# -- Kubernetes ------------------------------------------------------------------------------------------------


async def test_what_is_in_the_leases(api: KubeApi, token: Path, clock: Clock) -> None:
    node = kubernetes(api, token, clock)
    await node.alive(["m", "k"])
    await node.grant("m")
    own = next(lease for name, lease in api.leases.items() if name != "fleet")
    assert own["metadata"]["labels"] == {FLEET: "fleet"}
    assert own["metadata"]["annotations"] == {ENGINES: "2"}
    assert own["spec"]["holderIdentity"] == "n0"
    assert own["spec"]["leaseDurationSeconds"] == 60
    assert own["spec"]["renewTime"].endswith("Z")
    assert list(json.loads(api.leases["fleet"]["metadata"]["annotations"][GRANTS])) == ["n0/m"]
    await node.close()


async def test_what_another_wrote_meanwhile_is_not_lost(api: KubeApi, token: Path, clock: Clock) -> None:
    node, other = kubernetes(api, token, clock), kubernetes(api, token, clock, "n1")
    for each in (node, other):
        await each.alive(["m", "k"])
    until = clock.wall() + 50
    grants = json.dumps({"n1/m": {"since": 0, "until": until}, "n1/k": {"since": 0, "until": until}})
    api.before_write = lambda name: api.put(name, {"metadata": {"annotations": {GRANTS: grants}}})
    answer = await node.grant("m")
    assert (answer.granted, answer.ejected) == (False, 2)
    assert api.conflicts == 1
    assert set(json.loads(api.leases["fleet"]["metadata"]["annotations"][GRANTS])) == {"n1/m", "n1/k"}
    for each in (node, other):
        await each.close()


async def test_a_lease_that_others_always_write_is_a_failure(api: KubeApi, token: Path, clock: Clock) -> None:
    node = kubernetes(api, token, clock)
    await node.alive(["m", "k"])

    def meddle(name: str) -> None:
        api.put(name, {"spec": {}})
        api.before_write = meddle

    api.before_write = meddle
    with pytest.raises(CoordinatorError, match="others wrote it 5 times"):
        await node.grant("m")
    await node.close()


@pytest.mark.parametrize(("gated", "granted"), [(False, [True, False]), (True, [True, False])])
async def test_a_disruption_budget_is_respected(
    api: KubeApi, token: Path, clock: Clock, gated: bool, granted: list[bool]
) -> None:
    api.allowed = 0
    node = kubernetes(api, token, clock, budget="engines", gated=gated)
    await node.alive(["a", "b", "c", "d"])
    refused = await node.grant("a")
    assert (refused.granted, refused.why) == (False, "the disruption budget engines allows 0 more")
    api.allowed = 1
    assert [(await node.grant(name)).granted for name in "ab"] == granted
    clock.now += 40
    api.allowed = 0
    assert (await node.grant("a")).granted, "one that is out already is no new disruption"
    api.allowed = 1
    # The pod is unready by now and the budget counts it itself, or nobody but us knows of it.
    assert (await node.grant("b")).granted == gated
    await node.close()


async def test_a_budget_that_is_not_there_is_a_failure(api: KubeApi, token: Path, clock: Clock) -> None:
    node = kubernetes(api, token, clock, budget="engines")
    await node.alive(["a", "b"])
    with pytest.raises(CoordinatorError, match="GET engines: HTTP 404"):
        await node.grant("a")
    await node.close()


async def test_clocks_of_nodes_may_differ(api: KubeApi, token: Path, clock: Clock) -> None:
    ahead = Clock()
    ahead.now += 500.0
    first, second = kubernetes(api, token, clock), kubernetes(api, token, ahead, "n1")
    await first.alive(["m"])
    await second.alive(["m"])
    assert (await first.grant("m")).granted
    answer = await second.grant("m")
    assert (answer.granted, answer.fleet, answer.ejected) == (False, 2, 1), "leases are of the server's time"
    for each in (first, second):
        await each.close()


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}'])
async def test_an_annotation_that_is_garbled_is_a_failure(api: KubeApi, token: Path, clock: Clock, text: str) -> None:
    node = kubernetes(api, token, clock)
    await node.alive(["m", "k"])
    api.put("fleet", {"metadata": {"annotations": {GRANTS: text}}})
    with pytest.raises(CoordinatorError, match="ejections"):
        await node.grant("m")
    await node.close()


async def test_hostile_leases_of_nodes_count_for_nothing(api: KubeApi, token: Path, clock: Clock) -> None:
    node = kubernetes(api, token, clock)
    await node.alive(["m", "k"])
    good = next(lease for lease in api.leases.values())["spec"]
    for number, (count, spec) in enumerate(
        [("9" * 30, good), ("-5", good), (7, good), ("7", {"renewTime": "soon"}), ("7", {"renewTime": 3}), ("7", None)]
    ):
        api.put(f"x{number}", {"metadata": {"labels": {FLEET: "fleet"}, "annotations": {ENGINES: count}}, "spec": spec})
    assert (await node.grant("m")).fleet == 2
    await node.close()


async def test_an_api_that_refuses_or_fails_is_a_failure(
    api: KubeApi, token: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = kubernetes(api, token, clock)
    api.status = 500
    with pytest.raises(CoordinatorError, match="HTTP 500: the server is not well"):
        await node.grant("m")
    api.status = 0
    put(token, "old")
    with pytest.raises(CoordinatorError, match="HTTP 401: Unauthorized"):
        await node.alive(["m"])
    put(token, TOKEN)
    await node.alive(["m", "k"])
    monkeypatch.setattr(http_client, "MOST_BYTES", 10)
    with pytest.raises(CoordinatorError, match="more than"):
        await node.grant("m")
    await node.close()
    os.unlink(token)
    with pytest.raises(CoordinatorError, match="No such file"):
        await kubernetes(api, token, clock).alive(["m"])


async def test_nobody_there_is_a_failure(token: Path, clock: Clock) -> None:
    gone = KubeApi()
    gone.close()
    with pytest.raises(CoordinatorError):
        await kubernetes(gone, token, clock).alive(["m"])


# -- the webhook -----------------------------------------------------------------------------------------------


def webhook(answer: Callable[[httpx2.Request], httpx2.Response]) -> WebhookCoordinator:
    client = JsonClient("http://fleet/", None, None)
    client._http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    return WebhookCoordinator(client, "n0", 0.3)


async def test_what_a_webhook_is_asked_and_what_it_grants() -> None:
    asked: list[dict[str, object]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(json.loads(request.content))
        return httpx2.Response(200, json={"granted": True, "fleet": 10, "ejected": 2})

    hook = webhook(answer)
    await hook.alive(["m"])
    grant = await hook.grant("m")
    assert (grant.granted, grant.fleet, grant.ejected) == (True, 10, 2)
    await hook.release("m")
    common = {"node": "n0", "seconds": 60.0}
    assert asked == [
        common | {"act": "alive", "engines": ["m"]},
        common | {"act": "grant", "engine": "m", "share": 0.3},
        common | {"act": "release", "engine": "m"},
    ]


@pytest.mark.parametrize(
    "body",
    ["{}", '{"granted": "true"}', '{"granted": 1}', '{"granted": false, "why": 3, "fleet": "many", "ejected": -1}'],
)
async def test_nothing_but_true_grants(body: str) -> None:
    grant = await webhook(lambda _request: httpx2.Response(200, text=body)).grant("m")
    assert (grant.granted, grant.why, grant.fleet) == (False, "the webhook does not grant it", None)


@pytest.mark.parametrize("response", [(200, "[]"), (200, "yes"), (500, "{}"), (302, "{}"), (200, "[" * 100_000)])
async def test_an_answer_that_is_none_is_a_failure(response: tuple[int, str]) -> None:
    with pytest.raises(CoordinatorError):
        await webhook(lambda _request: httpx2.Response(response[0], text=response[1])).grant("m")


async def test_random_nodes_that_come_and_go_never_pass_the_share(tmp_path: Path, clock: Clock) -> None:
    rng = random.Random(7)
    nodes = [FileCoordinator(tmp_path, f"n{number}", 0.30, clock.wall) for number in range(20)]
    held: dict[int, float] = {}
    for _ in range(600):
        clock.now += rng.random() * 3
        held = {number: until for number, until in held.items() if clock.wall() < until}
        number = rng.randrange(20)
        choice = rng.random()
        if choice < 0.4:
            await nodes[number].alive(["m"])
        elif choice < 0.8:
            answer = await nodes[number].grant("m")
            held.pop(number, None)
            if answer.granted:
                held[number] = clock.wall() + LEASE_SECONDS
                assert answer.ejected is not None
                assert answer.fleet is not None
                assert len(held) <= answer.ejected <= 0.30 * answer.fleet
        else:
            await nodes[number].release("m")
            held.pop(number, None)
