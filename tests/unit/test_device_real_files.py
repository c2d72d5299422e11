"""States seeded from real ``nvidia-smi -q -x`` outputs: the readings are the file's values."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from agent.sources.device.names import COMPUTE_MODES
from agent.sources.device.state import GpuState
from tests.bed.nvml import MIB, Gpu, Instance, Memory, Process
from tests.bed.nvml.stage import Stage

FOLDER = Path(__file__).parents[2].parent / "shared" / "data" / "nvidia_smi"
FILES = sorted(FOLDER.glob("*.xml"))
# nvidia-smi's names of the bits, in their order.
REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clocks_setting",
)

needs_files = pytest.mark.skipif(not FILES, reason=f"no real files at {FOLDER}")


def number(node: ET.Element, path: str) -> int | None:
    """The number at ``path`` without its unit; None for N/A and for what is not there."""
    found = re.match(r"\s*(\d+)", node.findtext(path) or "")
    return int(found[1]) if found else None


def numbers(node: ET.Element, *paths: str) -> tuple[int, ...] | None:
    """All of them, or None when one is N/A."""
    found = tuple(number(node, path) for path in paths)
    return None if None in found else found


def flag(node: ET.Element, path: str) -> int | None:
    return {"Yes": 1, "Enabled": 1, "Active": 1, "No": 0, "Disabled": 0, "Not Active": 0}.get(node.findtext(path) or "")


def active(node: ET.Element) -> list[str]:
    groups = [node.find(name) for name in ("clocks_event_reasons", "clocks_throttle_reasons")]
    found = next(group for group in groups if group is not None)
    return [re.sub("clocks_(event|throttle)_reason_", "", each.tag) for each in found if each.text == "Active"]


def memory_of(node: ET.Element) -> Memory:
    total, used, free, reserved = numbers(node.find("fb_memory_usage"), "total", "used", "free", "reserved")
    return Memory(total=total * MIB, used=used * MIB, free=free * MIB, reserved=reserved * MIB)


def ecc_of(node: ET.Element) -> tuple[int, ...] | None:
    found = []
    for span in ("volatile", "aggregate"):
        for kind in ("correctable", "uncorrectable"):
            counts = numbers(node, *(f"ecc_errors/{span}/{where}_{kind}" for where in ("sram", "dram")))
            if counts is None:
                return None
            found.append(sum(counts))
    return tuple(found)


def remapped_of(node: ET.Element) -> tuple[int, ...] | None:
    rows = numbers(node, "remapped_rows/remapped_row_corr", "remapped_rows/remapped_row_unc")
    flags = [flag(node, f"remapped_rows/remapped_row_{name}") for name in ("pending", "failure")]
    return None if rows is None or None in flags else (*rows, *flags)


def retired_of(node: ET.Element) -> tuple[int, ...] | None:
    causes = ("multiple_single_bit_retirement", "double_bit_retirement")
    pages = numbers(node, *(f"retired_pages/{cause}/retired_count" for cause in causes))
    return None if pages is None else (*pages, flag(node, "retired_pages/pending_retirement"))


def gpu_of(node: ET.Element) -> Gpu:
    devices = node.findall("mig_devices/mig_device")
    mask = sum(1 << REASONS.index(name) for name in active(node))
    mig = flag(node, "mig_mode/current_mig")
    return Gpu(
        uuid=node.findtext("uuid"),
        name=node.findtext("product_name"),
        memory=memory_of(node),
        bar1=numbers(node, "bar1_memory_usage/total", "bar1_memory_usage/used")
        and tuple(MIB * each for each in numbers(node, "bar1_memory_usage/total", "bar1_memory_usage/used")),
        utilisation=numbers(node, "utilization/gpu_util", "utilization/memory_util"),
        throttle=mask,
        ecc=ecc_of(node),
        remapped=remapped_of(node),
        retired=retired_of(node),
        mig=None if mig is None else bool(mig),
        compute_mode=COMPUTE_MODES.index(node.findtext("compute_mode").lower()),
        instances=tuple(
            Instance(number(each, "gpu_instance_id"), memory_of(each), number(each, "compute_instance_id"))
            for each in devices
        ),
        processes=tuple(
            Process(number(each, "pid"), number(each, "used_memory") * MIB, kind)
            for each in node.findall("processes/process_info")
            for kind in each.findtext("type").split("+")
        ),
    )


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def read(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ET.Element, GpuState]:
    """A GPU of a file, and what we read of a driver that says the same."""
    root = ET.parse(request.param).getroot()  # noqa: S314 (our own files)
    nodes = root.findall("gpu")
    with Stage(tmp_path) as stage:
        stage.play(*map(gpu_of, nodes), driver=root.findtext("driver_version"))
        state = stage.read()
    assert state.driver == root.findtext("driver_version")
    assert len(state.gpus) == len(nodes)
    return nodes[0], state.gpus[0]


@needs_files
def test_there_are_files_of_three_kinds() -> None:
    assert len(FILES) >= 3


@needs_files
def test_identity_and_memory_are_the_files(read: tuple[ET.Element, GpuState]) -> None:
    node, gpu = read
    assert (gpu.uuid, gpu.name, gpu.up) == (node.findtext("uuid"), node.findtext("product_name"), True)
    assert gpu.compute_mode == node.findtext("compute_mode").lower()
    for kind in ("total", "used", "free", "reserved"):
        assert getattr(gpu.memory, kind) == number(node, f"fb_memory_usage/{kind}") * MIB
    assert (gpu.bar1.total, gpu.bar1.used) == (
        number(node, "bar1_memory_usage/total") * MIB,
        number(node, "bar1_memory_usage/used") * MIB,
    )
    assert gpu.unavailable == {}


@needs_files
def test_processes_and_instances_are_the_files(read: tuple[ET.Element, GpuState]) -> None:
    node, gpu = read
    listed = {
        (number(each, "pid"), number(each, "used_memory") * MIB, each.findtext("type"))
        for each in node.findall("processes/process_info")
    }
    assert {(each.pid, each.used_bytes, each.kind) for each in gpu.processes.rows} == listed
    devices = node.findall("mig_devices/mig_device")
    assert [each.gpu for each in gpu.instances] == [f"0/{number(each, 'gpu_instance_id')}" for each in devices]
    for device, instance in zip(devices, gpu.instances, strict=True):
        for kind in ("total", "used", "free", "reserved"):
            assert getattr(instance.memory, kind) == number(device, f"fb_memory_usage/{kind}") * MIB


@needs_files
def test_load_and_health_are_the_files_and_what_is_not_there_is_absent(read: tuple[ET.Element, GpuState]) -> None:
    node, gpu = read
    assert gpu.throttle is not None
    assert [name.replace("clock_setting", "clocks_setting") for name in gpu.throttle] == active(node)
    rates = numbers(node, "utilization/gpu_util", "utilization/memory_util")
    found = gpu.utilisation and (gpu.utilisation.gpu * 100, gpu.utilisation.memory * 100)
    assert found == rates
    ecc = gpu.ecc and (gpu.ecc.corrected, gpu.ecc.uncorrected, gpu.ecc.corrected_ever, gpu.ecc.uncorrected_ever)
    assert ecc == ecc_of(node)
    rows = gpu.remapped_rows
    assert (rows and (rows.corrected, rows.uncorrected, rows.pending, rows.failed)) == remapped_of(node)
    pages = gpu.retired_pages
    assert (pages and (pages.single_bit, pages.double_bit, pages.pending)) == retired_of(node)
    missing = {"utilisation": rates, "ecc": ecc, "remapped_rows": remapped_of(node), "retired_pages": retired_of(node)}
    assert {name for name, value in missing.items() if value is None} == set(gpu.unsupported) - {"mig"}
