"""What an agent's state says of the installation: each fault with what mends it; a sound node is quiet."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from agent.actions.types import BreakerState
from agent.doctor.findings import Finding
from agent.doctor.of_state import findings
from agent.policy.state import PolicyState
from agent.state import AgentState
from engine_hooks import __version__
from engine_hooks.levers.orders import LeverRow
from tests.unit.builders import make_actions, make_hooks, make_state
from tests.unit.judgements import make_recorder
from tests.unit.node_builders import make_source
from tests.unit.recordings import sound_engine

REFUSED = PolicyState(source="p.yaml", profile="default", loaded_at=0.0, problem="no")
SOUND_HOOKS = make_hooks(errors={}, off={})


def sound(**changes: object) -> AgentState:
    """A node where nothing has to be mended."""
    engine = sound_engine(hooks=SOUND_HOOKS, hooks_version=__version__, audit_supported=True, audit_reason="")
    state = make_state(engine, version=__version__, judge_errors={}, actions=None)
    link = replace(state.link, refused_peers={}, rejected_frames={})
    sources = (make_source(up=True, reason=""),)
    return replace(state, link=link, sources=sources, recorder=make_recorder(recording=True), **changes)


def of(state: AgentState, check: str) -> Finding:
    (found,) = [each for each in findings(state, state.at) if each.check == check]
    return found


def test_a_sound_node_has_nothing_to_mend() -> None:
    state = sound()
    assert {each.level for each in findings(state, state.at)} == {"ok"}


def engine(**changes: object) -> Callable[[AgentState], AgentState]:
    return lambda state: replace(state, engines=(replace(state.engines[0], **changes),))


def node(**changes: object) -> Callable[[AgentState], AgentState]:
    return lambda state: replace(state, **changes)


@pytest.mark.parametrize(
    ("change", "check", "level", "mend"),
    [
        (node(version="0.0.1"), "agent", "warn", "restart the agent"),
        (node(ready=False, not_ready_reason="starting"), "agent", "bad", "agent's log"),
        (node(engines=(), scrape=None), "engines", "warn", "Start vLLM with kvtide installed beside it"),
        (engine(phase="lost", reason="the link is gone"), "engine m", "bad", "engine's log"),
        (engine(hooks=make_hooks()), "engine m", "bad", "report it"),
        (engine(audit_supported=False, audit_reason="no pool"), "engine m", "warn", "compatibility"),
        (engine(hooks_version="0.0.1"), "engine m", "note", "pip install -U kvtide"),
        (engine(workers_expected=2), "engine m", "warn", "KVTIDE_SOCKET"),
        (node(sources=(make_source(up=False, reason="no driver"),)), "source device", "warn", "libnvidia-ml"),
        (node(sources=(make_source(up=False, absent=True, reason="no GPU"),)), "source device", "note", "libnvidia-ml"),
        (node(policy=REFUSED), "policy", "bad", "p.yaml"),
        (node(recorder=None), "recorder", "note", "recorder.enabled"),
        (node(recorder=make_recorder(recording=False, reason="disk full")), "recorder", "bad", "writable"),
        (node(actions=make_actions(problem="the journal can't be written")), "actions", "bad", "kvtide actions"),
        (node(actions=make_actions(breaker=BreakerState(open=True, reason="x"))), "actions", "bad", "close-breaker"),
        (node(actions=make_actions()), "actions", "note", "KVTIDE_LEVERS"),
        (node(judge_errors={"kv_stall": 2}), "judging", "bad", "report it"),
    ],
)  # fmt: skip
def test_each_fault_has_its_remedy(
    change: Callable[[AgentState], AgentState], check: str, level: str, mend: str
) -> None:
    found = of(change(sound()), check)
    assert found.level == level, found
    assert mend in found.mend


def test_an_engine_that_obeys_says_which_levers() -> None:
    rows = (LeverRow(lever="watermark", ok=True), LeverRow(lever="pause", ok=False, reason="not allowed"))
    assert of(engine(levers=rows)(sound()), "engine m").text.endswith("; it obeys watermark")
    assert of(engine(levers=rows)(sound(actions=make_actions())), "actions").level == "ok"


def test_peers_that_were_turned_away_are_said_with_the_setting() -> None:
    state = sound()
    state = replace(state, link=replace(state.link, refused_peers={"uid": 3}, rejected_frames={"size": 1}))
    told = [each for each in findings(state, state.at) if each.check == "link"]
    assert [each.level for each in told] == ["warn", "warn"]
    assert "link.group" in told[0].mend


def test_clocks_that_are_apart_are_said() -> None:
    state = sound()
    (found,) = [each for each in findings(state, state.at + 60) if each.check == "clock"]
    assert found.level == "warn"
    assert "60 s apart" in found.text
