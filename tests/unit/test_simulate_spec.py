"""Specs of the simulator: what can't be run is refused, in one line, before a process is started."""

from __future__ import annotations

import msgspec
import pytest

from agent.errors import ConfigError
from agent.simulate.run import Engine, Event, Fault, Load, Spec, check, spec_of
from engine_hooks.simulator.spec import EVENTS, FLOWS, LEAKS
from tests.unit.test_simulate_run import header


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (Spec(faults=(Fault(kind="gremlin"),)), "fault 'gremlin' is not known; there are orphan,"),
        (Spec(events=(Event(kind="party"),)), "event 'party' is not known; there are long_document,"),
        (Spec(seconds=60.0, faults=(Fault(kind="orphan", onset=60.0),)), "not within the run of 60 s"),
        (Spec(faults=(Fault(kind="delayed_free"),)), "needs the connector 'remote', not 'none'"),
        (Spec(faults=(Fault(kind="unknown_pin"),), engine=Engine(connector="remote")), "needs the connector 'opaque'"),
        (Spec(events=(Event(kind="bounded_delay"),)), "needs the connector 'remote'"),
        (
            Spec(events=(Event(kind="bounded_delay"),), engine=Engine(connector="remote", lease_seconds=None)),
            "needs a lease",
        ),
        (Spec(faults=(Fault(kind="spec_residue"),)), "does not speculate"),
        (Spec(faults=(Fault(kind="tenant_surge"),)), "needs others beside the tenant"),
        (Spec(faults=(Fault(kind="shared_prefix"),), engine=Engine(caching=False)), "needs prefix caching"),
        (Spec(faults=(Fault(kind="orphan", tenant="t3"),), load=Load(tenants=2)), "no tenant 't3'; there are t1..t2"),
        (Spec(engine=Engine(connector="nixl")), "connector 'nixl' is not known; there are none, remote, opaque"),
        (Spec(load=Load(trace="mooncake", turns=3.0)), "a trace has its own sessions"),
    ],
)
def test_what_does_not_fit_together_is_refused(spec: Spec, words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")) as caught:
        check(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [*LEAKS, *FLOWS])
def test_every_fault_can_be_had(kind: str) -> None:
    connector = {"delayed_free": "remote", "abort_loading": "remote", "unknown_pin": "opaque"}.get(kind, "none")
    check(Spec(faults=(Fault(kind=kind),), engine=Engine(connector=connector, drafts=4), load=Load(tenants=2)))


@pytest.mark.parametrize("kind", EVENTS)
def test_every_event_can_be_had(kind: str) -> None:
    check(Spec(events=(Event(kind=kind),), engine=Engine(connector="remote")))


@pytest.mark.parametrize(
    "text", ['{"seconds": -1}', '{"load": {"rate": 0}}', '{"engine": {"blocks": 1}}', '{"sead": 1}']
)
def test_values_have_bounds_and_names_are_known(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Spec)


def test_a_bundle_tells_its_spec() -> None:
    spec = Spec(seed=3, faults=(Fault(kind="orphan", rate=2.5),))
    assert spec_of(header(spec)) == spec
