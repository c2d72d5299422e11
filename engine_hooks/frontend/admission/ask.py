"""What one request asks for, read from its body: whose it is, how long its prompts are, how much it may generate.

Only what is needed is decoded; images and what else a body holds are skipped. A body that is odd but might be valid
for the engine is walked piece by piece: being odd is no way around a quota. One that is no JSON is the engine's to
refuse.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

_COMPLETION_TOKENS = 16  # what vLLM generates for a prompt (not a chat) that says nothing
# Where POST makes an engine generate: the route, the field that bounds its output, and what vLLM generates where that
# is missing (None: all that fits into the context).
ROUTES: dict[str, tuple[str, int | None]] = {
    "/v1/completions": ("max_tokens", _COMPLETION_TOKENS),
    "/v1/chat/completions": ("max_tokens", None),
    "/v1/chat/completions/batch": ("max_tokens", None),
    "/v1/responses": ("max_output_tokens", None),
    "/v1/messages": ("max_tokens", None),
    "/cohere/v2/chat": ("max_tokens", None),
    "/inference/v1/generate": ("", _COMPLETION_TOKENS),
    "/invocations": ("max_tokens", None),
}
# Where POST makes an engine work in other ways: what needs no body is in force there too.
OTHER_WORK = frozenset(
    {"/v1/embeddings", "/v2/embed", "/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank"}
    | {"/v2/rerank", "/v1/audio/transcriptions", "/v1/audio/translations", "/generative_scoring", "/v1/systemone"}
)
# Where prompts are, in any of these routes' bodies.
PROMPT_KEYS = ("prompt", "messages", "input", "instructions", "system", "tools")
MESSAGE_TOKENS = 8  # what a chat template puts around a message
MAX_CHOICES = 2**16
MAX_DEPTH = 32
_DATA_KEYS = frozenset({"image_url", "image", "input_audio", "audio_url", "video_url", "source", "file"})


class _Part(msgspec.Struct):
    text: str | None = None


_Content = str | list[str | _Part] | None


class _Message(msgspec.Struct):
    content: _Content = None
    tool_calls: msgspec.Raw = msgspec.Raw(b"")


class _Sampling(msgspec.Struct):
    max_tokens: int | None = None
    n: int | None = None


class _Body(msgspec.Struct):
    prompt: str | list[int | str | list[int]] | None = None
    messages: list[_Message | list[_Message]] | None = None
    system: _Content = None
    instructions: str | None = None
    tools: msgspec.Raw = msgspec.Raw(b"")
    token_ids: list[int] | None = None
    sampling_params: _Sampling | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    n: int | None = None
    echo: bool | None = None
    model: str | None = None
    user: str | None = None
    cache_salt: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"")  # its items have many shapes: it is walked


_decoder = msgspec.json.Decoder(_Body)


@dataclass(frozen=True, slots=True)
class Prompt:
    """``text_bytes`` (UTF-8) are to be tokenised; ``tokens`` are known."""

    text_bytes: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """``prompts``: each is a request to the engine, times ``choices``. ``max_tokens``: of each; None where the request
    says none, or zero; ``limit``: the field that says it. ``echo_only``: zero is meant.
    """

    prompts: tuple[Prompt, ...]
    choices: int = 1
    max_tokens: int | None = None
    limit: str = "max_tokens"
    missing: int | None = None
    echo_only: bool = False
    model: str = ""
    user: str = ""
    cache_salt: str = ""


def read_ask(path: str, body: bytes) -> Ask | None:
    """Return what the request to ``path``, one of :data:`ROUTES`, asks for; None when the body is no JSON object."""
    limit, missing = ROUTES[path]
    try:
        return _ask(_decoder.decode(body), limit, missing)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return _odd(found, limit, missing) if isinstance(found, dict) else None


def _ask(body: _Body, limit: str, missing: int | None) -> Ask:
    prompts = list(_prompts(body))
    given, choices = body.max_tokens, body.n
    if limit == "max_output_tokens":
        given = body.max_output_tokens
    elif body.max_completion_tokens is not None:  # vLLM takes it before the other
        given, limit = body.max_completion_tokens, "max_completion_tokens"
    if body.token_ids is not None and body.sampling_params is not None:
        given, choices = body.sampling_params.max_tokens, body.sampling_params.n
    return _made(
        prompts,
        choices=choices,
        given=given,
        limit=limit,
        missing=missing if body.prompt is None else _COMPLETION_TOKENS,
        echo=bool(body.echo),
        names=(body.model, body.user, body.cache_salt),
    )


def _made(
    prompts: list[Prompt],
    *,
    choices: int | None,
    given: int | None,
    limit: str,
    missing: int | None,
    echo: bool,
    names: tuple[str | None, str | None, str | None],
) -> Ask:
    return Ask(
        prompts=tuple(prompts),
        choices=min(MAX_CHOICES, max(1, choices or 1)),
        max_tokens=given if given is not None and given > 0 else None,
        limit=limit,
        missing=missing if given is None else None,
        echo_only=echo and given == 0,
        model=names[0] or "",
        user=names[1] or "",
        cache_salt=names[2] or "",
    )


def _prompts(body: _Body) -> Iterator[Prompt]:
    if body.token_ids is not None:
        yield Prompt(tokens=len(body.token_ids))
    prompt = body.prompt
    if isinstance(prompt, str):
        yield Prompt(text_bytes=utf8_bytes(prompt))
    elif prompt:
        if isinstance(prompt[0], int):
            yield Prompt(tokens=len(prompt))
        else:
            for one in prompt:
                if isinstance(one, str):
                    yield Prompt(text_bytes=utf8_bytes(one))
                elif isinstance(one, list):
                    yield Prompt(tokens=len(one))
    around = _content_bytes(body.system) + utf8_bytes(body.instructions or "") + len(bytes(body.tools))
    if body.messages:
        talks = [talk for talk in body.messages if isinstance(talk, list)]
        single = [message for message in body.messages if isinstance(message, _Message)]
        for talk in [*talks, single] if single or not talks else talks:
            text = around + sum(_content_bytes(m.content) + len(bytes(m.tool_calls)) for m in talk)
            yield Prompt(text_bytes=text, tokens=MESSAGE_TOKENS * len(talk))
    if bytes(body.input) not in (b"", b"null"):
        yield Prompt(text_bytes=around + sum(map(utf8_bytes, texts(json.loads(bytes(body.input))))))


def _content_bytes(content: _Content) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return utf8_bytes(content)
    return sum(utf8_bytes(part if isinstance(part, str) else part.text or "") for part in content)


def utf8_bytes(text: str) -> int:
    """Return the length of ``text`` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the texts of a prompt in any shape: strings, but for those that carry images, sound or files."""
    if isinstance(value, str):
        if not value.startswith("data:"):
            yield value
    elif depth < MAX_DEPTH and isinstance(value, list | dict):
        inner = value if isinstance(value, list) else (v for k, v in value.items() if k not in _DATA_KEYS)
        for one in inner:
            yield from texts(one, depth + 1)


# -- a body that does not have the expected types -----------------------------------------------------------


def _odd(body: dict[str, Any], limit: str, missing: int | None) -> Ask:
    prompts: list[Prompt] = []
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and not all(_is_number(one) for one in prompt):
        prompts += [_whatever(one) for one in prompt]
    elif prompt is not None:
        prompts.append(_whatever(prompt))
    rest = [body[key] for key in (*PROMPT_KEYS[1:], "token_ids") if body.get(key) is not None]
    if rest:
        prompts.append(_whatever(rest))
    sampling = body.get("sampling_params")
    sampling = sampling if isinstance(sampling, dict) else {}
    if limit == "max_output_tokens":
        given = _loose(body.get(limit))
    else:
        given = _loose(body.get("max_completion_tokens"))
        limit = limit if given is None else "max_completion_tokens"
        given = _loose(body.get("max_tokens", sampling.get("max_tokens"))) if given is None else given
    names = tuple(value if isinstance(value := body.get(key), str) else "" for key in ("model", "user", "cache_salt"))
    choices = _loose(body.get("n", sampling.get("n")))
    return _made(
        prompts,
        choices=choices,
        given=given,
        limit=limit,
        missing=missing if prompt is None else _COMPLETION_TOKENS,
        echo=bool(body.get("echo")),
        names=(names[0], names[1], names[2]),
    )


def _whatever(value: Any) -> Prompt:
    numbers = 0
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, list):
            numbers += sum(map(_is_number, one))
            stack += [inner for inner in one if isinstance(inner, list)]
    return Prompt(text_bytes=sum(map(utf8_bytes, texts(value))), tokens=numbers)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _loose(value: Any) -> int | None:
    """A whole number as a lax validator would read it; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if math.isfinite(number) else None
