"""The agent acts on a real engine, and dies, knows nothing, is held back: what the engine is like afterwards.

One engine for all of it; each test has agents and a journal of its own.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent.actions.types import Action
from agent.errors import KvtideError
from tests.bed import processes
from tests.bed.acting import BLOCKS, PATIENCE_SECONDS, Node
from tests.bed.load import LoadPlan, Tenant
from tests.bed.orders import Orders

pytestmark = pytest.mark.timeout(900)  # for the start of the engine on a machine with much else to do

LEAST_LEASE_SECONDS = 8.0
LONGEST_OUTAGE_SECONDS = 300.0
ATTEMPTS = 5
# Every lever that leaves something in force, and what is asked of it.
HELD: dict[str, dict[str, Any]] = {
    "watermark": {"blocks": 30},
    "batch_tokens": {"factor": 0.5},
    "hold_hot": {},
    "preempt": {"requests": 1, "cap": True},
    "active_cap": {"requests": 1},
    "enforce_admission": {"prompt_limit": 100},
    "admission": {"concurrency": {"acme": 0}},
    "pause": {},
}
KNOBS = ("watermark", "batch_tokens", "active_cap")  # a try of these says what the engine has now
OVER_LIMIT = 120
PERSONS = "actions: {{mode: observe, lease_seconds: {lease}}}\n"
DRY = "actions: {mode: dry-run, breaches: 2, cooldown_seconds: 5}\n"
BUDGET = 2
FLAPPING = f"""
actions: {{mode: enforce, breaches: 2, cooldown_seconds: 1, budget_per_hour: {BUDGET}, ladder: [reclaim_orphans]}}
"""
QUOTA_RATIO = 0.15  # less than one request of the crowd needs
SURGE = f"""
actions: {{mode: enforce, breaches: 1, cooldown_seconds: 1, ladder: [quotas], calm_seconds: 600}}
admission: {{quota_ratio: {QUOTA_RATIO}}}
use: {{warn_ratio: 0.5, harm_seconds: 0}}
"""
CROWD = LoadPlan(
    requests=400,
    seconds=240.0,
    concurrency=10,
    tenants=(Tenant("acme", prompt=(1500, 1600), output=(200, 300)),),
)


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[Node]:
    node = Node(folder / "acting")
    try:
        node.engine.wait_ready(600.0)
        yield node
    finally:
        node.close()


def knobs_of(orders: Orders) -> dict[str, Any]:
    """What the engine has now, by what it answers to a try."""
    found = {}
    for lever in KNOBS:
        result = orders.order("try", lever, **HELD[lever])
        assert result.code == "would", result
        found[lever] = {name: value for name, value in result.effect.items() if name.startswith("before_")}
    return found


class Streams:
    """Requests that run for as long as the ``with`` lasts: there must be somebody to preempt."""

    def __init__(self, node: Node, count: int, tenant: str = "globex") -> None:
        self._node, self._count, self._tenant = node, count, tenant
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._read) for _ in range(count)]

    def _read(self) -> None:
        body = {"model": "tiny", "prompt": [5] * 20, "max_tokens": 1900, "ignore_eos": True, "stream": True}
        body["user"] = self._tenant
        with httpx2.Client(trust_env=False, timeout=120.0) as client:
            while not self._stop.is_set():
                with client.stream("POST", f"{self._node.engine.url}/v1/completions", json=body) as response:
                    for _ in response.iter_bytes():
                        if self._stop.is_set():
                            return

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()
        self._node.agent.wait(lambda: (self._node.agent.engine()["running"] or 0) >= self._count, PATIENCE_SECONDS)

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def kill_amid(node: Node, lever: str) -> str:
    """Order a lever, and end the agent by SIGKILL between the order and the answer; return the action's id.

    The process that obeys is stopped meanwhile, so that the order waits at it and is obeyed when the agent is no more.
    One that is stopped for some seconds is silent, and gets no orders: on a busy machine that may come first, and it is
    tried again.
    """
    obeys = node.engine.pid if lever == "admission" else node.engine.core_pid()
    errors: list[Exception] = []
    for _ in range(ATTEMPTS):
        node.agent.wait(lambda: all_up(node), PATIENCE_SECONDS)
        if found := ordered_amid(node, lever, obeys, errors):
            return found
    raise AssertionError((lever, errors))


def all_up(node: Node) -> bool:
    """Whether the agent hears the engine and all processes of it."""
    engine = node.agent.engine()
    return engine["phase"] == "live" and all(each["up"] for each in engine["members"])


def ordered_amid(node: Node, lever: str, obeys: int, errors: list[Exception]) -> str:
    """Do so once; return the action's id, or nothing where the order was refused. Then the agent lives."""
    known = {each.id for each in node.journal()[0]}
    before = len(errors)

    def order() -> None:
        try:
            node.order(lever, **HELD[lever])
        except KvtideError as error:  # the agent does not live to answer
            errors.append(error)

    thread = threading.Thread(target=order)
    os.kill(obeys, signal.SIGSTOP)
    try:
        thread.start()
        found: list[str] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not found and thread.is_alive() and time.monotonic() < deadline:
            found = [each.id for each in node.journal()[0] if each.id not in known and each.phase == "sent"]
        node.agent.state()  # it is written just before it is sent: a loop that has turned once more has sent it
        if found:
            node.agent.kill()
    finally:
        os.kill(obeys, signal.SIGCONT)
    thread.join()
    assert len(errors) > before, f"{lever}: it was answered"
    return found[0] if found else ""


