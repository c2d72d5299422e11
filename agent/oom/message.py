"""Messages of failed allocations as values: torch of all ages, its asynchronous allocator, the libraries, vLLM.

Each number is looked for by itself, so that a message in a form that nobody has seen yet still gives what it has. Sizes
are bytes; what a message does not say is None.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

# torch: its caching allocator. async: cudaMallocAsync. driver: CUDA or HIP itself, without numbers. library: cuBLAS,
# cuDNN and so on. collective: NCCL. startup, profiling, kv_cache, context: vLLM, before it serves. host: the kernel has
# killed a process for host memory.
Source = Literal[
    "torch", "async", "driver", "library", "collective", "startup", "profiling", "kv_cache", "context", "host"
]

_UNITS = {"byte": 1, "bytes": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "kb": 2**10}
_MAX_TEXT = 4000
_MAX_PROCESSES = 32
# Bounded, and from a number's beginning only: a message of a thousand digits must cost no more than another.
_SIZE = r"(?<![\d.])(-?\d{1,20}(?:\.\d{1,20})?)\s*(bytes?|[KMGT]iB|B)\b"


class OomMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What a message says.

    ``device``: as torch counts in that process. ``total``: the device; ``limit``: what this process may take of it;
    ``free``: free on the device. ``own``: this process by the driver, all of it; ``processes``: pid and bytes of those
    that the message lists by pid, this one may be among them. ``allocated``, ``reserved``, ``unallocated`` (reserved
    and not allocated) and ``private`` (of the allocated, in private pools) are torch's. ``needed``, ``available``: what
    vLLM wants and has.
    """

    source: Source
    requested: int | None = None
    device: int | None = None
    total: int | None = None
    limit: int | None = None
    free: int | None = None
    own: int | None = None
    processes: tuple[tuple[int, int], ...] = ()
    allocated: int | None = None
    reserved: int | None = None
    unallocated: int | None = None
    private: int | None = None
    needed: int | None = None
    available: int | None = None


# In this order: the first that is found says whose message it is.
_WORDS: tuple[tuple[Source, str], ...] = (
    ("host", r"Memory cgroup out of memory|Out of memory: Kill"),
    ("async", r"would exceed allowed memory"),
    ("torch", r"(?:CUDA|HIP|XPU) out of memory.*Tried to allocate"),
    ("startup", r"Free memory on device .* (?:is less than|on startup)"),
    ("profiling", r"Error in memory profiling"),
    ("kv_cache", r"No available memory for the cache blocks"),
    ("context", r"KV cache is needed, which is larger than"),
    ("library", r"CU\w+_STATUS_ALLOC_FAILED|HIPBLAS_STATUS_ALLOC_FAILED"),
    ("collective", r"(?:NCCL|RCCL).*out of memory|(?:Cuda|HIP) failure (?:2 )?'?out of memory"),
    ("driver", r"(?:CUDA|HIP)(?: driver)? error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"),
    ("torch", r"(?:CUDA|HIP|XPU) out of memory|OutOfMemoryError"),
)
# In lower case: without regard to case a pattern takes ten times as long to find that there is nothing.
_SOURCES = tuple((source, re.compile(pattern.lower())) for source, pattern in _WORDS)
_SIZES: dict[str, tuple[re.Pattern[str], ...]] = {
    name: tuple(re.compile(pattern.replace("SIZE", _SIZE), re.IGNORECASE) for pattern in patterns)
    for name, patterns in {
        "requested": (r"Tried to allocate SIZE", r"Requested\s*:\s*SIZE"),
        "total": (r"total capac(?:i)?ty of SIZE", r"SIZE total capac(?:i)?ty", r"Device limit\s*:\s*SIZE"),
        "limit": (r"SIZE allowed\b", r"PyTorch limit \([^)]*\)\s*:\s*SIZE"),
        "free": (r"of which SIZE is free", r"[;,] SIZE free\b", r"Free \(according to \w+\)\s*:\s*SIZE"),
        "own": (r"this process has SIZE memory in use",),
        "allocated": (
            r"Of the allocated memory SIZE is allocated by PyTorch",
            r"SIZE already allocated",
            r"Currently allocated\s*:\s*SIZE",
        ),
        "reserved": (r"SIZE reserved in total by PyTorch", r"SIZE cached\b"),
        "unallocated": (r"SIZE is reserved by PyTorch but unallocated",),
        "private": (r"with SIZE allocated in private pools",),
        "needed": (r"SIZE KV cache is needed",),
        "available": (r"available KV cache memory \(SIZE\)",),
    }.items()
}
_DEVICE = re.compile(r"\bGPU (\d{1,15})\b|on device (?:cuda:|hip:)?(\d{1,15})\b")
_PROCESS = re.compile(rf"Process (\d{{1,15}}) has {_SIZE} memory in use", re.IGNORECASE)
_STARTUP = re.compile(
    r"Free memory on device (?:\S+ )?\((\d{1,15}(?:\.\d{1,15})?)/(\d{1,15}(?:\.\d{1,15})?) GiB\)", re.IGNORECASE
)
_WANTED = re.compile(r"\((?:\d{0,15}\.)?\d{1,15}, (\d{1,15}(?:\.\d{1,15})?) GiB\)")
_PROFILED = re.compile(
    r"Initial free memory (\d{1,15}(?:\.\d{1,15})?) GiB, current free memory (\d{1,15}(?:\.\d{1,15})?) GiB",
    re.IGNORECASE,
)
_GIB = 2**30


def parse(text: str) -> OomMessage | None:
    """Return what ``text`` says, or None when it is no message of a failed allocation."""
    text = " ".join(text[:_MAX_TEXT].split())
    lower = text.lower()
    source = next((name for name, pattern in _SOURCES if pattern.search(lower)), None)
    if source is None:
        return None
    if source == "host":  # its numbers are of another memory
        return OomMessage(source=source)
    values = {name: _first(patterns, text) for name, patterns in _SIZES.items()}
    if source == "startup" and (found := _STARTUP.search(text)):
        wanted = _WANTED.search(text, found.end())
        values["free"], values["total"] = _gib(found[1]), _gib(found[2])
        values["needed"] = _gib(wanted[1]) if wanted else None
    if source == "profiling" and (found := _PROFILED.search(text)):
        values["free"] = _gib(found[2])
    device = _DEVICE.search(text)
    return OomMessage(
        source=source,
        device=int(device[1] or device[2]) if device else None,
        processes=tuple(
            (int(pid), size)
            for pid, number, unit in _PROCESS.findall(text)[:_MAX_PROCESSES]
            if (size := _bytes(number, unit)) is not None
        ),
        **values,
    )


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    found = next((match for pattern in patterns if (match := pattern.search(text))), None)
    return _bytes(found[1], found[2]) if found else None


def _bytes(number: str, unit: str) -> int | None:
    """A size; None below zero: there is no such thing, although it has been printed."""
    size = round(float(number) * _UNITS[unit.lower()])
    return size if 0 <= size < 2**60 else None


def _gib(number: str) -> int:
    return round(float(number) * _GIB)
