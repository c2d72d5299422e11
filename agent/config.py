"""The agent's configuration: one YAML file, overridden by options; checked whole before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from agent.addresses import absolute_path, listen_address, parse_listen
from agent.balancer.config import BalancerConfig
from agent.errors import ConfigError
from agent.settings_file import checked, read
from agent.sources.config import Section, SourcesConfig
from agent.supervisor.config import SupervisorConfig
from engine_hooks.wire import DEFAULT_SOCKET, KEY_NAME

DEFAULT_FILE = Path("/etc/kvtide/agent.yaml")
DEFAULT_LISTEN = "127.0.0.1:9477"
MAX_SOCKET_PATH = 107  # sun_path holds 108 bytes with the ending zero: unix(7)


def _socket_path(path: Path) -> Path:
    size = len(str(path).encode())
    if size > MAX_SOCKET_PATH:
        raise ValueError(f"the path has {size} bytes, {MAX_SOCKET_PATH} are allowed; choose a shorter one")
    return absolute_path(path)


def _octal(value: object) -> object:
    """Take permissions: a number of YAML's, which reads 0660 as octal, or octal digits as text."""
    if isinstance(value, str):
        try:
            value = int(value, 8)
        except ValueError:
            raise ValueError("must be octal digits, such as 0660") from None
    if isinstance(value, int) and not 0 <= value <= 0o777:
        raise ValueError(f"is 0{value:o} in octal; 0 to 0777 are allowed, such as 0660")
    return value


class LinkConfig(Section):
    """The link to the engines of this node."""

    socket: Annotated[Path, AfterValidator(_socket_path)] = Field(
        DEFAULT_SOCKET, description="Unix socket that the agent binds; engines find it by KVTIDE_SOCKET"
    )
    key_file: Annotated[Path, AfterValidator(absolute_path)] | None = Field(
        None, description=f"key shared with the engines, made when missing; default: {KEY_NAME} beside the socket"
    )
    mode: Annotated[int, BeforeValidator(_octal)] = Field(0o660, description="permissions of the socket, in octal")
    group: str | None = Field(None, description="group of the socket and of the key file; its members may connect")
    control_group: str | None = Field(
        None, description="group of the control socket; its members may order: [actions](actions.md); default: our own"
    )
    allow_uids: tuple[int, ...] = Field((), description="uids that may connect, besides root and the agent's own")
    allow_gids: tuple[int, ...] = Field((), description="further gids that may connect")

    @property
    def key_path(self) -> Path:
        """Where the key is."""
        return self.key_file or self.socket.with_name(KEY_NAME)


class HttpConfig(Section):
    """The agent's HTTP side: metrics, health, state, landing page."""

    listen: Annotated[str, AfterValidator(listen_address)] = Field(
        DEFAULT_LISTEN, description="HOST:PORT; port 0 takes a free one"
    )
    web_config_file: Annotated[Path, AfterValidator(absolute_path)] | None = Field(
        None,
        description="TLS, users and headers, in the format of Prometheus' exporter-toolkit: [security](security.md); "
        "read again when it or a certificate changes",
    )
    reload: bool = Field(
        False,
        description="let POST /-/reload load the policy again, for who is known by `web_config_file`; "
        "the control socket always may",
    )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return parse_listen(self.listen)


class RecorderConfig(Section):
    """The flight recorder, and what else outlives an agent."""

    enabled: bool = Field(True, description="keep judged states on disk, write bundles, remember what is usual")
    directory: Annotated[Path, AfterValidator(absolute_path)] = Field(
        Path("/var/lib/kvtide"), description="where; what can't be written there is not kept, and the agent goes on"
    )
    full_minutes: float = Field(30.0, ge=1.0, le=1440.0, description="minutes for which every state is kept")
    days: float = Field(14.0, ge=0.0, le=366.0, description="days for which one state a minute is kept")
    max_bytes: int = Field(
        512 << 20, ge=16 << 20, description="bytes on disk in all, a quarter of them for the bundles of incidents"
    )


class AgentConfig(Section):
    """All that the agent can be told."""

    link: LinkConfig = LinkConfig()
    http: HttpConfig = HttpConfig()
    sources: SourcesConfig = SourcesConfig()
    recorder: RecorderConfig = RecorderConfig()
    balancer: BalancerConfig = BalancerConfig()
    supervisor: SupervisorConfig = SupervisorConfig()
    policy: str = Field(
        "default",
        description="profile (default, latency, throughput, textbook) or file to judge and act by: [policy](policy.md)",
    )
    gone_after_periods: float = Field(
        3.0, ge=1.0, le=60.0, description="report periods without a word after which an engine's values are dropped"
    )


def load(file: Path | None, overrides: dict[str, Any]) -> AgentConfig:
    """Return the configuration from ``file`` (the default file if there is one) and ``overrides`` by dotted key.

    Raises :class:`ConfigError` with one line that names the key, the value and what is allowed.
    """
    where = str(file) if file else str(DEFAULT_FILE)
    data: Any = {}
    if file is not None or DEFAULT_FILE.exists():
        data = read(file or DEFAULT_FILE)
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: must be a mapping of settings, not {type(data).__name__}")
    for key, value in overrides.items():
        section, dot, name = key.partition(".")
        if not dot:
            data[key] = value
            continue
        inner = data.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{where}: {section}: must be a mapping of settings, not {type(inner).__name__}")
        inner[name] = value
    return checked(AgentConfig, data, where, overrides)