def actions_of(node: Node) -> dict[str, dict[str, Any]]:
    """The actions that the agent tells of, by id."""
    return {each["id"]: each for each in node.agent.state()["actions"]["recent"]}


def test_an_agent_killed_amid_each_lever_is_followed_or_all_of_it_ends(node: Node) -> None:
    with Orders(node.folder) as orders:
        orders.wait_live(PATIENCE_SECONDS)
        normal = knobs_of(orders)
    given: list[str] = []
    began = time.monotonic()
    with node.acting("killed", PERSONS.format(lease=LEAST_LEASE_SECONDS)):
        # Leases must outlive the time without an agent, which on a busy machine is long.
        lease = LEAST_LEASE_SECONDS + 8 * (time.monotonic() - began)
        node.adopt(PERSONS.format(lease=lease))
        for lever in HELD:
            if lever == "preempt":
                with Streams(node, 4):
                    given.append(kill_amid(node, lever))
                    node.start_agent("killed")
            else:
                given.append(kill_amid(node, lever))
                if lever == list(HELD)[-1]:
                    break
                node.start_agent("killed")
            # The next agent makes none of them anew: it takes over what the engine has, by the name that it has.
            node.agent.wait(
                lambda: {id: actions_of(node)[id]["phase"] for id in given} == dict.fromkeys(given, "in_force"),
                lease + PATIENCE_SECONDS,
            )
            assert "handed over" in actions_of(node)[given[-1]]["reason"]

        # No agent any more: all is in force until the leases run out, and then none of it.
        with Orders(node.folder) as orders:
            orders.wait_live(PATIENCE_SECONDS)

            def held() -> set[str]:
                rows = [*orders.engine().in_force, *(row for each in orders.frontends() for row in each.in_force)]
                return {row.action for row in rows}

            orders.wait(lambda: held() == set(given), PATIENCE_SECONDS)
            assert node.ask("acme").status_code == 429
            orders.wait(lambda: not held(), lease + PATIENCE_SECONDS)
            assert {result.action for _, result in orders.unasked if result.code == "expired"} == set(given)
            assert knobs_of(orders) == normal
            assert orders.engine().hooks is not None
            assert orders.engine().hooks.errors == {}
        assert [node.ask(tenant, OVER_LIMIT).status_code for tenant in ("acme", "globex")] == [200, 200]

        node.start_agent("killed")
        node.agent.wait(lambda: not any(each.phase in ("in_force", "sent") for each in node.journal()[0]), 60.0)
        actions, _ = node.journal()
        assert {each.id for each in actions} == set(given)  # none is lost, none was made twice
        assert [each.phase for each in actions if each.id == given[-1]] == ["lost"]  # its answer was never heard
        assert {each.phase for each in actions if each.id != given[-1]} == {"expired"}
        for each in given[:-1]:
            assert node.phases(each) == ["intent", "sent", "in_force", "expired"], node.phases(each)


