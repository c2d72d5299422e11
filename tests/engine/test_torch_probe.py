"""The torch probe in real processes: the torch of this machine (built for the CPU), real workers of vLLM, a real agent.

What only a GPU has is scripted at its boundary in tests/unit/test_allocator_*.py, and run in tests/gpu.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from engine_hooks.torch.cuda import Cuda, UnsupportedError
from engine_hooks.torch.errors import classify
from tests.bed.agent import AgentProcess
from tests.bed.fake_torch import FakeTorch
from tests.bed.scheduler import MODEL_DIR

ROOT = Path(__file__).parents[2]

ATTACH = """
import sys
from engine_hooks.torch import attach
assert "torch" not in sys.modules
handle = attach("train job")
assert attach() is handle
print("ATTACHED", flush=True)
sys.stdin.readline()
import torch
torch.ones(1000)
print("TORCH", torch.cuda.is_initialized(), flush=True)
sys.stdin.readline()
handle.close()
print("CLOSED", flush=True)
sys.stdin.readline()
"""

LOADING_FAILS = """
import sys, torch
from vllm import LLM
from vllm.v1.worker.cpu_worker import CPUWorker
def load_model(self, *args, **kwargs):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 250.00 MiB. GPU 0 has a total capacity of "
        "79.26 GiB of which 104.75 MiB is free. Process 1001 has 79.14 GiB memory in use. Of the allocated memory "
        "74.77 GiB is allocated by PyTorch, and 3.87 GiB is reserved by PyTorch but unallocated.")
CPUWorker.load_model = load_model
try:
    LLM(sys.argv[1], dtype="float32", max_model_len=1024, enforce_eager=True, disable_log_stats=True)
except torch.OutOfMemoryError as error:
    print("RAISED", type(error).__name__, flush=True)
sys.stdin.readline()
"""

STEP_FAILS = """
import sys
from vllm import LLM, SamplingParams
llm = LLM(sys.argv[1], dtype="float32", max_model_len=1024, enforce_eager=True, block_size=32,
          num_gpu_blocks_override=200, disable_log_stats=True)
def generate():
    llm.generate([{"prompt_token_ids": list(range(3, 40))}], SamplingParams(max_tokens=5), use_tqdm=False)
generate()
print("SERVED", flush=True)
sys.stdin.readline()
worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
def execute_model(*args, **kwargs):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
worker.model_runner.execute_model = execute_model
try:
    generate()
except Exception as error:
    print("RAISED", error, flush=True)
