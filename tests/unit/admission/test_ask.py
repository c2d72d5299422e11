"""What is read from a body, and how large the request is taken to be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_hooks.frontend.admission.ask import MESSAGE_TOKENS, ROUTES, Prompt, read_ask
from engine_hooks.frontend.admission.size import Pool, Size, TokenRatio, size_of
from tests.unit.admission.asking import CHAT, COMPLETIONS, POOL

TEXT = "0123456789" * 4


def ask(body: dict[str, Any], path: str = COMPLETIONS) -> Any:
    return read_ask(path, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("hello", [Prompt(text_bytes=5)]),
        ("häl", [Prompt(text_bytes=4)]),
        ([1, 2, 3], [Prompt(tokens=3)]),
        ([[1, 2], [3]], [Prompt(tokens=2), Prompt(tokens=1)]),
        (["ab", "c"], [Prompt(text_bytes=2), Prompt(text_bytes=1)]),
        ([], []),
        # odd, and read all the same
        ([1.0, 2.0], [Prompt(tokens=2)]),
        (["ab", 3.5], [Prompt(text_bytes=2), Prompt()]),
        ({"text": "abc"}, [Prompt(text_bytes=3)]),
    ],
)
def test_prompts_of_a_completion(prompt: Any, prompts: list[Prompt]) -> None:
    assert list(ask({"prompt": prompt}).prompts) == prompts


def test_a_chat_counts_texts_and_not_images() -> None:
    parts = [{"type": "text", "text": TEXT}, {"type": "image_url", "image_url": {"url": "data:" + "x" * 5000}}]
    messages = [{"role": "system", "content": TEXT}, {"role": "user", "content": parts}, {"role": "assistant"}]
    assert ask({"messages": messages}, CHAT).prompts == (Prompt(text_bytes=80, tokens=3 * MESSAGE_TOKENS),)
    odd = ask({"messages": messages, "n": 1.0}, CHAT).prompts
    assert [prompt.text_bytes for prompt in odd] == [80 + len("systemuserassistanttextimage_url")]


def test_tools_and_calls_count() -> None:
    with_tools = ask({"messages": [{"content": "x", "tool_calls": [{"a": TEXT}]}], "tools": [{"b": TEXT}]}, CHAT)
    assert with_tools.prompts[0].text_bytes > 2 * len(TEXT)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": TEXT}),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"text": TEXT}]}], "instructions": TEXT}),
        ("/v1/messages", {"messages": [{"role": "user", "content": TEXT}], "system": [{"text": TEXT}]}),
        ("/v1/chat/completions/batch", {"messages": [[{"content": TEXT}], [{"content": TEXT}]]}),
        ("/invocations", {"prompt": TEXT}),
        ("/cohere/v2/chat", {"messages": [{"content": TEXT}]}),
    ],
)
def test_each_route_has_its_text_counted(path: str, body: dict[str, Any]) -> None:
    found = ask(body, path)
    assert sum(prompt.text_bytes for prompt in found.prompts) >= json.dumps(body).count(TEXT) * len(TEXT)


def test_tokens_in_tokens_out() -> None:
    found = ask({"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 5, "n": 2}}, "/inference/v1/generate")
    assert (found.prompts, found.max_tokens, found.choices) == ((Prompt(tokens=3),), 5, 2)


@pytest.mark.parametrize(
    ("path", "body", "limit", "given_tokens"),
    [
        (COMPLETIONS, {"max_tokens": 5}, "max_tokens", 5),
        (CHAT, {"max_tokens": 5, "max_completion_tokens": 9}, "max_completion_tokens", 9),
        (CHAT, {"max_tokens": "5"}, "max_tokens", 5),  # a lax validator takes it
        (CHAT, {"max_tokens": 5.0}, "max_tokens", 5),
        (CHAT, {"max_tokens": 0}, "max_tokens", None),
        (CHAT, {"max_tokens": None}, "max_tokens", None),
        ("/v1/responses", {"max_output_tokens": 5, "max_tokens": 9}, "max_output_tokens", 5),
    ],
)
def test_where_the_length_is_said(path: str, body: dict[str, Any], limit: str, given_tokens: int | None) -> None:
    found = ask(body, path)
    assert (found.limit, found.max_tokens) == (limit, given_tokens)


def test_of_two_keys_with_one_name_the_last_counts() -> None:
    found = read_ask(COMPLETIONS, b'{"max_tokens":1,"prompt":[1],"max_tokens":900}')
    assert found is not None
    assert found.max_tokens == 900


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_any_encoding_that_json_knows_is_read(encoding: str) -> None:
    found = read_ask(COMPLETIONS, json.dumps({"prompt": [1, 2], "max_tokens": 3}).encode(encoding))
    assert found is not None
    assert (found.prompts, found.max_tokens) == ((Prompt(tokens=2),), 3)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_object_is_the_engines_to_refuse(body: bytes) -> None:
    assert read_ask(COMPLETIONS, body) is None


def test_numbers_and_text_that_only_python_takes_are_no_way_round() -> None:
    found = read_ask(COMPLETIONS, b'{"prompt": "ab\\ud800", "temperature": NaN, "max_tokens": 7}')
    assert found is not None
    assert (found.prompts[0].text_bytes, found.max_tokens) == (3, 7)


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=20,
)
_keys = ["prompt", "messages", "input", "max_tokens", "n", "model", "user", "cache_salt", "sampling_params", "tools"]


@given(st.dictionaries(st.sampled_from(_keys), _json), st.sampled_from(sorted(ROUTES)))
def test_any_object_has_a_size(body: dict[str, Any], path: str) -> None:
    found = read_ask(path, json.dumps(body).encode())
    assert found is not None
    size = size_of(found, TokenRatio(), POOL, 64, 50)
    assert size.blocks >= size.most_blocks >= 0
    assert size.requests >= 1


# -- sizes ------------------------------------------------------------------------------------------------------


def sized(body: dict[str, Any], path: str = COMPLETIONS, most: int | None = None, share: int | None = None) -> Size:
    return size_of(ask(body, path), TokenRatio(), POOL, most, share)


def test_blocks_are_rounded_up_for_each_prompt_and_choice() -> None:
    assert sized({"prompt": [1] * 17, "max_tokens": 16}) == Size(17, 3, 1, 3)
    assert sized({"prompt": [[1] * 17, [1]], "max_tokens": 16, "n": 2}) == Size(17, (3 + 2) * 2, 4, 3)


def test_no_request_is_longer_than_the_context() -> None:
    assert sized({"prompt": [1], "max_tokens": 10**9}).blocks == POOL.model_tokens // POOL.block_tokens


@pytest.mark.parametrize(
    ("path", "body", "most", "share", "bound"),
    [
        (COMPLETIONS, {}, None, None, None),  # vLLM generates 16
        (COMPLETIONS, {}, 64, None, None),
        (COMPLETIONS, {}, 8, None, 8),
        (COMPLETIONS, {"max_tokens": 0}, 64, None, 64),
        (COMPLETIONS, {"max_tokens": 0, "echo": True}, 64, None, None),
        (COMPLETIONS, {"max_tokens": 500}, 64, None, None),
        (CHAT, {}, None, None, None),
        (CHAT, {}, 64, None, 64),
        (CHAT, {"max_completion_tokens": 0}, 64, None, 64),
        (CHAT, {"max_tokens": 500}, 64, None, None),
        (CHAT, {}, None, 10, 160),  # as much as one request may have
        (CHAT, {}, 64, 10, 64),
        ("/invocations", {"prompt": []}, 64, None, None),
    ],
)
def test_a_length_that_nobody_said_is_bounded(
    path: str, body: dict[str, Any], most: int | None, share: int | None, bound: int | None
) -> None:
    assert sized(body, path, most, share).bound == bound


def test_the_ratio_is_learned_and_stays_within_reason() -> None:
    ratio = TokenRatio()
    assert ratio.tokens(Prompt(text_bytes=400)) == 100
    ratio.learn(10, 10)  # too short to tell
    assert ratio.tokens(Prompt(text_bytes=400)) == 100
    for _ in range(3):
        ratio.learn(1000, 600)
    assert ratio.tokens(Prompt(text_bytes=400, tokens=7)) == 247
    for _ in range(200):
        ratio.learn(1000, 10**9)
    assert ratio.value <= 2.0


def test_one_request_gets_one_ranks_blocks() -> None:
    assert Pool(16, 200, 2, 2048).rank_blocks == 100
