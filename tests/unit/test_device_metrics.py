"""The GPUs' series: what is there, what is not, and what a lost GPU still has."""

from __future__ import annotations

from agent.sources.device.names import OTHER, THROTTLE_REASONS
from agent.sources.device.state import FIELDS, FIELDS_OF_INSTANCES, GpuMemory, GpuState, Xid
from exporters.collectors.device import collect, collect_detail
from tests.unit.builders import MIB, make_state
from tests.unit.node_builders import make_devices, make_gpu


def series(*gpus: GpuState) -> dict[tuple[str, ...], float]:
    state = make_state(device=make_devices(*gpus))
    samples = [*collect(state), *collect_detail(state)]
    found = {(sample.metric.name, *sample.labels): sample.value for sample in samples}
    assert len(found) == len(samples)
    return found


def test_numbers_come_out_as_they_went_in() -> None:
    found = series(make_gpu("0"))
    expected = {
        ("kvtide_gpu_driver_info", "580.95.05", "13.0"): 1,
        ("kvtide_gpu_info", "0", "GPU-0", "NVIDIA H100 80GB HBM3", ""): 1,
        ("kvtide_gpu_up", "0"): 1,
        ("kvtide_gpu_memory_bytes", "0", "total"): 81920 * MIB,
        ("kvtide_gpu_memory_bytes", "0", "used"): 61440 * MIB,
        ("kvtide_gpu_memory_bytes", "0", "free"): 19880 * MIB,
        ("kvtide_gpu_memory_bytes", "0", "reserved"): 600 * MIB,
        ("kvtide_gpu_unified_memory", "0"): 0,
        ("kvtide_gpu_processes", "0"): 1,
        ("kvtide_gpu_shared_processes", "0", "time_slicing"): 1,
        ("kvtide_gpu_bar1_used_bytes", "0"): 8 * MIB,
        ("kvtide_gpu_bar1_size_bytes", "0"): 131072 * MIB,
        ("kvtide_gpu_utilisation_ratio", "0"): 0.9,
        ("kvtide_gpu_memory_utilisation_ratio", "0"): 0.5,
        ("kvtide_gpu_ecc_errors_total", "0", "corrected"): 1,
        ("kvtide_gpu_ecc_errors_total", "0", "uncorrected"): 2,
        ("kvtide_gpu_ecc_errors_lifetime_total", "0", "corrected"): 3,
        ("kvtide_gpu_ecc_errors_lifetime_total", "0", "uncorrected"): 4,
        ("kvtide_gpu_remapped_rows", "0", "corrected"): 1,
        ("kvtide_gpu_remapped_rows", "0", "uncorrected"): 2,
        ("kvtide_gpu_row_remap_pending", "0"): 1,
        ("kvtide_gpu_row_remap_failed", "0"): 0,
        ("kvtide_gpu_retired_pages", "0", "single_bit"): 5,
        ("kvtide_gpu_retired_pages", "0", "double_bit"): 6,
        ("kvtide_gpu_page_retirement_pending", "0"): 0,
        ("kvtide_gpu_xid_errors_total", "0", "31"): 2,
        ("kvtide_gpu_mig_enabled", "0"): 0,
    }
    assert {key: found[key] for key in expected} == expected
    assert {key[2]: value for key, value in found.items() if key[0] == "kvtide_gpu_throttled"} == {
        reason: reason == "sw_power_cap" for reason in (*THROTTLE_REASONS, OTHER)
    }
    assert {key[2]: value for key, value in found.items() if key[0] == "kvtide_gpu_field_up"} == dict.fromkeys(
        FIELDS, 1
    )
    counted = len(expected) + len(THROTTLE_REASONS) + 1 + len(FIELDS)
    assert len(found) == counted


def test_a_lost_gpu_keeps_its_name_and_its_xids_only() -> None:
    lost = GpuState(
        gpu="1", uuid="GPU-1", name="H100", index=1, lost="gone", xids=(Xid(code=79, count=1, last_at=1.0),)
    )
    found = series(lost)
    assert {key for key in found if "1" in key} == {
        ("kvtide_gpu_info", "1", "GPU-1", "H100", ""),
        ("kvtide_gpu_up", "1"),
        ("kvtide_gpu_xid_errors_total", "1", "79"),
    }
    assert found["kvtide_gpu_up", "1"] == 0


def test_failed_is_zero_not_there_is_no_series() -> None:
    gpu = make_gpu("0", memory=None, ecc=None, unavailable={"memory": "hangs"}, unsupported={"ecc": "has none"})
    found = series(gpu)
    assert found["kvtide_gpu_field_up", "0", "memory"] == 0
    assert ("kvtide_gpu_field_up", "0", "ecc") not in found
    assert not any(name.startswith(("kvtide_gpu_memory_bytes", "kvtide_gpu_ecc")) for name, *_ in found)


def test_a_gpu_without_reserved_memory_apart_has_no_such_series_and_unified_memory_none_at_all() -> None:
    old = series(make_gpu("0", memory=GpuMemory(total=10, used=4, free=6, reserved=None)))
    assert {key[2] for key in old if key[0] == "kvtide_gpu_memory_bytes"} == {"total", "used", "free"}
    unified = series(make_gpu("0", memory=None, unified=True, unsupported={"memory": "none"}))
    assert unified["kvtide_gpu_unified_memory", "0"] == 1
    assert not any(key[0] == "kvtide_gpu_memory_bytes" for key in unified)


def test_mig_instances_have_series_of_their_own() -> None:
    instance = make_gpu("0/3", parent="0", xids=None)
    found = series(make_gpu("0", mig=True, instances=(instance,)))
    assert found["kvtide_gpu_info", "0/3", "GPU-0/3", "NVIDIA H100 80GB HBM3", "0"] == 1
    assert found["kvtide_gpu_memory_bytes", "0/3", "used"] == 61440 * MIB
    assert {key[2] for key in found if key[:2] == ("kvtide_gpu_field_up", "0/3")} == set(FIELDS_OF_INSTANCES)


def test_codes_beyond_the_bound_are_one_series() -> None:
    found = series(make_gpu("0", xids=(Xid(code=0, count=5, last_at=1.0),)))
    assert found["kvtide_gpu_xid_errors_total", "0", OTHER] == 5


def test_without_the_source_there_is_nothing() -> None:
    state = make_state(device=None)
    assert [*collect(state), *collect_detail(state)] == []
