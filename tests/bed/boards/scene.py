"""A node with everything on it that a board shows: one real engine, two without a model on GPUs that are scripted.

The agent is real and watches them; Prometheus is real, has the shipped recording rules and scrapes the agent.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvtide_chaos.kv_blocks import leak_env

from tests.bed import nvml
from tests.bed.agent import KVTIDE, ROOT, AgentProcess
from tests.bed.engine import EngineServer
from tests.bed.load import LoadPlan, Tenant
from tests.bed.node import uuid_of
from tests.bed.nvml import GIB, MIB, Gpu, Memory, Process, Script
from tests.bed.pages import Load, Reply, page, serving
from tests.bed.prometheus import PrometheusServer

RULES = ROOT / "alerts" / "built" / "kvtide-recording.yml"
ENGINE_PYTHON = ROOT / ".venv" / "engine" / "bin" / "python"
SCRAPE_SECONDS = 1.0

BLOCKS = 300
CAPACITY = BLOCKS - 1  # vLLM keeps one block for itself: the null block
ENGINE = "tiny"
MORE_ENGINES = ("engine-0", "engine-1")
START_SECONDS = 1200.0  # of a vLLM server on a machine that is busy with much else
SUPPORT_SECONDS = 180.0
HOOKLESS, HOOKLESS_USE = "hookless", 0.25

TOTAL = 80 * GIB
WORKER_USED = 49 * GIB + 512 * MIB  # weights 16, KV 32, graphs 0.5, and a context of 1 GiB
FOREIGN_USED = 6 * GIB
SPARE_GPU, SPARE_BEGAN, SPARE_GROWTH = 2, 12 * GIB, 40 * MIB  # a card of somebody else's; bytes a second
SLOWED = 4  # of the driver's reasons: its power limit

QUOTAS = {"acme": 180, "umbrella": 150}
TENANTS = (
    Tenant("acme", weight=3, prompt=(40, 300), output=(20, 90), prefix=64, abort_ratio=0.15),
    Tenant("initech", weight=2, prompt=(20, 120), output=(10, 40)),
    Tenant("umbrella", weight=1, prompt=(500, 1300), output=(60, 200), prefix=128, abort_ratio=0.2),
)
LEVERS = "watermark,active_cap,reclaim_orphans,evict_idle"


@dataclass(frozen=True, slots=True)
class Scene:
    """What runs. ``leaks`` is where a leak is ordered."""

    agent: AgentProcess
    engine: EngineServer
    prometheus: PrometheusServer
    leaks: Path

    def load(self, seconds: float, concurrency: int = 16) -> LoadPlan:
        """Return a load of all tenants for the real engine."""
        return LoadPlan(requests=20_000, seconds=seconds, concurrency=concurrency, tenants=TENANTS)

    def order(self, lever: str, *arguments: str) -> bool:
        """Pull a lever on the real engine, as a person does; return whether it was, for another may be busy there."""
        command = [str(KVTIDE), "actions", "order", lever, ENGINE, *arguments, "--minutes", "30", "--why", "a test"]
        command += ["--socket", str(self.agent.socket)]
        return subprocess.run(command, check=False, capture_output=True, timeout=SUPPORT_SECONDS).returncode == 0


@contextmanager
def playing(folder: Path) -> Iterator[Scene]:
    """Start everything, and end it with the block. ``folder`` must be new and its path short."""
    folder.mkdir(parents=True, exist_ok=True)
    script, leaks = folder / "driver", folder / "leak"
    Script().write(script)
    with (
        serving(_page) as pages,
        AgentProcess(folder, args=_settings(folder, pages.url), env={nvml.SCRIPT_VARIABLE: str(script)}) as agent,
    ):
        env = {
            **agent.engine_env(),
            **leak_env(leaks),
            "KVTIDE_LEVERS": LEVERS,
            "KVTIDE_TENANT_FROM": "header:X-Tenant-Id",
            "KVTIDE_TRUSTED_PROXIES": "127.0.0.0/8",
            "KVTIDE_TENANT_MAP": str(_tenant_map(folder)),
        }
        every = f"{SCRAPE_SECONDS * 1000:.0f}ms"
        pace = {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every}
        more = {"global": pace, "rule_files": [str(RULES)], "scrape_configs": _scraped(agent.url)}
        with (
            EngineServer(folder / "engine.log", num_blocks=BLOCKS, env=env) as engine,
            _more_engines(folder / "node.log", agent, script),
            PrometheusServer(folder / "prometheus", more=more) as prometheus,
        ):
            engine.wait_ready(START_SECONDS)
            engines = [ENGINE, *MORE_ENGINES]
            agent.wait(lambda: [each["phase"] for each in agent.engines()] == ["live"] * len(engines), SUPPORT_SECONDS)
            prometheus.wait_scraped()
            yield Scene(agent, engine, prometheus, leaks)


def _scraped(url: str) -> list[dict[str, object]]:
    """Both pages of the agent: what everybody scrapes, and the detail that some boards show."""
    agent = [{"targets": [url.removeprefix("http://")]}]
    return [
        {"job_name": "kvtide", "static_configs": agent},
        {"job_name": "kvtide-detail", "metrics_path": "/metrics/detail", "static_configs": agent},
    ]


def _settings(folder: Path, hookless: str) -> tuple[str, ...]:
    """Write the agent's files and return its arguments. ``hookless``: where an engine without hooks has its page."""
    config, policy = folder / "agent.yaml", folder / "policy.yaml"
    library = nvml.build(folder) / nvml.LIBRARY
    sources = {
        "device": {"library": str(library), "call_timeout_seconds": 5.0},
        "host": {"period_seconds": 2.0},
        "scrape": {"engines": [{"url": f"{hookless}/metrics", "name": HOOKLESS}]},
    }
    config.write_text(json.dumps({"sources": sources, "balancer": {"mode": "dry-run"}}))  # JSON is YAML
    policy.write_text(json.dumps({"actions": {"mode": "dry-run", "breaches": 2}}))
    return ("--config", str(config), "--policy", str(policy))


