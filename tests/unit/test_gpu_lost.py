"""GPUs that are gone, silent or failing, and those that only look so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.judge import Judge
from agent.sources.device.state import GpuState, RemappedRows, Xid
from agent.state import AgentState, Verdict
from tests.unit.timeline import GIB, UNIX, gpu, state, times
from tests.unit.told import Told

KIND = "gpu_lost"


def card(**changes: Any) -> GpuState:
    return GpuState(**{"gpu": "1", "uuid": "GPU-1", "name": "H100", "index": 1, "xids": ()} | changes)


def xid(code: int, age: float = 30.0, count: int = 1) -> Xid:
    return Xid(code=code, count=count, last_at=UNIX - age)


def verdict(one: GpuState, seconds: float = 60) -> Verdict | None:
    return Told(KIND).last(state(t, gpus=[gpu(40 * GIB), one]) for t in times(seconds))


def test_a_lost_one_pages_soon_with_its_xid() -> None:
    found = verdict(card(lost="GPU is lost", xids=(xid(79),)), 5)
    assert found is not None
    assert (found.phase, found.tier, found.subject.gpu) == ("confirmed", "page", "1")
    assert found.sentence == ("GPU 1 (H100) is lost, after XID 79: GPU is lost. Engines on it are dead or about to be.")
    assert found.remedy.startswith("Reboot the node")


def test_a_silent_one_pages_after_half_a_minute() -> None:
    hung = card(silent="hangs in the driver: no answer within 2 s")
    early, late = verdict(hung, 29), verdict(hung, 30)
    assert early is not None
    assert late is not None
    assert (early.phase, late.phase, late.tier) == ("suspect", "confirmed", "page")


@pytest.mark.parametrize("gap", [15.0, 120.0, 3600.0])
@pytest.mark.parametrize("period", [1.0, 5.0, 15.0, 30.0])
@pytest.mark.parametrize("since", [290.0, 301.0], ids=["before the gap", "in the gap"])
def test_one_that_is_silent_after_a_gap_is_told_in_its_time_after_it(gap: float, period: float, since: float) -> None:
    """At whatever pace states come then; the gap itself is no time in which it has been silent."""
    back = 300.0 + gap
    moments = [*times(300), *(back + n * period for n in range(int(60 / period) + 1))]
    judge, told, seen = Judge(), None, None
    for t in moments:
        one = card(silent="no answer within 2 s" if t >= since else "")
        phases = [each.phase for each in judge.look(state(t, gpus=[gpu(40 * GIB), one])).verdicts if each.kind == KIND]
        seen = t if phases and seen is None else seen
        told = t if "confirmed" in phases and told is None else told
    assert seen is not None
    assert told is not None
    assert 30 - (300 - since if since < 300 else 0) <= told - back <= 30


@pytest.mark.parametrize("gap", [15.0, 120.0, 3600.0])
def test_one_that_answers_again_after_a_gap_is_not_told(gap: float) -> None:
    moments = [*times(300), *(300.0 + gap + n for n in range(60))]
    cards = ((t, card(silent="no answer within 2 s" if 280 <= t < 301 else "")) for t in moments)
    assert Told(KIND).last(state(t, gpus=[gpu(40 * GIB), one]) for t, one in cards) is None


@pytest.mark.parametrize(
    ("code", "tier"),
    [(48, "page"), (64, "page"), (79, "page"), (95, "page"), (119, "page"), (74, "warn"), (94, "warn")],
)
def test_xids_that_mean_harm(code: int, tier: str) -> None:
    found = verdict(card(xids=(xid(code, count=3),)), 0)
    assert found is not None
    assert (found.phase, found.tier) == ("confirmed", tier)
    assert f"GPU 1 reported XID {code} (" in found.sentence
    assert "3 times, the last 30 s ago" in found.sentence


def test_the_worst_of_several_is_told() -> None:
    found = verdict(card(xids=(xid(63), xid(94), xid(95))))
    assert found is not None
    assert "XID 95" in found.sentence


def test_memory_without_spare_rows() -> None:
    rows = {"corrected": 1, "uncorrected": 8}
    failed = verdict(card(remapped_rows=RemappedRows(**rows, pending=False, failed=True)))
    pending = verdict(card(remapped_rows=RemappedRows(**rows, pending=True, failed=False)))
    fine = verdict(card(remapped_rows=RemappedRows(**rows, pending=False, failed=False)))
    assert failed is not None
    assert pending is not None
    assert fine is None
    assert (failed.tier, pending.tier) == ("warn", "note")
    assert "have the card replaced" in failed.remedy


@pytest.mark.parametrize("code", [13, 31, 43, 45, 999])
def test_xids_of_applications_are_none(code: int) -> None:
    assert verdict(card(xids=(xid(code, count=50),))) is None


def test_an_xid_of_long_ago_is_none() -> None:
    assert verdict(card(xids=(xid(48, age=3600.0),))) is None


def test_one_that_is_not_ours_to_look_at_is_only_noted() -> None:
    found = verdict(card(uuid=None, name=None, xids=None, silent="no access: Insufficient Permissions"))
    assert found is not None
    assert found.tier == "note"


def test_one_call_that_hangs_is_none() -> None:
    told = Told(KIND)
    hung = {"memory": "hangs in the driver: no answer within 2 s"}
    for t in times(120):
        one = card(unavailable=hung) if t < 100 else card(silent="hangs") if t < 110 else card()
        assert all(each.phase == "suspect" for each in told.look(state(t, gpus=[one])))


def test_instances_of_a_mig_gpu_are_none() -> None:
    part = GpuState(gpu="0/3", uuid="MIG-1", name="3g.40gb", index=0, parent="0", unavailable={"memory": "N/A"})
    assert verdict(card(mig=True, instances=(part,))) is None


def test_its_life_while_the_driver_is_not_read() -> None:
    def seen() -> Iterator[AgentState]:
        for t in times(400):
            gone = card(lost="gone") if 10 <= t < 250 else card()
            yield state(t, gpus=None if 100 <= t < 200 else [gone])

    assert Told(KIND).phases(seen()) == ["none", "suspect", "confirmed", "resolved", "none"]
    told = Told(KIND)
    phases = {now.at - UNIX: [each.phase for each in told.look(now)] for now in seen()}
    assert (phases[14], phases[15], phases[150]) == (["suspect"], ["confirmed"], ["confirmed"])
    assert (phases[278], phases[279]) == (["confirmed"], ["resolved"])


def test_errors_of_long_before_the_loss_are_not_why() -> None:
    def states(age: float) -> Iterator[AgentState]:
        """It was there, is lost after ten minutes, and is looked at an hour later; its error is of ``age`` before."""
        for t in times(4200, 30):
            error = (Xid(code=79, count=1, last_at=UNIX + 600 - age),) if t >= 600 - age else ()
            yield state(t, gpus=[gpu(40 * GIB), card(lost="GPU is lost" if t >= 600 else "", xids=error)])

    near, far = Told(KIND).last(states(20.0)), Told(KIND).last(states(560.0))
    assert near is not None
    assert far is not None
    assert "is lost, after XID 79: GPU is lost" in near.sentence
    assert "is lost: GPU is lost" in far.sentence
    assert far.remedy.startswith("Move its engines")
