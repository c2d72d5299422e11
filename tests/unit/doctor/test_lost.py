"""What a missing privilege costs is told by the doctor, reason by reason."""

from __future__ import annotations

from agent.doctor.lost import findings
from agent.sources.host.state import HostState
from tests.unit.builders import make_state
from tests.unit.node_builders import make_host


def lost(host: HostState | None) -> list[str]:
    return [each.text for each in findings(make_state(host=host))]


def test_each_reason_is_told_once_with_all_that_it_costs() -> None:
    host = make_host(unavailable={"host_pids": "no pids", "dead": "no pids", "cgroups": "v1"})
    assert lost(host) == [
        "not told: limits of memory (cgroups): v1",
        "not told: whether processes that are gone still hold GPU memory; "
        "which process here is which of the driver's: no pids",
    ]
    assert {each.level for each in findings(make_state(host=host))} == {"note"}


def test_nothing_is_told_where_nothing_is_lost() -> None:
    assert lost(make_host(unavailable={})) == []
    assert lost(None) == []
