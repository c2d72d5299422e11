"""The hooks inside vLLM's real EngineCore: they watch, and whatever goes wrong in them the engine never sees it."""

from __future__ import annotations

import gc
import logging
import os
import random
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.engine.core import DPEngineCoreProc, EngineCore, EngineCoreProc

from engine_hooks import plugin, wire
from engine_hooks.core import hook as core_hook
from engine_hooks.core.accounts import KVAccounts
from engine_hooks.detail import MAX_ROW_TENANTS, MAX_ROWS, DelayedRow, PinRow, TierRow
from engine_hooks.frontend import hook as frontend_hook
from engine_hooks.frontend import member
from engine_hooks.settings import Settings
from engine_hooks.worker import hook as worker_hook
from tests.bed.agent import AgentProcess
from tests.bed.fake_executor import BLOCK_SIZE, FakeExecutor
from tests.bed.scheduler import MODEL_DIR, make_config, make_request

ROOT = Path(__file__).parents[2]
NOWHERE = Settings.from_environment({"KVTIDE_SOCKET": "/proc/none/agent.sock"})


def make_engine(blocks: int = 150) -> EngineCore:
    """A real EngineCore in this process, over an executor that makes up tokens."""
    config = make_config(block_size=BLOCK_SIZE, max_num_seqs=16, max_model_len=1024)
    config.cache_config.num_gpu_blocks_override = blocks
    engine = EngineCore(config, FakeExecutor, log_stats=True)
    engine.model_executor.requests = engine.scheduler.requests
    return engine


def play(engine: EngineCore) -> list[tuple[str, list[int]]]:
    """A load with sharing, aborts and preemption; everything that the engine put out, in order."""
    draw, out, live = random.Random(3), [], []

    def step() -> None:
        outputs, _ = engine.step_fn()
        out.extend((o.request_id, o.new_token_ids) for client in (outputs or {}).values() for o in client.outputs)

    for i in range(80):
        request = make_request(
            i,
            draw.randrange(20, 200),
            draw.randrange(5, 60),
            16,
            block_size=BLOCK_SIZE,
            hasher=engine.request_block_hasher,
        )
        engine.add_request(request)
        live.append(request.request_id)
        for _ in range(draw.randrange(4)):
            step()
        if draw.random() < 0.2:
            engine.abort_requests([draw.choice(live)])
    for _ in range(20_000):
        if not engine.scheduler.has_requests():
            break
        step()
    return out


@pytest.fixture
def reporter_of() -> Iterator[Any]:
    """Attach to engines, and close their links at the end."""
    reporters = []

    def attach(engine: EngineCore) -> Any:
        reporters.append(core_hook.attach(engine, NOWHERE))
        return reporters[-1]

    yield attach
    for reporter in reporters:
        reporter.close()


def test_outputs_and_pool_are_the_same_with_hooks(reporter_of: Any) -> None:
    plain, watched = make_engine(), make_engine()
    reporter = reporter_of(watched)
    assert play(watched) == play(plain)
    pools = [engine.scheduler.kv_cache_manager.block_pool for engine in (plain, watched)]
    orders = [[block.block_id for block in pool.free_block_queue.get_all_free_blocks()] for pool in pools]
    assert orders[0] == orders[1]
    assert reporter._guard.errors == {}
    assert reporter._steps.number > 100


def delayed_rows(names: int) -> tuple[DelayedRow, ...]:
    """As many peers and tenants as may be, with names of ``names`` characters."""
    tenants = {f"{n}".ljust(names, "t"): 2**30 for n in range(MAX_ROW_TENANTS)}
    row = DelayedRow(
        peer="p" * names,
        direction="receive",
        requests=2**30,
        blocks=2**30,
        oldest_seconds=1.5,
        lease_seconds=30.0,
        expired=2**30,
        tenants=tenants,
    )
    return (row,) * MAX_ROWS


