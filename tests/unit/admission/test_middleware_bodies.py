"""What bodies say, and what becomes of them: sizes, bounds, encodings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine_hooks.frontend.admission import body as bodies
from tests.unit.admission.asking import CHAT, COMPLETIONS, DECISION, Bed, completion, run


@pytest.mark.parametrize(
    ("arguments", "body", "path", "status", "code"),
    [
        ({"prompt_limit": 50}, completion(51), COMPLETIONS, 400, "kvtide_prompt_limit"),
        ({"pool_share": 0.5}, completion(64, 800), COMPLETIONS, 400, "kvtide_pool_share"),
        ({"max_prompt": 50}, {"messages": [{"content": "x" * 400}]}, CHAT, 429, "kvtide_long_prompt"),
        ({"concurrency": {"acme": 2}}, {"prompt": ["a", "b", "c"]}, COMPLETIONS, 429, "kvtide_concurrency"),
        ({"concurrency": {"acme": 2}}, completion(1, n=3), COMPLETIONS, 429, "kvtide_concurrency"),
        ({"default_long_sessions": 0, "long_tokens": 9}, completion(10), COMPLETIONS, 429, "kvtide_long_sessions"),
        ({"reserved": {"gold": 99}}, completion(16), COMPLETIONS, 429, "kvtide_reserved"),
    ],
)
def test_refusals_by_size_and_use(arguments: Any, body: Any, path: str, status: int, code: str) -> None:
    bed = Bed()
    bed.order(**arguments)
    answer = run(lambda: bed.post(body, path))
    assert (answer.status, answer.error["code"]) == (status, code)
    if status == 400:
        assert "exceeds limit" in answer.error["message"]
        assert "retry-after" not in answer.headers
    assert run(lambda: bed.post(completion(1, 1))).status == 200


def test_a_body_that_is_too_long_is_refused_and_one_that_is_not_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed()
    bed.order()
    sent = json.dumps(completion(10)).encode()
    monkeypatch.setattr(bodies.Body.read, "__defaults__", (len(sent),))
    assert run(lambda: bed.post(sent, pieces=3)).status == 200
    answer = run(lambda: bed.post(sent + b" ", pieces=3))
    assert (answer.status, answer.error["code"]) == (413, "kvtide_body_size")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff"])
def test_what_the_engine_will_refuse_reaches_it(body: bytes) -> None:
    bed = Bed()
    bed.order(default_quota=0)
    assert run(lambda: bed.post(body)).status == 200
    assert bed.app.bodies == [body]


def test_a_missing_length_is_bounded_and_the_rest_of_the_body_stays() -> None:
    bed = Bed()
    bed.order(max_tokens=64)
    sent = b'{"messages": [{"role": "user", "content": "h\xc3\xa9"}],\n "seed": 12345678901234567890123 }\n'
    answer = run(lambda: bed.post(sent, CHAT))
    (got,) = bed.app.bodies
    assert got == sent.rstrip()[:-1] + b',"max_tokens":64}'
    assert json.loads(got) == {**json.loads(sent), "max_tokens": 64}
    assert answer.headers[DECISION] == "admitted; max_tokens=64"
    assert dict(bed.app.scopes[0]["headers"])[b"content-length"] == str(len(got)).encode()
    given = json.dumps({"messages": [], "max_tokens": 900}).encode()
    run(lambda: bed.post(given, CHAT))
    assert bed.app.bodies[-1] == given


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_bound_gets_into_any_encoding(encoding: str) -> None:
    bed = Bed()
    bed.order(max_tokens=64)
    run(lambda: bed.post(json.dumps({"messages": [{"content": "hé"}]}).encode(encoding), CHAT))
    assert json.loads(bed.app.bodies[0]) == {"messages": [{"content": "hé"}], "max_tokens": 64}