def tried_of(node: Node) -> list[Action]:
    """The dry-runs that have ended, by the journal, newest first."""
    ended = (each for each in node.journal()[0] if each.phase != "intent")
    return [each for each in ended if each.plan.lever == "reclaim_orphans"]


def test_a_dry_run_changes_nothing_and_old_numbers_are_refused(node: Node) -> None:
    with Orders(node.folder) as orders:
        orders.wait_live(PATIENCE_SECONDS)
        knobs = knobs_of(orders)
    with node.acting("dry", DRY) as agent:
        texts = node.texts()
        agent.wait(lambda: node.orphaned() is not None, PATIENCE_SECONDS)
        before = node.orphaned() or 0
        node.leak(5)
        leaked = before + 5
        agent.wait(lambda: node.orphaned() == leaked, PATIENCE_SECONDS)

        def whole() -> list[Action]:
            """Tries of all that leaked: the first may come when only some of it is old enough."""
            return [each for each in tried_of(node) if each.outcomes and each.outcomes[0].effect["blocks"] == leaked]

        agent.wait(lambda: bool(whole()), PATIENCE_SECONDS)
        tried = tried_of(node)
        assert {(each.mode, each.phase, each.by, each.plan.kind) for each in tried} == {
            ("dry-run", "would", "agent", "kv_orphan")
        }
        last = whole()[0]
        assert last.plan.evidence["orphaned_blocks"] == leaked
        assert node.phases(last.id) == ["intent", "would"]
        told = node.kvtide("explain", last.id)
        assert "mode dry-run" in told
        assert f"blocks {leaked}" in told
        # And yet nothing has happened.
        assert node.orphaned() == leaked
        assert agent.engine()["in_force"] == []
        assert node.texts() == texts

        # The engine stops; what is known of it grows old, and what would be done is refused, aloud.
        core = node.engine.core_pid()
        os.kill(core, signal.SIGSTOP)
        try:
            agent.wait(lambda: any(each.code == "stale" for each in node.journal()[1]), PATIENCE_SECONDS)
            (refused,) = (each for each in node.journal()[1] if each.code == "stale")
            assert (refused.lever, refused.kind) == ("reclaim_orphans", "kv_orphan")
            assert "reclaim_orphans on tiny for kv_orphan: stale: " in node.kvtide("list")
            # A person's order is no better founded.
            assert "stale: " in node.kvtide("order", "watermark", "tiny", "blocks=9", code=1)
            assert node.journal()[1][0].kind == "person"
        finally:
            os.kill(core, signal.SIGCONT)
        agent.wait_live(PATIENCE_SECONDS)
    with Orders(node.folder) as orders:
        orders.wait_live(PATIENCE_SECONDS)
        assert knobs_of(orders) == knobs
        assert orders.engine().pool is not None
        assert orders.engine().pool.orphaned == leaked


def test_a_flapping_breach_uses_up_the_budget_and_a_person_gives_a_new_one(node: Node) -> None:
    with node.acting("flapping", FLAPPING) as agent:

        def done() -> list[dict[str, Any]]:
            return [each for each in agent.state()["actions"]["recent"] if each["mode"] == "enforce"]

        def settled() -> bool:
            """Whether the latest has helped, and nothing is leaked any more."""
            return (done()[0]["phase"], done()[0]["verified"]) == ("done", "helped") and node.orphaned() == 0

        # What the test before has left is the first breach; a second one beside it would be an action more.
        agent.wait(lambda: node.orphaned() is not None, PATIENCE_SECONDS)
        for number in range(BUDGET):
            if number or not node.orphaned():
                node.leak(4)
            agent.wait(lambda number=number: len(done()) > number and settled(), PATIENCE_SECONDS)
            assert len(done()) == number + 1
        node.leak(4)
        agent.wait(lambda: agent.state()["actions"]["breaker"]["open"], PATIENCE_SECONDS)
        assert node.orphaned() == 4
        assert len(done()) == BUDGET
        assert "The breaker is open" in node.kvtide("list")
        # The breach goes on, and what is refused for the breaker follows it.
        agent.wait(lambda: {each.code for each in node.journal()[1]} >= {"budget", "breaker"}, PATIENCE_SECONDS)
        assert agent.metrics()["kvtide_breaker_open"] == 1
        assert node.kvtide("close-breaker").strip() == "closed"
        agent.wait(lambda: len(done()) > BUDGET and settled(), PATIENCE_SECONDS)
        assert len(done()) == BUDGET + 1
        pool = agent.pool()
        assert pool is not None
        assert (pool["capacity"], pool["over_freed"], pool["exact"]) == (BLOCKS - 1, 0, True)


