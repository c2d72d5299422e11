"""Which exceptions are the device's or its memory's, by what they say: torch gives most of them one type."""

from __future__ import annotations

from collections.abc import Iterator

from engine_hooks.allocator import MAX_HEAD, MEMORY, OOM
from engine_hooks.names import shown

_DEPTH = 6
_READ = 4000  # characters; what matters stands at the beginning
_TRIED = "tried to allocate"
# The first that is found counts. Lower case.
_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        OOM,
        (
            "cuda out of memory",
            "hip out of memory",
            "xpu out of memory",
            "error: out of memory",
            "failure 2 'out of memory'",
            "failure 'out of memory'",
            "would exceed allowed memory",
            "status_alloc_failed",
            "cuda_error_out_of_memory",
            "cudaerrormemoryallocation",
        ),
    ),
    ("illegal_address", ("illegal memory access", "cuda_error_illegal_address")),
    ("launch_failure", ("unspecified launch failure", "cuda_error_launch_failed")),
    ("device_assert", ("device-side assert",)),
    ("ecc", ("uncorrectable ecc", "ecc error", "cuda_error_ecc")),
    ("nvlink", ("nvlink",)),
    ("misaligned_address", ("misaligned address",)),
    ("illegal_instruction", ("illegal instruction was encountered",)),
    ("launch_timeout", ("launch timed out",)),
    (
        "device_lost",
        (
            "gpu is lost",
            "device is lost",
            "no cuda-capable device",
            "cuda-capable device(s) is/are busy or unavailable",
        ),
    ),
    ("collective", ("nccl error", "rccl error", "ncclunhandled", "ncclsystem", "ncclremote")),
    ("library", ("cublas_status_", "cudnn_status_", "cusparse_status_", "cusolver_status_", "cufft_")),
    ("driver", ("cuda error", "cuda driver error", "hip error", "hip driver error")),
    (
        MEMORY,
        (
            "less than desired gpu memory utilization",
            "no available memory for the cache blocks",
            "error in memory profiling",
            "kv cache is needed, which is larger",
        ),
    ),
)


def classify(error: BaseException) -> tuple[str, str] | None:
    """Return the kind and the head of the message of ``error`` or of what it came from; None when it is no such thing.

    An allocation that torch tells of in numbers comes first: wrappers around it have none.
    """
    found: tuple[str, str] | None = None
    for each in chain(error):
        text = str(each)[:_READ]
        kind = _kind(type(each).__name__, text.lower())
        if kind == OOM and _TRIED in text.lower():
            return kind, head_of(each, text)
        if kind is not None and found is None:
            found = kind, head_of(each, text)
    return found


def head_of(error: BaseException, text: str) -> str:
    """Return the first ``MAX_HEAD`` characters, on one line, after the name of the type."""
    line = f"{type(error).__name__}: {' '.join(text.split())}"[:MAX_HEAD]
    return shown(line)


def _kind(name: str, text: str) -> str | None:
    if name == "OutOfMemoryError":
        return OOM
    return next((kind for kind, words in _WORDS if any(word in text for word in words)), None)


def chain(error: BaseException) -> Iterator[BaseException]:
    """``error`` and what it was raised from or while, nearest first."""
    each: BaseException | None = error
    for _ in range(_DEPTH):
        if each is None:
            return
        yield each
        each = each.__cause__ or each.__context__
