"""GPUs, through NVML. ``gpu``: the index, or ``0/3`` for MIG instance 3 of GPU 0, whose memory is part of GPU 0's."""

from __future__ import annotations

from exporters.catalogue.base import Metric

_GPU = ("gpu",)

GPU_DRIVER_INFO = Metric(
    "kvtide_gpu_driver_info",
    "gauge",
    "info",
    ("driver", "cuda"),
    "The NVIDIA driver, and the newest CUDA that it speaks.",
)
GPU_INFO = Metric(
    "kvtide_gpu_info",
    "gauge",
    "info",
    ("gpu", "uuid", "name", "parent"),
    "A GPU or a MIG instance, then with its parent; the label stays with the uuid as long as the agent runs.",
)
GPU_UP = Metric(
    "kvtide_gpu_up",
    "gauge",
    "boolean",
    _GPU,
    "1 while the driver answers for this GPU; at 0 it is lost or the driver hangs, /api/v1/state says which.",
)
GPU_FIELD_UP = Metric(
    "kvtide_gpu_field_up",
    "gauge",
    "boolean",
    ("gpu", "field"),
    "0 for what failed or hangs in the driver; what this GPU or driver does not have has no series.",
    detail=True,
)
GPU_MEMORY = Metric(
    "kvtide_gpu_memory_bytes",
    "gauge",
    "bytes",
    ("gpu", "kind"),
    "Device memory: total, used by clients, free, reserved by the driver; without reserved, used includes it.",
)
GPU_UNIFIED = Metric(
    "kvtide_gpu_unified_memory",
    "gauge",
    "boolean",
    _GPU,
    "1 for a GPU that tells no memory of its own because it shares the host's.",
    detail=True,
)
GPU_PROCESSES = Metric(
    "kvtide_gpu_processes", "gauge", "processes", _GPU, "Processes with a context on this GPU or instance.", detail=True
)
GPU_SHARED = Metric(
    "kvtide_gpu_shared_processes",
    "gauge",
    "processes",
    (*_GPU, "through"),
    "Processes that compute on this GPU or instance and are not of kvtide's engines, by how they share it: mps, at the "
    "same time, or time_slicing, by turns. Levers are not pulled where there is one, unless actions.shared_gpu.",
    detail=True,
)
GPU_BAR1_USED = Metric(
    "kvtide_gpu_bar1_used_bytes",
    "gauge",
    "bytes",
    _GPU,
    "Used part of the window through which others reach its memory.",
    detail=True,
)
GPU_BAR1_SIZE = Metric("kvtide_gpu_bar1_size_bytes", "gauge", "bytes", _GPU, "Size of that window.", detail=True)
GPU_UTILISATION = Metric(
    "kvtide_gpu_utilisation_ratio",
    "gauge",
    "ratio",
    _GPU,
    "Share of the driver's sampling period in which a kernel ran: busy is not the same as well used.",
)
GPU_MEMORY_UTILISATION = Metric(
    "kvtide_gpu_memory_utilisation_ratio",
    "gauge",
    "ratio",
    _GPU,
    "Share of the driver's sampling period in which device memory was read or written; not how full it is.",
    detail=True,
)
GPU_THROTTLED = Metric(
    "kvtide_gpu_throttled",
    "gauge",
    "boolean",
    ("gpu", "reason"),
    "1 while clocks are below what was asked for, for this reason; gpu_idle is no harm.",
    detail=True,
)
GPU_ECC = Metric(
    "kvtide_gpu_ecc_errors_total",
    "counter",
    "errors",
    ("gpu", "kind"),
    "Memory errors since the driver was loaded: corrected, uncorrected.",
)
GPU_ECC_EVER = Metric(
    "kvtide_gpu_ecc_errors_lifetime_total",
    "counter",
    "errors",
    ("gpu", "kind"),
    "Memory errors in the card's life: corrected, uncorrected.",
    detail=True,
)
GPU_REMAPPED = Metric(
    "kvtide_gpu_remapped_rows",
    "gauge",
    "rows",
    ("gpu", "kind"),
    "Rows of memory replaced by spare ones after corrected or uncorrected errors.",
    detail=True,
)
GPU_REMAP_PENDING = Metric(
    "kvtide_gpu_row_remap_pending",
    "gauge",
    "boolean",
    _GPU,
    "1 when rows are to be replaced at the next reset.",
    detail=True,
)
GPU_REMAP_FAILED = Metric(
    "kvtide_gpu_row_remap_failed",
    "gauge",
    "boolean",
    _GPU,
    "1 when a spare row was lacking: replace the card.",
    detail=True,
)
GPU_RETIRED = Metric(
    "kvtide_gpu_retired_pages",
    "gauge",
    "pages",
    ("gpu", "kind"),
    "Pages of memory out of use after single_bit or double_bit errors.",
    detail=True,
)
GPU_RETIRE_PENDING = Metric(
    "kvtide_gpu_page_retirement_pending",
    "gauge",
    "boolean",
    _GPU,
    "1 when pages go out of use at the next reset.",
    detail=True,
)
GPU_XID = Metric(
    "kvtide_gpu_xid_errors_total",
    "counter",
    "errors",
    ("gpu", "xid"),
    "Errors that the driver reported (XIDs) since the agent watches.",
)
GPU_MIG = Metric(
    "kvtide_gpu_mig_enabled", "gauge", "boolean", _GPU, "1 while this GPU is cut into MIG instances.", detail=True
)
