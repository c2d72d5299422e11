"""The sources of the agent by its settings; each says for itself whether it can read anything here."""

from __future__ import annotations

from typing import Any

from agent.sources.base import Source
from agent.sources.config import SourcesConfig
from agent.sources.device.source import DeviceSource
from agent.sources.driver_calls.source import DriverCallsSource
from agent.sources.host.inputs import DeviceHolders, Processes, Starts, no_devices, nobody
from agent.sources.host.source import HostSource
from agent.sources.scrape.source import ScrapeSource
from engine_hooks.members import CORE, FRONTEND, WORKER


def sources_of(
    config: SourcesConfig,
    *,
    processes: Processes = nobody,
    starts: Starts = nobody,
    device_holders: DeviceHolders = no_devices,
) -> list[Source[Any]]:
    """Return the sources that ``config`` asks for.

    ``processes``, ``starts`` and ``device_holders`` tell what the rest of the agent knows; they are called on the
    sources' threads.
    """
    found: list[Source[Any]] = []
    if config.device.enabled:
        found.append(DeviceSource(config.device))
    if config.host.enabled:
        found.append(HostSource(config.host, processes, starts, device_holders))
    if config.scrape.engines or config.scrape.discover:
        found.append(ScrapeSource(config.scrape, lambda: _hooked(processes)))
    if config.driver_calls.enabled:
        found.append(DriverCallsSource(config.driver_calls, processes))
    return found


def _hooked(processes: Processes) -> set[int]:
    return {process.pid for process in processes() if process.pid and process.role in (CORE, WORKER, FRONTEND)}
