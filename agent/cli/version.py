"""``kvtide version``: of this command, of the agent, and of each engine's hooks and vLLM."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from agent.cli.quick import DEFAULT_URL


class _Link(msgspec.Struct, frozen=True):
    wire_version: int | None = None
    rejected_frames: dict[str, int] = {}


class _Engine(msgspec.Struct, frozen=True):
    engine: str
    engine_version: str
    hooks_version: str


class _State(msgspec.Struct, frozen=True):
    """Only what is asked for here: an agent of any version has it."""

    version: str
    link: _Link = _Link()
    engines: tuple[_Engine, ...] = ()


def version(
    url: Annotated[str, typer.Option(envvar="KVTIDE_URL", help="The agent's address.")] = DEFAULT_URL,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the versions of both sides: this command, the agent that answers, the engines that it hears.

    kvtide --version asks nobody. Without an agent that is no failure: the last line says why none was heard.

    Examples: kvtide version; kvtide version --json | jq .engines
    """
    from agent.plain import plain

    told = versions(url)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(told)).decode())
        return
    for line in lines(told):
        typer.echo(plain(line))


def versions(url: str) -> dict[str, Any]:
    """Return what is known; ``agent`` is None where none answers, and ``why`` says so."""
    from agent.cli.client import AgentClient
    from agent.errors import ConfigError, KvtideError
    from engine_hooks import __version__
    from engine_hooks.wire import WIRE_VERSION

    told: dict[str, Any] = {"kvtide": __version__, "wire": WIRE_VERSION, "agent": None, "engines": (), "why": ""}
    try:
        state = msgspec.json.decode(AgentClient(url).state_json(), type=_State)
    except ConfigError:
        raise
    except KvtideError as error:
        return told | {"why": str(error)}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return told | {"why": f"{url}: not a kvtide state ({error})"}
    agent = {
        "url": url,
        "version": state.version,
        "wire": state.link.wire_version,
        "refused_frames": state.link.rejected_frames.get("unknown_version", 0),
    }
    return told | {"agent": agent, "engines": state.engines}


def lines(told: dict[str, Any]) -> list[str]:
    """Return what a person reads."""
    found = [f"kvtide {told['kvtide']}, wire {told['wire']}"]
    agent = told["agent"]
    if agent is None:
        return [*found, f"agent: {told['why']}"]
    wire = "" if agent["wire"] is None else f", wire {agent['wire']}"
    found.append(f"agent at {agent['url']}: {agent['version']}{wire}")
    # What speaks another wire version is not heard: all that are listed speak the agent's.
    found += [
        f"engine {each.engine}: hooks {each.hooks_version}, vLLM {each.engine_version}" for each in told["engines"]
    ]
    if agent["refused_frames"]:
        found.append(f"frames of another wire version, which were refused: {agent['refused_frames']}")
    return found
