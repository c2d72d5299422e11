"""Sentences that the terminal and the page share."""

from __future__ import annotations

from agent.state import AgentState, LinkState
from engine_hooks.wire import DEFAULT_SOCKET

WITHOUT_HOOKS = "No engine with hooks is connected."


def nobody(state: AgentState) -> list[str]:
    """Say that no engine is connected, and how one is; no advice where engines are read through their own pages.

    A recording names no socket: it is too late for advice there.
    """
    if state.scrape is not None and state.scrape.engines:
        return [WITHOUT_HOOKS]
    if not state.link.socket:
        return ["No engine was connected."]
    return [f"No engine is connected at {state.link.socket}.", invitation(state)]


def invitation(state: AgentState) -> str:
    """Say how an engine gets here, and how one that can't be restarted does where none of those is looked for."""
    socket = state.link.socket
    where = "" if socket == str(DEFAULT_SOCKET) else f", with KVTIDE_SOCKET={socket} in its environment"
    text = f"Start vLLM with kvtide installed beside it{where}: it appears here by itself."
    if any(source.source == "scrape" for source in state.sources):
        return text
    return (
        f"{text} One that runs already and can't be restarted is read through its own page of metrics: set "
        "sources.scrape.discover to true in the agent's configuration."
    )


def refusals(link: LinkState) -> str:
    """Say who was turned away and why; empty when nobody was."""
    why = {
        "uid": "the user is not admitted (link.group, link.allow_uids, link.allow_gids)",
        "key": "the key is another one (link.key_file, KVTIDE_KEY_FILE)",
        "handshake": "it does not speak our protocol",
        "timeout": "it did not answer",
        "limit": "there are too many connections",
    }
    parts = [
        f"{count} because {why[reason]}" for reason, count in link.refused_peers.items() if count and reason in why
    ]
    return f"Connections refused since the agent started: {'; '.join(parts)}." if parts else ""


def agent_troubles(state: AgentState) -> list[str]:
    """Say what of judging and recording does not work; nothing where all does."""
    told = []
    if state.judge_errors:
        told.append(f"kvtide itself failed at {', '.join(sorted(state.judge_errors))}: its log says how; report it.")
    if state.recorder is not None and not state.recorder.recording:
        told.append(f"Nothing is recorded: {state.recorder.reason}.")
    return told