@pytest.mark.parametrize(("names", "left_out"), [(64, {"delayed"}), (12, set())])
def test_a_detail_that_is_too_long_for_a_frame_goes_without_its_longest_section(
    names: int, left_out: set[str], reporter_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporter, sent = reporter_of(make_engine()), []
    monkeypatch.setattr(reporter._link, "send", lambda message: sent.append(wire.decode(wire.encode(message))))
    tiers = tuple(
        TierRow(
            tier="t" * 64,
            capacity=2**30,
            used=2**30,
            pending=2**30,
            oldest_seconds=1.5,
            stuck=0,
            stuck_after_seconds=60,
        )
        for _ in range(MAX_ROWS)
    )
    pins = tuple(
        PinRow(
            holder="h" * 64, pool="p" * 64, known=True, references=1, oldest_seconds=1.5, orphaned_after_seconds=None
        )
        for _ in range(MAX_ROWS)
    )
    for _ in range(6):
        sections = {"pins": pins, "delayed": delayed_rows(names), "tiers": tiers}
        reporter._guard.run("detail", reporter._send_detail, sections, 1.0, "")
    assert reporter._guard.errors == {}
    assert len(sent) == 6
    for detail in sent:
        assert (detail.delayed is None, len(detail.pins), len(detail.tiers)) == (bool(left_out), MAX_ROWS, MAX_ROWS)
        assert left_out == {name for name, why in detail.unsupported.items() if "frame" in why}


HOOKED = ["observe_step", "advance_audit", "report", "request_audit", "unbalanced"]


@pytest.mark.parametrize("broken", HOOKED)
def test_a_hook_that_always_raises_is_switched_off_and_harms_nobody(
    broken: str, reporter_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, watched = make_engine(), make_engine()
    reporter = reporter_of(watched)

    def explode(*_: Any, **__: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(KVAccounts, broken, explode)
    monkeypatch.setattr(type(reporter._link), "up", True)
    # However fast the machine, each step reports; or else each looks at the net, which is done only where none does.
    rare = broken == "unbalanced"
    monkeypatch.setattr("engine_hooks.core.reporter.BUSY_PERIOD", 0.0)
    monkeypatch.setattr("engine_hooks.core.reporter.LONGEST_BUSY_PERIOD", 3600.0 if rare else 0.0)
    monkeypatch.setattr("engine_hooks.core.reporter.REPORT_DUTY", 1e-12)
    assert play(watched) == play(plain)
    if broken == "request_audit":
        assert reporter._guard.errors == {}, "nothing in a run without orders asks for an audit by this way"
    else:
        assert max(reporter._guard.errors.values()) == 5
        assert all("RuntimeError: planted" in reason for reason in reporter._guard.off.values())


def test_counting_that_raises_harms_nobody(reporter_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, watched = make_engine(), make_engine()
    reporter = reporter_of(watched)
    ledger, draw = reporter._accounts.ledger, random.Random(1)
    for name in ("_count_touched", "_count_freed"):
        count = getattr(ledger, name)

        def sometimes(*args: Any, count: Any = count) -> None:
            if draw.random() < 0.01:
                raise RuntimeError("planted")
            count(*args)

        monkeypatch.setattr(ledger, name, sometimes)
    assert play(watched) == play(plain)
    assert reporter._guard.errors.keys() == {"ledger"}
    report = reporter._accounts.report()
    assert (report.held, report.orphaned) == (0, 0), "without the count, the audit and the idle check still tell"


def test_the_originals_exceptions_pass(reporter_of: Any) -> None:
    engine = make_engine()
    reporter_of(engine)
    pool = engine.scheduler.kv_cache_manager.block_pool
    with pytest.raises(ValueError, match="Cannot get"):
        pool.get_new_blocks(10_000)
    with pytest.raises(TypeError):
        pool.get_new_blocks()


def test_installed_once_however_often_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = ((EngineCore, "__init__"), (EngineCoreProc, "run_busy_loop"), (DPEngineCoreProc, "run_busy_loop"))
    for owner, name in owners:
        monkeypatch.setattr(owner, name, vars(owner)[name])  # put back at the end
    plain = [vars(owner)[name] for owner, name in owners]
    core_hook.install(NOWHERE)
    wrapped = [vars(owner)[name] for owner, name in owners]
    core_hook.install(NOWHERE)
    assert wrapped == [vars(owner)[name] for owner, name in owners]
    assert all(before is not after for before, after in zip(plain, wrapped, strict=True))
    engine = make_engine()
    reporter = core_hook.attach(engine, NOWHERE)  # already watched since its constructor returned
    assert vars(engine)[core_hook._MARK] is reporter
    assert core_hook.attach(engine, NOWHERE) is reporter
    reporter.close()


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pytest hear what is logged below vLLM's logger, which keeps it to itself."""
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)


def test_an_engine_that_is_dropped_without_a_shutdown_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    reporter = core_hook.attach(engine, NOWHERE)
    play(engine)
    scheduler, thread = weakref.ref(engine.scheduler), reporter._link._thread
    del engine, reporter
    gc.unfreeze()  # vLLM freezes what was there when the engine came up
    gc.collect()
    thread.join(5.0)
    assert not thread.is_alive()
    gc.collect()
    assert scheduler() is None


def test_entry_point_catches_everything(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def explode(_: Settings) -> None:
        raise RuntimeError("planted")

    parts = [core_hook, worker_hook, member, frontend_hook]
    for part in parts:
        monkeypatch.setattr(part, "install", explode)
    plugin.register()
    assert caplog.text == "", "switched off, it does nothing at all"
    monkeypatch.delenv("KVTIDE_DISABLE")
    plugin.register()
    assert [f"{part.__name__} could not be installed" in caplog.text for part in parts] == [True] * len(parts)


def test_a_vllm_that_we_do_not_know_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Strange:
        """An engine core without anything that we look for."""

    core_hook._try_attach(Strange(), NOWHERE)
    assert "goes on without us" in caplog.text


IN_PROCESS = """
import sys
from vllm import LLM, SamplingParams
llm = LLM(sys.argv[1], dtype="float32", max_model_len=1024, enforce_eager=True, block_size=32,
          num_gpu_blocks_override=200, disable_log_stats=True)
prompts = [{"prompt_token_ids": list(range(3, 203))} for _ in range(4)]
llm.generate(prompts, SamplingParams(max_tokens=200, ignore_eos=True), use_tqdm=False)
print("DONE", flush=True)
sys.stdin.readline()
llm.llm_engine.engine_core.shutdown()
print("CLOSED", flush=True)
sys.stdin.readline()
"""


def test_engine_in_its_callers_process(tmp_path: Path) -> None:
    # The folder's path must be short enough for a socket; tmp_path is not.
    with tempfile.TemporaryDirectory(prefix="kvtide-") as folder, AgentProcess(Path(folder)) as agent:
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KVTIDE")},
            **agent.engine_env(),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "HF_HUB_OFFLINE": "1",
        }
        process = subprocess.Popen(
            [sys.executable, "-c", IN_PROCESS, str(MODEL_DIR)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(tmp_path / "errors").open("w"),
            text=True,
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            while (line := process.stdout.readline()) and "DONE" not in line:
                pass
            assert line, (tmp_path / "errors").read_text()[-3000:]
            agent.wait_live()
            engine = agent.engine()
            assert engine["pid"] == process.pid
            assert engine["steps"] > 150
            assert engine["pool"]["capacity"] == 199
            assert (engine["pool"]["held"], engine["pool"]["orphaned"]) == (0, 0)
            # Its worker lives in the same process and has a link of its own.
            agent.wait(lambda: any(member["up"] for member in agent.engine()["members"]))
            (worker,) = agent.engine()["members"]
            assert (worker["role"], worker["rank"], worker["pid"]) == ("worker", 0, process.pid)
            assert worker["worker"]["kv_bytes"] == 200 * engine["pool"]["block_bytes"]
            process.stdin.write("\n")
            process.stdin.flush()
            assert "CLOSED" in process.stdout.readline()
            agent.wait(lambda: agent.engines() == [])
            agent.wait(lambda: agent.state()["unjoined_members"] == 0)
        finally:
            process.kill()
            process.communicate()
