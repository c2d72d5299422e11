"""What is known of the GPUs, as immutable values."""

from __future__ import annotations

import msgspec

FIELDS_OF_INSTANCES = ("memory", "processes", "mps_processes")
FIELDS = (
    *FIELDS_OF_INSTANCES,
    "graphics_processes",
    "utilisation",
    "throttle",
    "mig",
    "bar1",
    "ecc",
    "remapped_rows",
    "retired_pages",
    "compute_mode",
    "xid",
)


class Value(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of what a reading gives."""


class GpuMemory(Value, frozen=True, kw_only=True):
    """Bytes; ``used`` is what clients hold, ``reserved`` what the driver keeps; ``total = used + free + reserved``.

    ``reserved`` is None where the driver does not tell it apart: ``used`` includes it then.
    """

    total: int
    used: int
    free: int
    reserved: int | None


class GpuProcess(Value, frozen=True, kw_only=True):
    """A process with a context on the GPU, by the host's pid; ``used_bytes`` is None where the driver says N/A."""

    pid: int
    used_bytes: int | None
    kind: str


class GpuProcesses(Value, frozen=True, kw_only=True):
    """The processes with the most memory, those of unknown memory first; ``count`` is of all."""

    rows: tuple[GpuProcess, ...]
    count: int


class Bar1(Value, frozen=True, kw_only=True):
    """Bytes of the window through which others address the GPU's memory."""

    total: int
    used: int


class Utilisation(Value, frozen=True, kw_only=True):
    """Share of the driver's last sampling period in which a kernel ran, and in which memory was moved: 0..1."""

    gpu: float
    memory: float


class EccErrors(Value, frozen=True, kw_only=True):
    """Memory errors since the driver was loaded, and ever."""

    corrected: int
    uncorrected: int
    corrected_ever: int
    uncorrected_ever: int


class RemappedRows(Value, frozen=True, kw_only=True):
    """Rows of memory replaced by spare ones. ``pending``: the next reset replaces more; ``failed``: none was left."""

    corrected: int
    uncorrected: int
    pending: bool
    failed: bool


class RetiredPages(Value, frozen=True, kw_only=True):
    """Pages of memory out of use after single-bit and double-bit errors; ``pending``: more at the next reset."""

    single_bit: int
    double_bit: int
    pending: bool


class Xid(Value, frozen=True, kw_only=True):
    """An error that the driver reported; ``count`` since the agent watches, ``last_at`` in Unix seconds."""

    code: int
    count: int
    last_at: float


class GpuState(Value, frozen=True, kw_only=True):
    """One GPU, or one MIG instance of a GPU.

    ``gpu`` is its label: the index as NVML counted when the GPU was first seen, ``0/3`` for GPU instance 3 of GPU 0; it
    stays with the card (by ``uuid``) when others are removed. ``index`` is what NVML counts now.
    ``lost`` and ``silent`` are empty for a GPU that works; otherwise the one says what the driver says of a GPU that is
    gone, the other that the driver does not answer for it. A lost GPU has its identity and its XIDs, nothing else.
    ``unavailable``: fields that failed, by their reason; ``unsupported``: fields that this GPU or driver does not have.
    ``unified``: the GPU has no memory of its own, so no sum of it is claimed.
    ``instances``: this GPU's MIG instances, ``parent`` is theirs; ``compute_instances``: uuids of all in this instance.
    """

    gpu: str
    uuid: str | None
    name: str | None
    index: int | None
    parent: str | None = None
    lost: str = ""
    silent: str = ""
    unified: bool = False
    memory: GpuMemory | None = None
    processes: GpuProcesses | None = None
    bar1: Bar1 | None = None
    utilisation: Utilisation | None = None
    throttle: tuple[str, ...] | None = None
    ecc: EccErrors | None = None
    remapped_rows: RemappedRows | None = None
    retired_pages: RetiredPages | None = None
    compute_mode: str | None = None
    mig: bool | None = None
    instances: tuple[GpuState, ...] = ()
    compute_instances: tuple[str, ...] = ()
    xids: tuple[Xid, ...] | None = None
    unavailable: dict[str, str] = {}
    unsupported: dict[str, str] = {}

    @property
    def up(self) -> bool:
        """The driver reads this GPU."""
        return not self.lost and not self.silent


class DevicesState(Value, frozen=True, kw_only=True):
    """All GPUs of this node. ``cuda_driver``: the newest CUDA that the driver speaks, such as ``13.0``."""

    driver: str | None
    cuda_driver: str | None
    gpus: tuple[GpuState, ...]
