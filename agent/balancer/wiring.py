"""Makes the balancer that the settings ask for."""

from __future__ import annotations

import os
import socket

from agent.balancer.balancer import Balancer, Marked, Stops
from agent.balancer.config import BalancerConfig, KubernetesConfig
from agent.balancer.coordinator import Coordinator, NoCoordinator
from agent.balancer.gate import ReadinessGate
from agent.balancer.grants import Grants
from agent.balancer.http_client import JsonClient
from agent.balancer.kubernetes import KubernetesCoordinator
from agent.balancer.lease_file import FileCoordinator
from agent.balancer.moves import Moves
from agent.balancer.webhook import WebhookCoordinator
from agent.balancer.words import FileWords, LeaseWords, Words
from agent.errors import ConfigError
from agent.policy.types import Policy


def balancer_of(config: BalancerConfig, policy: Policy, *, stops: Stops, moves: Moves, marked: Marked) -> Balancer:
    """Return the balancer; raises :class:`ConfigError` where Kubernetes is asked for and not there."""
    gate = None
    if config.kubernetes.readiness_gate:
        gate = ReadinessGate(api_of(config.kubernetes), namespace_of(config.kubernetes))
    return Balancer(config, policy, Grants(_coordinator(config), gate), stops=stops, moves=moves, marked=marked)


def words_of(config: BalancerConfig) -> Words | None:
    """Return where the fleet's word is, whatever the balancer's mode is; None where no coordinator has one. Raises
    :class:`ConfigError` where Kubernetes is asked for and not there.
    """
    if config.coordinator == "file" and config.lease_directory is not None:
        return FileWords(config.lease_directory)
    if config.coordinator == "kubernetes":
        there = config.kubernetes
        return LeaseWords(api_of(there), namespace_of(there), there.lease)
    return None


def _coordinator(config: BalancerConfig) -> Coordinator:
    node = config.node or socket.gethostname()
    if config.mode != "enforce":
        return NoCoordinator()  # nobody else's share is taken for what is only shown
    if config.coordinator == "file" and config.lease_directory is not None:
        return FileCoordinator(config.lease_directory, node, config.share)
    if config.coordinator == "webhook" and config.webhook.url is not None:
        hook = config.webhook
        return WebhookCoordinator(JsonClient(config.webhook.url, hook.token_file, hook.ca_file), node, config.share)
    if config.coordinator == "kubernetes":
        there = config.kubernetes
        return KubernetesCoordinator(
            api_of(there),
            namespace_of(there),
            there.lease,
            node,
            config.share,
            budget=there.disruption_budget,
            gated=there.readiness_gate,
        )
    return NoCoordinator()


def api_of(config: KubernetesConfig) -> JsonClient:
    """Return a client of the API server; raises :class:`ConfigError` where none is named and this is no pod."""
    url = config.url
    if url is None:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise ConfigError(
                "balancer.kubernetes.url: this is no pod (no KUBERNETES_SERVICE_HOST): name the API server"
            )
        url = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    return JsonClient(url, config.account / "token", config.account / "ca.crt")


def namespace_of(config: KubernetesConfig) -> str:
    """Return the namespace of pods and leases; raises :class:`ConfigError` where the account does not say."""
    if config.namespace is not None:
        return config.namespace
    file = config.account / "namespace"
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"balancer.kubernetes.namespace: {file}: {error}") from None
