"""The agent's configuration: one YAML file, overridden by options; checked whole before anything starts."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, get_args

import pydantic
import yaml
from pydantic import AfterValidator, Field

from agent.errors import ConfigError
from agent.sources.config import Section, SourcesConfig
from engine_hooks.wire import DEFAULT_SOCKET, KEY_NAME

DEFAULT_FILE = Path("/etc/kvtide/agent.yaml")
DEFAULT_LISTEN = "127.0.0.1:9477"
_SHOWN = 200  # characters of a wrong value
_PASSWORD = re.compile(r"//[^@\s'\"]*@")
_QUERY = re.compile(r"(://[^?\s'\"]*\?)[^\s'\"]*")
MAX_SOCKET_PATH = 107  # sun_path holds 108 bytes with the ending zero: unix(7)


def _absolute_path(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError("must not contain a zero byte")
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path


def _socket_path(path: Path) -> Path:
    size = len(str(path).encode())
    if size > MAX_SOCKET_PATH:
        raise ValueError(f"the path has {size} bytes, {MAX_SOCKET_PATH} are allowed; choose a shorter one")
    return _absolute_path(path)


def parse_listen(text: str) -> tuple[str, int]:
    """Split ``HOST:PORT`` (IPv6 in brackets; port 0 takes a free one); raises ValueError."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be HOST:PORT with a port of 0 to 65535, such as 127.0.0.1:9477 or [::1]:9477")
    host = host.removeprefix("[").removesuffix("]")
    if host != "localhost":
        ipaddress.ip_address(host)  # its ValueError says what is wrong
    return host, int(port)


def _listen(text: str) -> str:
    parse_listen(text)
    return text


class LinkConfig(Section):
    """The link to the engines of this node."""

    socket: Annotated[Path, AfterValidator(_socket_path)] = Field(
        DEFAULT_SOCKET, description="Unix socket that the agent binds; engines find it by KVTIDE_SOCKET"
    )
    key_file: Annotated[Path, AfterValidator(_absolute_path)] | None = Field(
        None, description=f"key shared with the engines, made when missing; default: {KEY_NAME} beside the socket"
    )
    mode: int = Field(0o660, ge=0, le=0o777, description="permissions of the socket")
    group: str | None = Field(None, description="group of the socket and of the key file; its members may connect")
    allow_uids: tuple[int, ...] = Field((), description="uids that may connect, besides root and the agent's own")
    allow_gids: tuple[int, ...] = Field((), description="further gids that may connect")

    @property
    def key_path(self) -> Path:
        """Where the key is."""
        return self.key_file or self.socket.with_name(KEY_NAME)


class HttpConfig(Section):
    """The agent's HTTP side: metrics, health, state, landing page."""

    listen: Annotated[str, AfterValidator(_listen)] = Field(
        DEFAULT_LISTEN, description="HOST:PORT; port 0 takes a free one"
    )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return parse_listen(self.listen)


class AgentConfig(Section):
    """All that the agent can be told."""

    link: LinkConfig = LinkConfig()
    http: HttpConfig = HttpConfig()
    sources: SourcesConfig = SourcesConfig()
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
        data = _read(file or DEFAULT_FILE)
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: must be a mapping of settings, not {type(data).__name__}")
    for key, value in overrides.items():
        section, _, name = key.partition(".")
        inner = data.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{where}: {section}: must be a mapping of settings, not {type(inner).__name__}")
        inner[name] = value
    try:
        return AgentConfig.model_validate(data)
    except pydantic.ValidationError as error:
        raise ConfigError(_one_line(where, error, overrides)) from None


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice: the second would silently replace the first."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read(file: Path) -> Any:
    try:
        data = yaml.load(file.read_text(), _Loader)  # noqa: S506 - it is a SafeLoader
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, or no such date or number
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ConfigError(f"{file}:{line} not valid YAML: {problem}") from None
    return {} if data is None else data


def _one_line(where: str, error: pydantic.ValidationError, overrides: dict[str, Any]) -> str:
    parts = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        source = "option" if key in overrides else where
        if problem["type"] == "extra_forbidden":
            allowed = ", ".join(_known_keys(problem["loc"][:-1]))
            parts.append(f"{source}: unknown key {key}; allowed here: {allowed}")
        elif problem["type"] == "missing":
            *outer, name = map(str, problem["loc"])
            parts.append(f"{source}: {'.'.join(outer)}: {name} is missing")
        else:
            text = _allowed(problem["type"], problem["loc"]) or problem["msg"].removeprefix("Value error, ")
            parts.append(f"{source}: {key}: {_shown(problem['input'])}: {_hidden(text)}")
    return " ".join("; ".join(parts).split())  # a key may hold line ends


def _allowed(kind: str, path: tuple[int | str, ...]) -> str:
    """Return what must be there, for kinds of problems that pydantic tells in Python's words; else nothing."""
    if kind == "model_type":
        return f"must be a mapping with {', '.join(_known_keys(path))}"
    return 'must be a list (lines that begin with "-")' if kind == "tuple_type" else ""


def _shown(value: object) -> str:
    text = _hidden(repr(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _hidden(text: str) -> str:
    """Return ``text`` without passwords in addresses and without what these ask for: logs are read by many."""
    return _QUERY.sub(r"\1...", _PASSWORD.sub(r"//...@", text))


def _known_keys(path: tuple[int | str, ...]) -> list[str]:
    model: Any = AgentConfig
    for part in path:
        # The number of an item of a list: the list's type is tuple[Section, ...].
        model = get_args(model)[0] if isinstance(part, int) else model.model_fields[part].annotation
    return list(model.model_fields)
