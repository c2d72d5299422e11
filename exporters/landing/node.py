"""What is around the engines: engines without hooks, GPUs, the host."""

from __future__ import annotations

from agent.faces import devices, scraped
from agent.faces import host as host_lines
from agent.sources.device.state import GpuState
from agent.state import AgentState
from exporters.landing.markup import lines, quiet, row, section, table


def without_hooks(state: AgentState) -> str:
    """Return the engines that are read through their own pages; nothing where none is asked for."""
    if state.scrape is None:
        return quiet(scraped.absent(state))
    found = list(scraped.lines_of(state.scrape, state.judgement))
    return section("Engines without hooks", lines(found)) if found else quiet(scraped.NOBODY)


def gpus(state: AgentState) -> str:
    """Return the GPUs' memory and what is wrong with them; where they are not read, why."""
    if state.device is None:
        return quiet(devices.absent(state))
    found = state.device.gpus
    rows = [_gpu(each) for gpu in found for each in (gpu, *gpu.instances)]
    told = table(devices.COLUMNS, rows, "named") if rows else "<p>The driver knows no GPU.</p>"
    return section("GPUs", quiet(devices.driver_of(state.device)), lines(devices.lines_of(found, state.at)), told)


def _gpu(gpu: GpuState) -> str:
    label, *cells = devices.row_of(gpu)
    return row(label, cells, css="" if gpu.up else "lost")


def host(state: AgentState) -> str:
    """Return the host's lines; nothing where nobody reads it."""
    found = host_lines.lines_of(state)
    return section("Host", lines(found)) if found else ""
