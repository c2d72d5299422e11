"""What an agent's state says of the installation: each fault with what mends it; a sound node is quiet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
    link = replace(state.link, refused_peers={}, rejected_frames={}, folded_names={})
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
        (engine(hooks_version="0.0.1"), "engine m", "note", f"pip install kvtide-{__version__}-py3-none-any.whl"),
        (engine(workers_expected=2), "engine m", "warn", "KVTIDE_SOCKET"),
        (node(sources=(make_source(up=False, reason="no driver"),)), "source device", "warn", "libnvidia-ml"),
        (node(sources=(make_source(up=False, absent=True, reason="no GPU"),)), "source device", "note", "libnvidia-ml"),
        (node(policy=REFUSED), "policy", "bad", "p.yaml"),
        (node(recorder=None), "recorder", "note", "recorder.enabled"),
        (node(recorder=make_recorder(recording=False, reason="disk full")), "recorder", "bad", "writable"),
        (node(actions=make_actions(problem="the journal can't be written")), "actions", "bad", "kvtide actions"),
        (node(actions=make_actions(mode="observe", off="switched off")), "actions", "note", "kvtide actions on"),
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


@pytest.mark.parametrize(
    ("change", "check", "here", "in_a_pod"),
    [
        (
            node(sources=(make_source(source="device", up=False, reason="no NVIDIA driver here"),)),
            "source device",
            "--gpus all",
            "NVIDIA_VISIBLE_DEVICES=all",
        ),
        (node(engines=(), scrape=None), "engines", "installed beside it", "patch the engines' workload"),
        (engine(hooks_version="0.0.1"), "engine m", "pip install", "hooksImage"),
    ],
)
def test_on_kubernetes_it_says_what_the_pod_needs(
    change: Callable[[AgentState], AgentState], check: str, here: str, in_a_pod: str
) -> None:
    state = change(sound())
    for pod, said, never in ((False, here, in_a_pod), (True, in_a_pod, here)):
        (found,) = [each for each in findings(state, state.at, pod=pod) if each.check == check]
        assert said in found.mend
        assert never not in found.mend


def test_the_chart_gives_what_it_says() -> None:
    """The pod's variables, and the values by which they are set."""
    chart = Path(__file__).parents[3] / "deploy" / "helm" / "kvtide"
    state = replace(sound(), sources=(make_source(source="device", up=False, reason="no NVIDIA driver here"),))
    (found,) = [each for each in findings(state, state.at, pod=True) if each.check == "source device"]
    template = "".join(file.read_text() for file in (chart / "templates").iterdir())
    for variable in ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"):
        assert variable in found.mend
        assert variable in template
    values = (chart / "values.yaml").read_text()
    for name in ("visibleDevices: all", "driverCapabilities: utility", "runtimeClassName:", "enabled: true"):
        assert name in values


def test_names_that_were_too_many_are_told() -> None:
    state = sound()
    told = replace(state, link=replace(state.link, folded_names={"tenant": 3, "engine": 0, "id": 1}))
    found = of(told, "names")
    assert (found.level, "1 id, 3 tenants" in found.text) == ("warn", True)
