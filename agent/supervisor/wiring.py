"""Makes the supervisors that the settings ask for."""

from __future__ import annotations

from agent.balancer.config import KubernetesConfig
from agent.balancer.http_client import JsonClient
from agent.balancer.wiring import api_of, namespace_of
from agent.supervisor.base import Supervisor
from agent.supervisor.command import CommandSupervisor
from agent.supervisor.config import SupervisedEngineConfig, SupervisorConfig
from agent.supervisor.drained import Drained
from agent.supervisor.kubernetes import KubernetesSupervisor
from agent.supervisor.restart import Restart
from agent.supervisor.systemd import SystemdSupervisor
from agent.supervisor.webhook import WebhookSupervisor


def restart_of(config: SupervisorConfig, cluster: KubernetesConfig, drained: Drained) -> Restart:
    """Return the lever ``restart``, whoever is configured; raises :class:`ConfigError` as :func:`supervisors_of`."""
    return Restart(supervisors_of(config, cluster), drained, start_seconds=config.start_seconds)


def supervisors_of(config: SupervisorConfig, cluster: KubernetesConfig) -> dict[str, Supervisor]:
    """Return each engine's; raises :class:`ConfigError` where Kubernetes is asked for and not there."""
    return {engine.name: _of(engine, config, cluster) for engine in config.engines}


def _of(engine: SupervisedEngineConfig, config: SupervisorConfig, cluster: KubernetesConfig) -> Supervisor:
    if engine.by == "kubernetes":
        return KubernetesSupervisor(api_of(cluster), namespace_of(cluster))
    if engine.by == "webhook":
        hook = config.webhook
        return WebhookSupervisor(JsonClient(hook.url or "", hook.token_file, hook.ca_file))
    if engine.by == "systemd":
        return SystemdSupervisor(engine.unit or "", config.command_seconds)
    return CommandSupervisor(engine.command, config.command_seconds)
