"""The settings of who restarts engines."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from agent.balancer.config import WebhookConfig
from agent.sources.config import Section

SupervisorName = Literal["systemd", "kubernetes", "command", "webhook"]


class SupervisedEngineConfig(Section):
    """An engine, and what restarts it."""

    name: str = Field(min_length=1, max_length=128)
    by: SupervisorName
    unit: str | None = Field(None, pattern=r"^[A-Za-z0-9:_.\\@-]{1,240}\.service$")
    command: tuple[str, ...] = Field((), max_length=64)

    @model_validator(mode="after")
    def _whole(self) -> SupervisedEngineConfig:
        if self.by == "systemd" and self.unit is None:
            raise ValueError(f"the engine {self.name}: systemd needs `unit`, such as vllm.service")
        if self.by == "command" and not (self.command and self.command[0].startswith("/")):
            raise ValueError(f"the engine {self.name}: command needs `command`, a list that begins with a full path")
        return self


class SupervisorConfig(Section):
    """Who restarts engines when the lever `restart` is pulled: see [supervisor](supervisor.md)."""

    engines: tuple[SupervisedEngineConfig, ...] = Field(
        (),
        max_length=64,
        description="`name` (its label), `by` (systemd, kubernetes, command or webhook), and `unit` or `command`",
    )
    drain_seconds: float = Field(
        60.0, ge=0, le=3600, description="requests that run may go on for so long before the restart"
    )
    start_seconds: float = Field(
        600.0, gt=0, le=7200, description="a successor must serve within so long, or the restart has failed"
    )
    command_seconds: float = Field(60.0, gt=0, le=600, description="what `command` may take, and systemctl")
    webhook: WebhookConfig = WebhookConfig()

    @model_validator(mode="after")
    def _once(self) -> SupervisorConfig:
        names = [engine.name for engine in self.engines]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the engine {twice[0]} is there twice")
        if any(engine.by == "webhook" for engine in self.engines) and self.webhook.url is None:
            raise ValueError("an engine by webhook needs supervisor.webhook.url")
        return self