sys.stdin.readline()
"""


class Child:
    """A script in a process of its own, that goes on when told to."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._errors = errors

    def says(self, word: str) -> str:
        """Wait for a line that begins with ``word``; return the rest."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word).strip()
        raise AssertionError(self._errors.read_text()[-3000:])

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()


@contextmanager
def running(script: str, agent: AgentProcess, errors: Path, *args: str) -> Iterator[Child]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("KVTIDE")}
    env |= agent.engine_env() | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
    }
    with errors.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *args],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield Child(process, errors)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def agent() -> Iterator[AgentProcess]:
    # The folder's path must be short enough for a socket; tmp_path is not.
    with tempfile.TemporaryDirectory(prefix="kvtide-") as folder, AgentProcess(Path(folder)) as found:
        yield found


def processes(agent: AgentProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = agent.state()["processes"]
    return found


def test_a_process_of_its_own_is_seen_from_attach_to_close(agent: AgentProcess, tmp_path: Path) -> None:
    with running(ATTACH, agent, tmp_path / "errors") as child:
        child.says("ATTACHED")
        agent.wait(lambda: [process["up"] for process in processes(agent)] == [True])
        (process,) = processes(agent)
        assert (process["process"], process["role"], process["pid"]) == ("train_job", "torch", child.pid)
        assert process["allocator"]["row"]["reason"] == "no CUDA in this process: torch is not loaded"
        assert agent.state()["unjoined_members"] == 0
        child.go_on()
        assert child.says("TORCH") == "False", "being watched must not initialise CUDA"
        without = "no CUDA in this process: this torch was built without it"
        agent.wait(lambda: processes(agent)[0]["allocator"]["row"]["reason"] == without)
        page = agent.get("/metrics")
        assert 'kvtide_allocator_up{engine="",process="train_job",role="torch",rank="0"} 0.0' in page
        assert 'kvtide_torch_process_up{process="train_job"} 1.0' in page
        assert "kvtide_allocator_reserved_bytes{" not in page, "absent is not zero"
        child.go_on()
        child.says("CLOSED")
        agent.wait(lambda: processes(agent) == [])


def test_a_process_that_is_killed_is_gone(agent: AgentProcess, tmp_path: Path) -> None:
    with running(ATTACH, agent, tmp_path / "errors") as child:
        child.says("ATTACHED")
        agent.wait(lambda: len(processes(agent)) == 1)
        child.kill()
        agent.wait(lambda: processes(agent) == [])


def test_a_worker_that_fails_while_it_loads_is_told_of_although_no_engine_came_up(
    agent: AgentProcess, tmp_path: Path
) -> None:
    with running(LOADING_FAILS, agent, tmp_path / "errors", str(MODEL_DIR)) as child:
        assert child.says("RAISED") == "OutOfMemoryError"
        agent.wait(lambda: len(agent.state()["failures"]) == 1)
        (failure,) = agent.state()["failures"]
        event = failure["event"]
        assert (event["kind"], event["where"], event["count"]) == ("oom", "load_model", 1)
        assert failure["judgement"]["cause"] == "fragmented"
        child.kill()
        agent.wait(lambda: agent.state()["unjoined_members"] == 0)
        assert agent.state()["failures"] == [failure], "what was told stays"
        assert agent.metrics()["kvtide_memory_failures_total"] == 1


def test_a_step_that_fails_is_told_of_and_its_error_goes_on(agent: AgentProcess, tmp_path: Path) -> None:
    with running(STEP_FAILS, agent, tmp_path / "errors", str(MODEL_DIR)) as child:
        child.says("SERVED")
        agent.wait_live()
        agent.wait(lambda: any(member["worker"] for member in agent.engine()["members"]))
        (worker,) = agent.engine()["members"]
        assert worker["allocator"]["row"]["reason"] == "no CUDA in this process: this torch was built without it"
        assert worker["worker"]["kv_bytes"] > 0
        assert agent.state()["failures"] == []
        child.go_on()
        assert child.says("RAISED") == "CUDA error: an illegal memory access was encountered"
        agent.wait(lambda: len(agent.state()["failures"]) == 1)
        (failure,) = agent.state()["failures"]
        assert (failure["event"]["kind"], failure["event"]["where"]) == ("illegal_address", "execute_model")
        assert (failure["role"], failure["rank"], failure["pid"], failure["judgement"]) == (
            "worker",
            0,
            child.pid,
            None,
        )
        assert failure["engine"] == agent.engine()["engine"]


# -- this machine's torch against what the tests pretend it to be --------------------------------------------


def test_real_exceptions_of_torch_are_known() -> None:
    for kind in (torch.OutOfMemoryError, torch.cuda.OutOfMemoryError):
        assert classify(kind("no words that say so")) == ("oom", "OutOfMemoryError: no words that say so")
    if hasattr(torch, "AcceleratorError"):
        assert issubclass(torch.AcceleratorError, RuntimeError)
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert classify(caught.value) is None


def test_names_and_arguments_that_the_fake_has_are_torchs_own() -> None:
    import inspect

    fake = FakeTorch()
    for name in ("is_initialized", "device_count", "get_device_properties", "memory_snapshot"):
        assert callable(getattr(torch.cuda, name))
    assert set(inspect.signature(fake.cuda.memory_snapshot).parameters) == set(
        inspect.signature(torch.cuda.memory_snapshot).parameters
    )
    ours = set(inspect.signature(fake.cuda.memory._record_memory_history).parameters)
    assert ours <= set(inspect.signature(torch.cuda.memory._record_memory_history).parameters)
    assert callable(torch.cuda.memory._snapshot)
    stubs = Path(torch.__file__).with_name("_C") / "__init__.pyi"
    told = stubs.read_text() if stubs.exists() else ""
    for name in ("_cuda_memoryStats", "_cuda_memorySnapshot", "_cuda_getAllocatorBackend", "_cuda_isHistoryEnabled"):
        assert hasattr(fake._C, name)
        assert f"def {name}(" in told


def test_what_this_torch_lacks_is_unsupported_and_not_an_error() -> None:
    assert Cuda().absent() == "no CUDA in this process: this torch was built without it"
    with pytest.raises(UnsupportedError, match="observer"):
        Cuda().attach_observer(lambda *_: None)
