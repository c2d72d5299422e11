"""The settings of the load balancer's side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from agent.addresses import absolute_path, listen_address, parse_listen
from agent.balancer.state import BalancerMode
from agent.sources.config import Section

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NAME = r"^[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?$"  # of an object of Kubernetes
CoordinatorName = Literal["none", "file", "kubernetes", "webhook"]


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.fragment:
        raise ValueError("must be a URL such as https://fleet.example:8443/kvtide, without a password")
    parts.port  # noqa: B018 - its ValueError says what is wrong
    return text


class BalancedEngineConfig(Section):
    """An engine with an agent-check port of its own."""

    name: str = Field(min_length=1, max_length=128)
    listen: Annotated[str, AfterValidator(listen_address)]


class WebhookConfig(Section):
    """A coordinator that is asked by HTTP."""

    url: Annotated[str, AfterValidator(_url)] | None = Field(
        None, description='where `webhook` is asked by POST; it answers `{"granted": true}` or false'
    )
    token_file: Annotated[Path, AfterValidator(absolute_path)] | None = Field(
        None, description="file with the bearer token for it"
    )
    ca_file: Annotated[Path, AfterValidator(absolute_path)] | None = Field(
        None, description="certificates that it is checked by; default: the system's"
    )


class KubernetesConfig(Section):
    """Kubernetes' API, as the agent's service account."""

    url: Annotated[str, AfterValidator(_url)] | None = Field(
        None, description="the API server; default: that of the cluster that the agent runs in"
    )
    account: Annotated[Path, AfterValidator(absolute_path)] = Field(
        SERVICE_ACCOUNT, description="folder with `token`, `ca.crt` and `namespace`"
    )
    namespace: str | None = Field(None, pattern=NAME, description="of leases, pods and budget; default: the account's")
    lease: str = Field("kvtide", pattern=NAME, max_length=40, description="name of the shared Lease, one per fleet")
    disruption_budget: str | None = Field(
        None, pattern=NAME, description="PodDisruptionBudget of the engines' pods, which an ejection respects"
    )
    readiness_gate: bool = Field(
        False,
        description="keep the condition `kvtide.io/not-isolated` of each engine's pod, which is named as the "
        "engine's host is",
    )


class BalancerConfig(Section):
    """Weights at a load balancer: see [load balancer](load-balancer.md)."""

    mode: BalancerMode = Field(
        "observe", description="observe: weights stay; dry-run: what they would be is shown; enforce: they are told"
    )
    listen: Annotated[str, AfterValidator(listen_address)] | None = Field(
        None, description="HOST:PORT of an agent-check for all engines: `agent-send` names the one that is meant"
    )
    engines: tuple[BalancedEngineConfig, ...] = Field(
        (), max_length=64, description="agent-checks of one engine each: `name` (its label) and `listen` (HOST:PORT)"
    )
    admin_words: bool = Field(
        False,
        description="answer `ready`, `drain` and `maint` too, which undo what a person has set in HAProxy itself; "
        "false: only `up N%`, 0 % for an engine that is isolated",
    )
    node: str | None = Field(
        None, min_length=1, max_length=128, description="this node's name for the coordinator; default: the host's"
    )
    coordinator: CoordinatorName = Field(
        "none", description="who counts ejections over all nodes; without one no engine goes below 50 %"
    )
    share: float = Field(
        0.30, ge=0.0, le=0.5, description="part of the fleet that may be ejected at once, rounded down (none of three)"
    )
    lease_directory: Annotated[Path, AfterValidator(absolute_path)] | None = Field(
        None, description="folder that the coordinator `file` shares between agents of one host"
    )
    marks_file: Annotated[Path, AfterValidator(absolute_path)] = Field(
        Path("/etc/kvtide/marks.yaml"),
        description="engines that people hold: `ENGINE: maint`, `drain` or `up`; read when it changes",
    )
    webhook: WebhookConfig = WebhookConfig()
    kubernetes: KubernetesConfig = KubernetesConfig()

    @property
    def shared(self) -> tuple[str, int] | None:
        """Host and port of the agent-check for all engines."""
        return None if self.listen is None else parse_listen(self.listen)

    @property
    def own(self) -> dict[str, tuple[str, int]]:
        """Host and port of each engine's own."""
        return {engine.name: parse_listen(engine.listen) for engine in self.engines}

    @model_validator(mode="after")
    def _whole(self) -> BalancerConfig:
        if self.coordinator == "file" and self.lease_directory is None:
            raise ValueError("the coordinator file needs balancer.lease_directory")
        if self.coordinator == "webhook" and self.webhook.url is None:
            raise ValueError("the coordinator webhook needs balancer.webhook.url")
        names = [engine.name for engine in self.engines]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the engine {twice[0]} is there twice")
        return self
