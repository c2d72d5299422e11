"""What a person sees of the GPUs: what is wrong in sentences, each once, the worst first; and every size."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from agent.faces import status
from agent.faces.devices import LINES_SHOWN, OLD_SECONDS, lines_of, render
from agent.faces.lines import BAD
from agent.sources.device.state import GpuMemory, GpuState, RemappedRows, RetiredPages, Xid
from agent.state import AgentState
from tests.unit.builders import MIB, make_state
from tests.unit.node_builders import make_devices, make_gpu, make_source

NOW = make_state().at
HEALTHY = {"remapped_rows": None, "ecc": None, "xids": (), "throttle": ("gpu_idle", "sw_power_cap")}


def drawn(state: AgentState, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    found = render(state)
    assert found is not None
    console.print(found)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    return " ".join(text.replace("│", " ").split())


def said(*gpus: GpuState) -> list[tuple[str, str]]:
    return [(line.label, line.text) for line in lines_of(gpus, NOW)]


@pytest.mark.parametrize("width", [80, 120])
def test_sizes_are_there_at_any_width(width: int) -> None:
    instance = make_gpu(
        "0/3", parent="0", memory=GpuMemory(total=40960 * MIB, used=39936 * MIB, free=1024 * MIB, reserved=0)
    )
    text = drawn(make_state(device=make_devices(make_gpu("0", instances=(instance,)))), width)
    assert "driver 580.95.05, CUDA 13.0" in text
    assert "0 60.0 75% 19.4 80.0 0.6 1 90% H100 80GB HBM3" in text
    assert "0/3 39.0 98% 1.0 40.0 0.0 1" in text


def test_healthy_gpus_have_nothing_to_say() -> None:
    assert said(make_gpu("0", **HEALTHY), make_gpu("1", **HEALTHY)) == []


def test_a_lost_gpu_comes_first_and_says_what_helps() -> None:
    xid = Xid(code=79, count=1, last_at=NOW - 60)
    lost = GpuState(gpu="1", uuid="GPU-1", name="H100", index=1, lost="the GPU has fallen off the bus", xids=(xid,))
    lines = lines_of((make_gpu("0"), lost), NOW)
    assert [(line.label, line.style) for line in lines[:2]] == [("GPU 1", BAD), ("GPU 1", BAD)]
    assert lines[0].text.startswith("LOST: the GPU has fallen off the bus (H100, GPU-1). ")
    assert "dmesg" in lines[0].text
    assert lines[1].text.startswith("XID 79 (the GPU has fallen off the bus), once, ")
    assert " 1 lost - - - - - H100" in drawn(make_state(device=make_devices(make_gpu("0"), lost)))


def test_a_gpu_that_does_not_answer() -> None:
    silent = GpuState(
        gpu="0", uuid="GPU-0", name="H100", index=0, silent="several calls hang", unavailable={"memory": "x"}
    )
    ((label, text),) = said(silent)
    assert label == "GPU 0"
    assert text.startswith("NOT ANSWERING: several calls hang. ")
    assert "0 silent - -" in drawn(make_state(device=make_devices(silent)))


def test_what_several_gpus_share_is_said_once() -> None:
    gpus = [
        make_gpu(str(n), **HEALTHY, unavailable={"processes": "no permission", "bar1": "no permission"})
        for n in range(8)
    ]
    assert said(*gpus[:4], *gpus[5:]) == [("GPUs 0-3, 5-7", "not read: processes, bar1: no permission")]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"remapped_rows": RemappedRows(corrected=0, uncorrected=9, pending=False, failed=True)}, "replace the card"),
        ({"remapped_rows": RemappedRows(corrected=0, uncorrected=1, pending=True, failed=False)}, "at the next reset"),
        ({"retired_pages": RetiredPages(single_bit=0, double_bit=1, pending=True)}, "at the next reset"),
        ({"throttle": ("hw_thermal_slowdown",)}, "slowed down: hw_thermal_slowdown"),
        ({"unified": True, "memory": None}, "shares the host's memory"),
    ],
)
def test_health(changes: dict[str, object], text: str) -> None:
    ((_, found),) = said(make_gpu("0", **HEALTHY | changes))
    assert text in found


def test_an_old_xid_is_no_news() -> None:
    recent, old = (
        lines_of((make_gpu("0", **HEALTHY | {"xids": (Xid(code=31, count=3, last_at=NOW - age),)}),), NOW)[0]
        for age in (60.0, OLD_SECONDS + 1)
    )
    assert (recent.style, old.style) == ("yellow", "dim")
    assert "3 times, last" in recent.text


def test_very_many_lines_are_cut() -> None:
    gpus = [make_gpu(str(n), **HEALTHY, unavailable={"memory": f"reason {n}"}) for n in range(LINES_SHOWN + 5)]
    lines = said(*gpus)
    assert len(lines) == LINES_SHOWN + 1
    assert lines[-1][1].startswith("and 5 more")


def test_a_node_without_a_driver_says_so_in_one_line_with_or_without_engines() -> None:
    source = make_source(up=False, reason="no NVIDIA driver here")
    for engines in ({}, {"engines": ()}):
        state = make_state(device=None, sources=(source,), **engines)
        assert drawn(state) == "GPUs are not read: no NVIDIA driver here."
        console = Console(file=io.StringIO(), width=80)
        console.print(status.render(state))
        assert "GPUs are not read" in console.file.getvalue()


def test_a_source_that_is_switched_off_is_not_spoken_of() -> None:
    assert render(make_state(device=None, sources=())) is None
