"""Sessions on vLLM's real scheduler: how they last and end; and whose marks on a request are believed."""

from __future__ import annotations

import pytest
from vllm.lora.request import LoRARequest

from engine_hooks.core import marks, sessions
from engine_hooks.core.marks import MARKS_KEY, TOKEN_VARIABLE, Marks, marks_of
from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.names import short_hash
from tests.bed.scheduler import step
from tests.engine.tenants import Tenants, abort, make, rows, watch

# -- sessions ---------------------------------------------------------------------------------------------------


def talk(watched: Tenants, number: int, seconds: float, tenant: str = "acme", session: str = "talk") -> None:
    """One turn that lasts ``seconds``."""
    watched.scheduler.add_request(make(number, tenant, session, max_tokens=2))
    step(watched.scheduler)
    watched.now += seconds
    step(watched.scheduler)
    assert f"r{number}" not in watched.scheduler.requests


def test_turns_rests_and_lifetimes() -> None:
    watched = watch()
    for number, rest in enumerate([20.0, 200.0, 0.0]):
        talk(watched, number, 3.0)
        watched.now += rest
    acme = rows(watched)["acme"]
    assert (acme.sessions, acme.requests_total) == (1, 3)
    assert acme.session_idle_seconds.sum == 220.0
    assert sum(acme.session_idle_seconds.counts) == 2
    assert sum(acme.session_lifetime_seconds.counts) == 0
    turns = watched.observer.sessions.turns("acme", "talk")
    assert [(turn.start, turn.tokens, turn.request) for turn in turns] == [
        (23.0, 102, short_hash("r1")),
        (226.0, 102, short_hash("r2")),
    ]
    assert all(turn.blocks == 7 for turn in turns)
    watched.now += sessions.OVER_SECONDS
    acme = rows(watched)["acme"]
    assert acme.sessions == 0
    assert (sum(acme.session_lifetime_seconds.counts), acme.session_lifetime_seconds.sum) == (1, 229.0)
    assert watched.observer.sessions.turns("acme", "talk") == ()


def test_a_session_with_a_request_is_never_over() -> None:
    watched = watch()
    watched.scheduler.add_request(make(0, "acme", "talk", max_tokens=500))
    watched.now += 10 * sessions.OVER_SECONDS
    assert rows(watched)["acme"].sessions == 1
    watched.scheduler.add_request(make(1, "acme", "talk", max_tokens=500))  # a second one beside it is no rest
    abort(watched, 0)
    watched.now += 10 * sessions.OVER_SECONDS
    acme = rows(watched)["acme"]
    assert (acme.sessions, sum(acme.session_idle_seconds.counts)) == (1, 0)


def test_the_same_session_name_of_two_tenants_is_two_sessions() -> None:
    watched = watch()
    talk(watched, 0, 1.0, "acme")
    talk(watched, 1, 1.0, "umbrella")
    assert {name: row.sessions for name, row in rows(watched).items()} == {"acme": 1, "umbrella": 1}


def test_sessions_are_bounded_and_the_longest_at_rest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_IDLE", 3)
    watched = watch()
    for number in range(5):
        talk(watched, number, 1.0, session=f"s{number}")
    acme = rows(watched)["acme"]
    assert (acme.sessions, sum(acme.session_lifetime_seconds.counts)) == (3, 2)
    assert [bool(watched.observer.sessions.turns("acme", f"s{n}")) for n in range(5)] == [
        False,
        False,
        True,
        True,
        True,
    ]


# -- marks ------------------------------------------------------------------------------------------------------


def test_marks_without_the_engines_token_are_a_clients_and_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    request = make(0, "acme", "talk")
    assert marks_of(request) == Marks("acme", "talk")
    for forged in ({"tenant": "acme", "session": "talk"}, {"tenant": "acme", "token": "guess"}, "acme", ["acme"], None):
        request.sampling_params.extra_args = {MARKS_KEY: forged}
        assert marks_of(request) == Marks()


def test_without_a_front_end_the_request_itself_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    request = make(0)
    request.cache_salt = "pepper"
    request.session_id = "talk"
    assert marks_of(request) == Marks(f"salt-{short_hash('pepper')}", "talk")
    request.lora_request = LoRARequest("tuned", 1, "/nowhere")
    monkeypatch.setattr(marks, "_settings", TenantSettings(sources=("lora", "cache_salt")))
    assert marks_of(request).tenant == "tuned"
    monkeypatch.setattr(marks, "_settings", TenantSettings(sources=("user",)))
    assert marks_of(request).tenant == "none"


def test_a_session_of_the_request_is_kept_beside_a_tenant_of_the_front_end() -> None:
    request = make(0, "acme")
    request.session_id = "talk"
    assert marks_of(request) == Marks("acme", "talk")
