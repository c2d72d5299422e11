"""gpu_lost: a GPU that is gone, that the driver can't reach, or whose memory or hardware has failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from agent.plain import plain
from agent.sources.device.names import XIDS
from agent.sources.device.state import GpuState
from agent.state import Tier
from agent.subject import Subject
from agent.units import human_seconds
from agent.verdicts.base import Finding, View
from agent.verdicts.who import worst

XID_SECONDS = 3600.0  # an error is told for so long after its last time: nothing says that somebody has seen to it
LOST_SECONDS = 5.0
NEAR_SECONDS = 300.0  # before or after the loss: an error that may be why
SILENT_SECONDS = 30.0
_RESET = "Drain its engines and reset the GPU (nvidia-smi --gpu-reset, all its processes end); reboot if that fails."
REMEDY_LOST = (
    "Move its engines to other GPUs. A reset of the GPU or a reboot of the node may bring it back; if not, have the "
    "card replaced."
)
REMEDY_SILENT = (
    "See dmesg for XIDs, and whether its engines still make tokens. What hangs in the driver ends only with a reset "
    "of the GPU or a reboot."
)
_REPLACE = f"{_RESET} If it comes again, have the card replaced."


class _Meaning(NamedTuple):
    """What an XID means for who runs the node. Those that are not here are mostly the application's own fault."""

    tier: Tier
    remedy: str


_XIDS: dict[int, _Meaning] = {
    48: _Meaning("page", _REPLACE),
    62: _Meaning("page", _REPLACE),
    64: _Meaning(
        "page", "Drain its engines: no spare memory is left to stand in for what fails. Have the card replaced."
    ),
    79: _Meaning(
        "page", "Reboot the node: it is off the bus. If it comes again, power, cooling, riser or card is bad."
    ),
    95: _Meaning("page", _RESET),
    119: _Meaning("page", _RESET),
    120: _Meaning("page", _RESET),
    61: _Meaning("warn", _REPLACE),
    74: _Meaning(
        "warn", "Check the NVLink (nvidia-smi nvlink -e); engines across it may hang. Reset its GPUs when drained."
    ),
    92: _Meaning("warn", "Watch it; plan a reset, and a replacement if double-bit errors follow."),
    94: _Meaning(
        "warn", "The process that had this memory is ended, the others are safe. Reset the GPU in a calm hour."
    ),
    63: _Meaning("note", "A spare row takes over at the next reset of this GPU: plan one."),
}


class GpuLost:
    """Fires on what the driver says of a GPU, on its fatal XIDs, and on memory that has no spare left."""

    kind = "gpu_lost"
    confirm_seconds = LOST_SECONDS
    clear_seconds = 30.0
    of_absence = False

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the GPUs that are lost or failing, each with the worst that is to say."""
        return worst(_all(view))


def _all(view: View) -> Iterator[tuple[Subject, Finding]]:
    state = view.state
    for gpu in state.device.gpus if state.device is not None else ():
        subject = Subject(scope="gpu", gpu=gpu.gpu)
        for finding in (_gone(gpu, view.lost.get(gpu.gpu, state.at)), *_errors(gpu, state.at), _rows(gpu)):
            if finding is not None:
                yield subject, finding


def _gone(gpu: GpuState, lost_at: float) -> Finding | None:
    card = f"GPU {gpu.gpu}" + (f" ({plain(gpu.name, 60)})" if gpu.name else "")
    if gpu.lost:
        # What it reported hours before is another matter.
        near = sorted((xid.last_at, xid.code) for xid in gpu.xids or () if abs(xid.last_at - lost_at) < NEAR_SECONDS)
        codes = [code for _, code in near if code in _XIDS]
        after = f", after XID {', '.join(map(str, codes))}" if codes else ""
        text = f"{card} is lost{after}: {plain(gpu.lost, 200)}. Engines on it are dead or about to be."
        return Finding(text, _XIDS[codes[-1]].remedy if codes else REMEDY_LOST, {"lost": 1})
    if gpu.silent:
        # A GPU that never gave its name may just not be ours to look at.
        denied = gpu.uuid is None and "permission" in gpu.silent.lower()
        return Finding(
            f"The driver doesn't answer for {card}: {plain(gpu.silent, 200)}.",
            "Give the agent access to it, or leave it out." if denied else REMEDY_SILENT,
            {"silent": 1},
            tier="note" if denied else "page",
            confirm_seconds=SILENT_SECONDS,
        )
    return None


def _errors(gpu: GpuState, now: float) -> Iterator[Finding]:
    for xid in gpu.xids or ():
        meaning, age = _XIDS.get(xid.code), now - xid.last_at
        if meaning is not None and age < XID_SECONDS:
            often = "" if xid.count == 1 else f", {xid.count} times, the last"
            yield Finding(
                f"GPU {gpu.gpu} reported XID {xid.code} ({XIDS[xid.code]}){often} {human_seconds(max(0.0, age))} ago.",
                meaning.remedy,
                {"xid": xid.code, "count": xid.count, "age_seconds": max(0.0, age)},
                tier=meaning.tier,
                confirm_seconds=0.0,
            )


def _rows(gpu: GpuState) -> Finding | None:
    rows = gpu.remapped_rows
    if rows is None or not (rows.failed or rows.pending):
        return None
    evidence: dict[str, float] = {"remapped_rows": rows.uncorrected + rows.corrected}
    if gpu.ecc is not None:
        evidence["uncorrected_errors"] = gpu.ecc.uncorrected
    if rows.failed:
        return Finding(
            f"GPU {gpu.gpu} has memory errors and no spare row left to stand in: the next one ends what runs there.",
            "Drain its engines in working hours and have the card replaced: a reset does not help.",
            evidence,
            tier="warn",
        )
    return Finding(
        f"GPU {gpu.gpu} has memory rows that wait to be replaced by spare ones.",
        "Plan a reset of this GPU when its engines are drained: the replacement is made then.",
        evidence,
        tier="note",
    )