def _tenant_map(folder: Path) -> Path:
    path = folder / "tenants.json"
    path.write_text(json.dumps({tenant: {"quota_blocks": blocks} for tenant, blocks in QUOTAS.items()}))
    return path


def _page(_path: str) -> Reply:
    """An engine's own page; it makes tokens, for one that says the same for ever is not believed."""
    tokens = int(100 * time.monotonic())
    return Reply(page(load=Load(usage=HOOKLESS_USE, prompt=4 * tokens, generated=tokens, cached=tokens)))


@contextmanager
def _more_engines(log: Path, agent: AgentProcess, script: Path) -> Iterator[None]:
    """Run the engines that have GPUs, and let the driver list what is on these."""
    command = [str(ENGINE_PYTHON), "-m", "tests.bed.node", "--engines", str(len(MORE_ENGINES)), "--busy"]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command, "--tenants", "3"],
            cwd=ROOT,
            env={**os.environ, **agent.engine_env()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as node,
    ):
        assert node.stdin is not None
        assert node.stdout is not None
        try:
            workers = json.loads(node.stdout.readline())["worker"]
            Script(gpus=(*(_gpu(number, pid) for number, pid in enumerate(workers)), _spare())).write(script)
            yield
        finally:
            node.stdin.close()
            node.wait(SUPPORT_SECONDS)


def _gpu(number: int, worker: int) -> Gpu:
    """An engine's card; on the second one somebody else's process is, too."""
    processes = [Process(worker, used=WORKER_USED)]
    if number:
        processes.append(Process(os.getpid(), used=FOREIGN_USED))
    used = sum(each.used or 0 for each in processes) + 40 * MIB
    return Gpu(uuid_of(number), memory=Memory(total=TOTAL, used=used), processes=tuple(processes))


def _spare() -> Gpu:
    return Gpu(
        uuid_of(SPARE_GPU),
        memory=Memory(total=TOTAL, used=SPARE_BEGAN),
        curve=((0, SPARE_BEGAN), (600, SPARE_BEGAN + 600 * SPARE_GROWTH)),
        utilisation=(34, 12),
        throttle=SLOWED,
    )