def test_a_tenant_is_held_back_by_a_person_and_by_the_agent_itself(node: Node) -> None:
    with node.acting("held", SURGE) as agent:

        def own() -> list[dict[str, Any]]:
            found = actions_of(node).values()
            return [each for each in found if each["by"] == "agent" and each["phase"] == "in_force"]

        # By a person, now: fewer at once than run already.
        assert "in force" in node.kvtide("order", "admission", "tiny", "concurrency.acme=2")
        with Streams(node, 2, "acme"):
            refused = node.ask("acme")
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "kvtide_concurrency")
            assert "acme" in refused.json()["error"]["message"]
            assert node.ask("globex").status_code == 200
            lowered = node.order("admission", concurrency={"acme": 1})  # no command: the streams must outlast it
            assert lowered["phase"] == "done", lowered
            assert node.ask("acme").status_code == 429
            agent.wait(lambda: agent.engine()["running"] == 2, PATIENCE_SECONDS)  # what runs goes on
        (held,) = (each["id"] for each in actions_of(node).values() if each["phase"] == "in_force")
        node.kvtide("undo", held)
        assert node.ask("acme").status_code == 200

        # By the agent: the tenant fills the pool, and gets a quota.
        with node.load(CROWD) as crowd:
            agent.wait(lambda: bool(own()), PATIENCE_SECONDS)
            plan = own()[0]["plan"]
            assert (plan["lever"], plan["rung"], plan["subject"]["tenant"]) == ("admission", "quotas", "acme")
            assert plan["arguments"]["quotas"]["acme"] == int(QUOTA_RATIO * (BLOCKS - 1))
        assert all(error.startswith("429:") and "acme" in error and "kvtide_quota" in error for error in crowd.errors)
        # What was cut counts until the server has seen that its client is gone.
        agent.wait(lambda: node.ask("acme").status_code == 200, PATIENCE_SECONDS)  # small ones fit in
        refused = node.ask("acme", prompt=1500)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "kvtide_quota")
        assert "acme" in refused.json()["error"]["message"]
        assert node.ask("globex").status_code == 200
        node.kvtide("off", "the test is over")
        agent.wait(lambda: not own(), PATIENCE_SECONDS)
        assert node.ask("acme", prompt=1500).status_code == 200


def test_after_a_real_failure_of_memory_it_serves_again_within_minutes(node: Node) -> None:
    """Restarted as a service manager does it: once the server has ended, it is started anew."""
    with node.acting("restarted", PERSONS.format(lease=LEAST_LEASE_SECONDS)) as agent:
        before, said = agent.engine()["instance"], node.engine.log.stat().st_size
        for pid in node.engine.pids():
            if processes.title(pid).startswith("VLLM::"):  # the core and its worker get not a page more
                resource.prlimit(pid, resource.RLIMIT_AS, (1 << 20, 1 << 20))
        failed = time.monotonic()
        with node.load(CROWD):
            agent.wait(lambda: not node.engine.core_pids(), PATIENCE_SECONDS)
        words = node.engine.log.read_bytes()[said:].decode(errors="replace")
        assert re.search("can(no|')t allocate|not enough memory|MemoryError|bad_alloc", words), node.engine.log_tail()
        node.engine.stop()
        node.engine = node.start_engine()
        node.engine.wait_ready(LONGEST_OUTAGE_SECONDS)
        assert node.ask().status_code == 200
        print(f"\nfrom the failure of memory to an answer: {time.monotonic() - failed:.1f} s")
        agent.wait_live(PATIENCE_SECONDS)
        assert agent.engine()["instance"] != before
