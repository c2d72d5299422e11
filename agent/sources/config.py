"""The settings of the sources, one section each."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DeviceConfig(Section):
    """GPUs, read through NVML."""

    enabled: bool = Field(True, description="read the GPUs; without a driver this source says so and is quiet")
    period_seconds: float = Field(1.0, ge=0.1, le=60.0, description="seconds between two readings")


class HostConfig(Section):
    """Processes, cgroups and the host's memory."""

    enabled: bool = Field(True, description="read processes, cgroups and the host")
    period_seconds: float = Field(5.0, ge=0.5, le=60.0, description="seconds between two readings")


class ScrapeConfig(Section):
    """Engines without hooks, read through their own /metrics."""

    period_seconds: float = Field(1.0, ge=0.5, le=60.0, description="seconds between two scrapes")


class DriverCallsConfig(Section):
    """How long the driver's memory calls take, by uprobes; needs root or CAP_BPF and CAP_PERFMON, and bpftrace."""

    enabled: bool = Field(False, description="time cuMemAlloc, cuMemCreate and cudaMallocAsync from outside")


class SourcesConfig(Section):
    """What the agent reads by itself."""

    device: DeviceConfig = DeviceConfig()
    host: HostConfig = HostConfig()
    scrape: ScrapeConfig = ScrapeConfig()
    driver_calls: DriverCallsConfig = DriverCallsConfig()
