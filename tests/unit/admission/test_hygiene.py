"""Invisible characters and repeated text: measured, counted by tenant, and taken out only on request."""

from __future__ import annotations

import json
import random

import pytest

from engine_hooks.frontend.admission.counts import HygieneCounts
from engine_hooks.frontend.admission.hygiene import PERIOD_SECONDS, cleaned, invisible_ratio, measure
from tests.unit.admission.asking import CHAT, Bed, run

ZWSP, ZWJ, RLO, TAG, SELECTOR = "\u200b", "\u200d", "\u202e", "\U000e0041", "\U000e0101"
WORDS = random.Random(1).choices(["memory", "block", "scheduler", "tenant", "prefix", "token", "queue"], k=400)
PROSE = " ".join(f"{word}{number}" for number, word in enumerate(WORDS))


@pytest.mark.parametrize("character", [ZWSP, ZWJ, RLO, TAG, SELECTOR, "\ufeff", "\u2060", "\u2066", "\u00ad"])
def test_what_nobody_sees_counts(character: str) -> None:
    assert invisible_ratio("abc" + character) == 0.25


@pytest.mark.parametrize("text", ["", "plain", "naïve", "日本語", "العربية", "\u2764\ufe0f", "e\u0301"])
def test_what_is_seen_does_not(text: str) -> None:
    assert invisible_ratio(text) == 0.0


def test_repetition_is_told_from_prose() -> None:
    assert measure("look at this " * 200)[1] > 0.9
    assert measure(PROSE)[1] < 0.05
    assert measure([1, 2, 3, 4, 5] * 100)[1] > 0.9
    assert measure(list(range(500)))[1] == 0.0
    assert measure("") == (0.0, 0.0)


def test_a_long_prompt_is_sampled_at_both_ends() -> None:
    assert measure(PROSE + "x" * 1_000_000)[1] > 0.3
    assert measure(list(range(5000)) + [1] * 5000)[1] > 0.3
    assert measure("a" * 1_000_000 + TAG * 1024)[0] == 0.5


def test_ratios_are_of_recent_prompts() -> None:
    counts = HygieneCounts()
    for _ in range(10):
        counts.note("acme", 0.0, 0.2)
    (row,) = counts.rows()
    assert (row.requests, row.invisible_ratio, row.repeated_ratio) == (10, 0.0, pytest.approx(0.2))
    for _ in range(200):
        counts.note("acme", 1.0, 0.2)
    assert counts.rows()[0].invisible_ratio > 0.9
    for number in range(80):
        counts.note(f"t{number}", 0.0, 0.0)
    assert len(counts.rows()) == 65
    assert counts.rows()[-1].requests == 17


def test_the_gate_looks_at_a_prompt_now_and_then_and_learns_from_it() -> None:
    bed = Bed()
    prompt = {"prompt": "0123456789" * 10, "prompt_token_ids": [1] * 80}
    bed.gate.see("acme", prompt, None)
    bed.gate.see("acme", prompt, None)  # too soon
    assert [(row.tenant, row.requests) for row in bed.gate.hygiene.rows()] == [("acme", 1)]
    assert bed.gate.ratio.value == pytest.approx(0.8)
    bed.clock.now += PERIOD_SECONDS
    bed.gate.see("acme", {"prompt_token_ids": [1] * 80}, None)
    bed.clock.now += PERIOD_SECONDS
    bed.gate.see("acme", "text alone", None)
    bed.clock.now += PERIOD_SECONDS
    bed.gate.see("acme", object(), None)
    assert bed.gate.hygiene.rows()[0].requests == 3
    assert bed.gate.ratio.value == pytest.approx(0.8)


# -- taking out ----------------------------------------------------------------------------------------------------

DIRTY = {
    "messages": [{"role": "user", "content": [{"type": "text", "text": f"a{ZWSP}b{ZWJ}{TAG}{TAG}"}]}],
    "user": f"bob{ZWSP}",
}


@pytest.mark.parametrize("escaped", [True, False])
def test_only_prompts_are_cleaned_and_joiners_stay(escaped: bool) -> None:
    body, removed = cleaned(json.dumps(DIRTY, ensure_ascii=escaped).encode())
    found = json.loads(body)
    assert found["messages"][0]["content"][0]["text"] == f"ab{ZWJ}"
    assert found["user"] == DIRTY["user"]
    assert removed == {"zero-width": 1, "tags": 2}


@pytest.mark.parametrize(
    "body", [b'{"prompt": "plain"}', '{"prompt": "naïve", "x": "\u200b"}'.encode(), b"\xff", b'["\\u200b"]', b'"\\u']
)
def test_what_has_nothing_to_take_out_comes_back_as_it_was(body: bytes) -> None:
    assert cleaned(body) == (body, {})


def test_cleaning_is_off_unless_ordered_and_is_told() -> None:
    bed = Bed()
    sent = json.dumps(DIRTY, ensure_ascii=False).encode()
    bed.order()
    run(lambda: bed.post(sent, CHAT))
    assert bed.app.bodies == [sent]
    bed.order(clean=True, max_tokens=9)
    answer = run(lambda: bed.post(sent, CHAT))
    assert answer.headers["x-kvtide-cleaned"] == "tags=2, zero-width=1"
    got = json.loads(bed.app.bodies[-1])
    assert got["max_tokens"] == 9
    assert got["messages"][0]["content"][0]["text"] == f"ab{ZWJ}"
    assert dict(bed.app.scopes[-1]["headers"])[b"content-length"] == str(len(bed.app.bodies[-1])).encode()
    clean = run(lambda: bed.post({"prompt": "plain"}))
    assert "x-kvtide-cleaned" not in clean.headers
