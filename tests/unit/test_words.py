"""Sentences that the terminal and the page share."""

from __future__ import annotations

from msgspec.structs import replace

from agent.faces import words
from tests.unit.builders import make_state


def test_a_recording_without_an_engine_names_no_socket_and_gives_no_advice() -> None:
    state = make_state()
    told = words.nobody(replace(state, scrape=None, link=replace(state.link, socket="")))
    assert told == ["No engine was connected."]


def test_a_live_agent_without_an_engine_says_how_one_gets_there() -> None:
    state = make_state()
    head, advice = words.nobody(replace(state, scrape=None, link=replace(state.link, socket="/s/agent.sock")))
    assert head == "No engine is connected at /s/agent.sock."
    assert "KVTIDE_SOCKET=/s/agent.sock" in advice
