"""The front end on vLLM's real classes: what is wrapped, what travels, and that nothing of the client's changes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import fastapi
import pytest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.lora.request import LoRARequest
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest, async_llm

from engine_hooks.core.marks import MARKS_KEY, TOKEN_VARIABLE
from engine_hooks.frontend import hook
from engine_hooks.frontend.admission.middleware import AdmissionMiddleware
from engine_hooks.frontend.identify import Claims
from engine_hooks.frontend.middleware import CLAIMS, TenantMiddleware
from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.guard import Guard
from engine_hooks.settings import Settings

SETTINGS = TenantSettings(sources=("user", "cache_salt", "lora"))


class Engine:
    """What the wrapped method is called with, in the place of the engine behind it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(TOKEN_VARIABLE, "token")
        self.calls: list[inspect.BoundArguments] = []
        self.guard = Guard()
        signature = inspect.signature(async_llm.AsyncLLM.add_request)

        async def add_request(*args: Any, **kwargs: Any) -> None:
            self.calls.append(signature.bind(*args, **kwargs))

        add_request.__signature__ = signature  # type: ignore[attr-defined]
        self.wrapped = hook._marking(add_request, SETTINGS, self.guard)

    def add(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        asyncio.run(self.wrapped(None, *args, **kwargs))
        assert not self.guard.errors
        return self.calls[-1].arguments


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(monkeypatch)


@pytest.fixture
def bob() -> Iterator[None]:
    token = CLAIMS.set(Claims(trusted=True, front={"user": "bob"}, session="talk"))
    yield
    CLAIMS.reset(token)


def carried(tenant: str, session: str = "") -> dict[str, str]:
    return {"tenant": tenant, "session": session, "token": "token"}


@pytest.mark.usefixtures("bob")
@pytest.mark.parametrize("by_name", [False, True])
def test_marks_travel_on_a_copy(engine: Engine, by_name: bool) -> None:
    own = {"mine": 1}
    params = SamplingParams(extra_args=own, stop=["x"])
    seen = engine.add("id", "hello", **{"params": params}) if by_name else engine.add("id", "hello", params)
    assert seen["params"].extra_args == {"mine": 1, MARKS_KEY: carried("bob", "talk")}
    assert (seen["params"].stop, seen["request_id"], seen["prompt"]) == (["x"], "id", "hello")
    assert (own, params.extra_args) == ({"mine": 1}, {"mine": 1})


@pytest.mark.parametrize("forged", ["acme", carried("acme"), ["acme"]])
def test_what_a_client_puts_in_their_place_is_taken_out(engine: Engine, forged: Any) -> None:
    seen = engine.add("id", "hello", SamplingParams(extra_args={MARKS_KEY: forged}))
    assert seen["params"].extra_args == {MARKS_KEY: carried("")}


def test_the_requests_own_values_name_a_tenant_too(engine: Engine) -> None:
    lora = LoRARequest("tuned", 1, "/nowhere")
    seen = engine.add("id", "hello", SamplingParams(), lora_request=lora)
    assert seen["params"].extra_args[MARKS_KEY]["tenant"] == "tuned"
    prompt = {"type": "token", "prompt_token_ids": [1], "cache_salt": "pepper"}
    seen = engine.add("id", prompt, SamplingParams(), lora_request=lora)
    assert seen["params"].extra_args[MARKS_KEY]["tenant"].startswith("salt-")
    assert prompt == {"type": "token", "prompt_token_ids": [1], "cache_salt": "pepper"}


@pytest.mark.usefixtures("bob")
def test_a_request_that_is_made_already_is_marked_itself(engine: Engine) -> None:
    params = SamplingParams()
    made = EngineCoreRequest("id", [1], None, params, None, 0.0, None, None, None)
    seen = engine.add("id", made, params)
    assert seen["prompt"].sampling_params.extra_args == {MARKS_KEY: carried("bob", "talk")}
    assert params.extra_args is None


@pytest.mark.usefixtures("bob")
def test_parameters_that_carry_nothing_pass(engine: Engine) -> None:
    params = PoolingParams()
    assert engine.add("id", "hello", params)["params"] is params


def test_an_error_of_ours_lets_the_request_through(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "with_marks", lambda *_: 1 / 0)
    asyncio.run(engine.wrapped(None, "id", "hello", SamplingParams()))
    assert len(engine.calls) == 1
    assert engine.guard.errors == {"front_end": 1}


# -- where it is put --------------------------------------------------------------------------------------------


@pytest.fixture
def unhooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what is wrapped unwrapped again after the test."""
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    for owner, name in (
        (fastapi.FastAPI, "build_middleware_stack"),
        (async_llm.AsyncLLM, "add_request"),
        (CompletionRequest, "to_sampling_params"),
        (CompletionRequest, "to_beam_search_params"),
        (ProxyHeadersMiddleware, "__call__"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setenv(TOKEN_VARIABLE, "token")


@pytest.mark.usefixtures("unhooked")
def test_ours_is_the_innermost_middleware_and_is_put_in_once() -> None:
    from vllm.entrypoints.serve.middleware.authenticate import AuthenticationMiddleware

    for _ in range(2):
        hook.install(Settings.from_environment({}))
    app = fastapi.FastAPI()
    app.add_middleware(AuthenticationMiddleware, tokens=["secret1"])
    for _ in range(2):
        app.build_middleware_stack()
    ours = [TenantMiddleware, AdmissionMiddleware]
    assert [middleware.cls for middleware in app.user_middleware] == [AuthenticationMiddleware, *ours]
    assert inspect.iscoroutinefunction(inspect.unwrap(async_llm.AsyncLLM.add_request))
    assert not hasattr(inspect.unwrap(async_llm.AsyncLLM.add_request), "__wrapped__")
    verify = app.user_middleware[1].kwargs["verify"]
    scope = {"type": "http", "headers": [(b"authorization", b"Bearer secret1")]}
    assert verify(scope)
    assert not verify({**scope, "headers": [(b"authorization", b"Bearer guess")]})
    assert not verify({**scope, "headers": []})


@pytest.mark.usefixtures("unhooked")
def test_the_parsed_body_hands_its_user_in() -> None:
    hook.install(Settings.from_environment({}))
    fastapi.FastAPI().build_middleware_stack()
    request = CompletionRequest(model="m", prompt="hello", user="bob")
    before = request.model_dump()
    for trusted, front in ((True, {"user": "bob"}), (False, {})):
        claims = Claims(trusted=trusted)
        token = CLAIMS.set(claims)
        params = request.to_sampling_params(16, {})
        CLAIMS.reset(token)
        assert claims.front == front
        assert params.extra_args is None or MARKS_KEY not in params.extra_args
    assert request.model_dump() == before
    assert request.to_sampling_params(16, {}).max_tokens == 16  # outside of any request


@pytest.mark.usefixtures("unhooked")
def test_an_application_without_authentication_has_nothing_to_ask() -> None:
    hook.install(Settings.from_environment({}))
    app = fastapi.FastAPI()
    app.build_middleware_stack()
    ours, _admission = app.user_middleware
    assert ours.kwargs["verify"] is None


@pytest.mark.usefixtures("unhooked")
def test_another_programs_application_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    hook.install(Settings.from_environment({}))
    monkeypatch.setattr(hook.sys, "modules", {k: v for k, v in hook.sys.modules.items() if "async_llm" not in k})
    app = fastapi.FastAPI()
    app.build_middleware_stack()
    assert app.user_middleware == []


def test_a_process_without_fastapi_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "sys", SimpleNamespace(modules={}))
    monkeypatch.setenv(TOKEN_VARIABLE, "token")
    before = fastapi.FastAPI.build_middleware_stack
    hook.install(Settings.from_environment({}))
    assert fastapi.FastAPI.build_middleware_stack is before
