"""The unit that the engine's process is in, and no other. No systemd runs where tests do: what ``systemctl`` of systemd
252 prints and is told is played by a script, but for the case that there is none to be asked.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent.supervisor.base import RefusedError, SupervisorError, Target
from agent.supervisor.systemd import SystemdSupervisor

TARGET = Target(engine="llama", instance="i1", host="node", pid=4321, started_at=0.0)
RUNS = "LoadState=loaded\nActiveState=active\nControlGroup=/system.slice/vllm.service"


class Bed:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.proc = folder / "proc"
        (self.proc / "4321").mkdir(parents=True)
        self.within("/system.slice/vllm.service")

    def within(self, group: str) -> None:
        (self.proc / "4321" / "cgroup").write_text(f"1:name=systemd:{group}\n0::{group}\n")

    def supervisor(self, said: str, restart: int = 0) -> SystemdSupervisor:
        script = self.folder / "systemctl"
        answer = f'echo "$@" >> {self.calls}\n[ "$1" = show ] && printf "{said}\\n" && exit 0\n'
        script.write_text(f"#!/bin/sh\n{answer}echo Access denied >&2\nexit {restart}\n")
        script.chmod(0o700)
        return SystemdSupervisor("vllm.service", 10.0, (str(script),), self.proc)


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


@pytest.mark.parametrize("group", ["/system.slice/vllm.service", "/system.slice/vllm.service/engine"])
async def test_the_unit_is_restarted_where_the_process_is_in_it(bed: Bed, group: str) -> None:
    bed.within(group)
    await bed.supervisor(RUNS).restart(TARGET)
    show = "show --property=LoadState,ActiveState,ControlGroup -- vllm.service"
    assert bed.calls.read_text().splitlines() == [show, "restart --no-block -- vllm.service"]


@pytest.mark.parametrize(
    ("said", "group", "why"),
    [
        (RUNS, "/system.slice/vllm.service-2", "process 4321 of llama is not seen in unit"),
        (RUNS, "/system.slice/other.service", "process 4321 of llama is not seen in unit"),
        ("LoadState=loaded\nActiveState=active\nControlGroup=", "/", "is not seen in unit"),
        ("LoadState=loaded\nActiveState=activating\nControlGroup=/x", "/x", "is not one that runs: loaded, activating"),
        ("LoadState=not-found\nActiveState=inactive", "/x", "is not one that runs: not-found, inactive"),
    ],
)
async def test_what_is_not_sure_to_be_the_engine_is_left_alone(bed: Bed, said: str, group: str, why: str) -> None:
    bed.within(group)
    with pytest.raises(RefusedError, match=why):
        await bed.supervisor(said).restart(TARGET)
    assert "restart" not in bed.calls.read_text()


async def test_a_process_that_is_gone_is_not_seen(bed: Bed) -> None:
    with pytest.raises(RefusedError, match="is not seen"):
        await bed.supervisor(RUNS).probe(Target(engine="llama", instance="i", host="n", pid=99, started_at=0.0))


async def test_what_systemctl_refuses_is_told_in_its_words(bed: Bed) -> None:
    with pytest.raises(SupervisorError, match="ended with 4: Access denied"):
        await bed.supervisor(RUNS, restart=4).restart(TARGET)


@pytest.mark.skipif(
    shutil.which("systemctl") is None or Path("/run/systemd/system").exists(),
    reason="systemd runs here, or is not here",
)
async def test_the_real_systemctl_without_a_systemd_is_a_refusal() -> None:
    with pytest.raises(RefusedError, match="systemctl"):
        await SystemdSupervisor("vllm.service", 10.0).probe(TARGET)
