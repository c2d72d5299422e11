"""The settings of the sources, one section each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit, urlunsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator


def _plain_path(path: Path) -> Path:
    """It becomes part of a program's text."""
    if not re.fullmatch(r"/[A-Za-z0-9_./+@=~-]{1,1000}", str(path)):
        raise ValueError("must be an absolute path of letters, digits and _ . / + @ = ~ -")
    return path


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DeviceConfig(Section):
    """GPUs, read through NVML."""

    enabled: bool = Field(True, description="read the GPUs; without a driver this source says so and is quiet")
    period_seconds: float = Field(1.0, ge=0.1, le=60.0, description="seconds between two readings")
    call_timeout_seconds: float = Field(
        0.5, ge=0.05, le=10.0, description="seconds after which a call into the driver counts as hanging"
    )
    library: str = Field(
        "libnvidia-ml.so.1", min_length=1, description="the driver's library; a path where the loader does not find it"
    )


class HostConfig(Section):
    """Processes, cgroups and the host's memory."""

    enabled: bool = Field(True, description="read processes, cgroups and the host")
    period_seconds: float = Field(5.0, ge=0.5, le=60.0, description="seconds between two readings")
    proportional_seconds: float = Field(
        30.0, ge=0.0, le=3600.0, description="seconds between two readings of a process's PSS, at least; 0 reads none"
    )


def _page_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
        raise ValueError("must be a URL such as http://127.0.0.1:8000 or https://engine:8000/metrics")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("must be ASCII without spaces; write other characters as %XX")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a password; give a token by bearer_token_file")
    parts.port  # noqa: B018 - its ValueError says what is wrong
    return url


def page_of(url: str) -> str:
    """Return one way to write the address of a page that can be written in several."""
    parts = urlsplit(url)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    path = "/metrics" if parts.path in ("", "/") else parts.path
    return urlunsplit((parts.scheme, f"{parts.hostname}:{port}", path, parts.query, ""))


class ScrapedEngineConfig(Section):
    """A server to scrape. Without a path in ``url`` it is /metrics."""

    url: Annotated[str, AfterValidator(_page_url)]
    name: str | None = Field(None, min_length=1, max_length=64, pattern=r"^[ -~]+$")
    bearer_token_file: Path | None = None
    tls_ca_file: Path | None = None


class ScrapeConfig(Section):
    """Engines without hooks, read through their own /metrics."""

    engines: tuple[ScrapedEngineConfig, ...] = Field(
        (),
        max_length=32,
        description="servers to scrape: `url`, and if wanted `name`, `bearer_token_file`, `tls_ca_file`; see "
        "[engines without hooks](hookless.md)",
    )
    discover: bool = Field(False, description="scrape servers of vLLM and SGLang on this host whose hooks don't report")
    period_seconds: float = Field(1.0, ge=0.5, le=60.0, description="seconds between two scrapes of a server")
    timeout_seconds: float = Field(5.0, ge=0.1, le=60.0, description="seconds that a whole page may take")

    @field_validator("engines")
    @classmethod
    def _each_once(cls, engines: tuple[ScrapedEngineConfig, ...]) -> tuple[ScrapedEngineConfig, ...]:
        pages = [page_of(engine.url) for engine in engines]
        names = [engine.name for engine in engines if engine.name]
        for what, shown, values in (("url", [engine.url for engine in engines], pages), ("name", names, names)):
            twice = [text for text, value in zip(shown, values, strict=True) if values.count(value) > 1]
            if twice:
                raise ValueError(f"the {what} {twice[0]} is there twice")
        return engines


class DriverCallsConfig(Section):
    """How long the driver's memory calls take, by uprobes; needs bpftrace and root with CAP_SYS_ADMIN."""

    enabled: bool = Field(False, description="time cuMemAlloc, cuMemCreate and cudaMallocAsync from outside")
    library: Annotated[Path, AfterValidator(_plain_path)] | None = Field(
        None,
        description="library whose functions are timed; default: those of CUDA that engines' processes have mapped",
    )


class SourcesConfig(Section):
    """What the agent reads by itself."""

    device: DeviceConfig = DeviceConfig()
    host: HostConfig = HostConfig()
    scrape: ScrapeConfig = ScrapeConfig()
    driver_calls: DriverCallsConfig = DriverCallsConfig()
