"""Messages of failed allocations: each number is found where it stands, and nothing else is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.oom.judge import judge
from agent.oom.message import OomMessage, parse

MIB, GIB = 2**20, 2**30
REAL = Path(__file__).parents[3] / "shared" / "data" / "torch" / "oom_messages.txt"

TORCH_1 = (
    "CUDA out of memory. Tried to allocate 2.00 MiB (GPU 1; 4.00 GiB total capacity; 3.00 GiB already allocated; "
    "0 bytes free; 3.50 GiB allowed; 3.25 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory"
)
TORCH_1_OLDEST = (
    "CUDA out of memory. Tried to allocate 1.50 KiB (GPU 0; 2.00 GiB total capacity; 1.00 GiB already allocated; "
    "5.00 MiB free; 8.00 MiB cached)"
)
TORCH_2_5 = (
    "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 2 has a total capacity of 80.00 GiB of which 100.00 MiB is "
    "free. Process 41 has 10.00 GiB memory in use. Including non-PyTorch memory, this process has 69.00 GiB memory in "
    "use. 72.00 GiB allowed; Of the allocated memory 60.00 GiB is allocated by PyTorch, with 5.00 GiB allocated in "
    "private pools (e.g., CUDA Graphs), and 2.00 GiB is reserved by PyTorch but unallocated. If reserved but"
)
ASYNC = """Allocation on device 3 would exceed allowed memory. (out of memory)
Currently allocated     : 10.00 GiB
Requested               : 2.00 GiB
Device limit            : 16.00 GiB
Free (according to CUDA): 1.00 GiB
PyTorch limit (set by user-supplied memory fraction)
                        : 17179869184.00 GiB"""
ASYNC_LIMITED = ASYNC.replace("17179869184.00 GiB", "12.00 GiB")


def test_torch_1() -> None:
    assert parse(TORCH_1) == OomMessage(
        source="torch",
        requested=2 * MIB,
        device=1,
        total=4 * GIB,
        limit=round(3.5 * GIB),
        free=0,
        allocated=3 * GIB,
        reserved=round(3.25 * GIB),
    )
    oldest = parse(TORCH_1_OLDEST)
    assert oldest is not None
    assert (oldest.requested, oldest.free, oldest.reserved) == (1536, 5 * MIB, 8 * MIB)


@pytest.mark.parametrize("backend", ["CUDA", "HIP"])
def test_torch_2_with_everything(backend: str) -> None:
    assert parse(TORCH_2_5.replace("CUDA out", f"{backend} out")) == OomMessage(
        source="torch",
        requested=512 * MIB,
        device=2,
        total=80 * GIB,
        limit=72 * GIB,
        free=100 * MIB,
        own=69 * GIB,
        processes=((41, 10 * GIB),),
        allocated=60 * GIB,
        unallocated=2 * GIB,
        private=5 * GIB,
    )


def test_the_asynchronous_allocator() -> None:
    said = parse(ASYNC_LIMITED)
    assert said == OomMessage(
        source="async",
        requested=2 * GIB,
        device=3,
        total=16 * GIB,
        limit=12 * GIB,
        free=GIB,
        allocated=10 * GIB,
    )
    unlimited = parse(ASYNC)
    assert unlimited is not None
    assert unlimited.limit is None, "no limit is printed as the largest number there is"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "library"),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "library"),
        ("HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`", "library"),
        ("NCCL error in: x.cpp:1, unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'", "collective"),
        (
            "ncclUnhandledCudaError: Call to CUDA function failed. Last error: Cuda failure 'out of memory'",
            "collective",
        ),
        ("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", "driver"),
        ("CUDA driver error: out of memory", "driver"),
        ("HIP error: out of memory", "driver"),
        ("RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:163", "driver"),
        ("cuMemCreate failed with CUDA_ERROR_OUT_OF_MEMORY", "driver"),
        ("CUDA out of memory occurred when warming up sampler with 256 dummy requests.", "torch"),
        ("No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "kv_cache"),
    ],
)
def test_messages_without_numbers(text: str, source: str) -> None:
    said = parse(text)
    assert said is not None
    assert said.source == source
    assert (said.requested, said.free, said.total) == (None, None, None)


def test_vllms_own_words() -> None:
    startup = parse(
        "ValueError: Free memory on device cuda:1 (13.2/14.74 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, 13.27 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )
    assert startup is not None
    assert (startup.source, startup.device) == ("startup", 1)
    assert (startup.free, startup.total, startup.needed) == tuple(round(n * GIB) for n in (13.2, 14.74, 13.27))
    context = parse(
        "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (4.98 GiB). Based on the available memory, ..."
    )
    assert context is not None
    assert (context.source, context.needed, context.available) == ("context", 16 * GIB, round(4.98 * GIB))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "CUDA driver error: device not ready",
        "CUDA error: an illegal memory access was encountered",
        "ValueError: 5.00 GiB is free",
        "the memory is out of order",
        "KV cache is full: 5 MiB free",
    ],
)
def test_what_is_none(text: str) -> None:
    assert parse(text) is None
    assert judge(text) is None


@given(st.text(max_size=300))
def test_any_text_gives_a_value_or_nothing(text: str) -> None:
    parse(text)
    said = parse(f"CUDA out of memory. Tried to allocate 1.00 MiB. {text}")
    assert said is not None
    assert said.requested == MIB


def test_a_size_below_zero_is_none() -> None:
    said = parse(TORCH_2_5.replace("100.00 MiB", "-100.00 MiB"))
    assert said is not None
    assert (said.free, said.total) == (None, 80 * GIB)


def test_a_long_message_is_cut() -> None:
    said = parse("CUDA out of memory. Tried to allocate 1.00 MiB." + "x" * 100_000 + " of which 5.00 MiB is free")
    assert said is not None
    assert (said.requested, said.free) == (MIB, None)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("vllm#783", ("torch", "foreign")),
        ("vllm#2140", ("torch", "out")),
        ("taggui#188", ("torch", "unusable")),
        ("vllm#12529", ("torch", "unusable")),
        ("pytorch#152135", ("torch", "fragmented")),
        ("vllm#34643", ("torch", "out")),
        ("vllm#47654", ("driver", "unknown")),
        ("WSL#41176", None),
        ("vllm#56830", ("profiling", "foreign")),
        ("dcgm-exporter#702", ("host", "host")),
    ],
)
def test_real_messages(source: str, expected: tuple[str, str] | None) -> None:
    if not REAL.exists():
        pytest.skip("the recorded messages are not here (../shared/data)")
    (text,) = [line.split("\t")[1] for line in REAL.read_text().splitlines() if line.startswith(source)]
    said, judged = parse(text), judge(text)
    assert (said and judged and (said.source, judged.cause)) == expected
    if expected and expected[0] == "torch":
        assert said is not None
        assert None not in (said.requested, said.device, said.total, said.free, said.allocated)


def test_every_real_message_is_looked_at() -> None:
    if not REAL.exists():
        pytest.skip("the recorded messages are not here (../shared/data)")
    assert sum("\t" in line and not line.startswith("#") for line in REAL.read_text().splitlines()) == 10
