"""Looks actions up: at the agent, and in the journal where none answers or where it knows more."""

from __future__ import annotations

from pathlib import Path

import msgspec

from agent.actions.errors import JournalError
from agent.actions.journal import FILE
from agent.actions.journal_file import look_up
from agent.actions.types import ActionsState
from agent.cli.control import ControlClient, NoAgentError
from agent.errors import KvtideError
from agent.faces.actions import Looked
from agent.state import AgentState


def looked_up(socket: Path, directory: Path, most: int) -> Looked:
    """Return what the journal has, with the agent's own word where one answers. Raises :class:`KvtideError`."""
    state, down = _state(socket)
    try:
        actions, _, refused = look_up(directory / FILE, most)
    except JournalError as error:
        if state is None:
            raise KvtideError(f"{down}; and the journal: {error}") from None
        return Looked(state=state, actions=state.recent[:most], journal=str(error))
    if state is not None:  # what is newer than what this user can read on the disk
        told = {each.id: each for each in state.recent}
        merged = {each.id: told.get(each.id, each) for each in actions} | told
        actions = tuple(sorted(merged.values(), key=lambda each: -each.at))[:most]
    return Looked(state=state, actions=actions, refused=refused, down=down)


def one(socket: Path, directory: Path, action: str) -> Looked:
    """Return one action with its steps. Raises :class:`KvtideError`."""
    state, down = _state(socket)
    told = [each for each in state.recent if each.id == action] if state is not None else []
    try:
        actions, steps, _ = look_up(directory / FILE, 0, action)
    except JournalError as error:
        if not told:
            raise KvtideError(
                f"action {action}: {down or 'the agent does not know it'}; the journal: {error}"
            ) from None
        return Looked(state=state, actions=tuple(told), journal=str(error))
    found = tuple(told) or actions
    if not found:
        raise KvtideError(f"action {action}: is not known; kvtide actions list shows which are")
    return Looked(state=state, actions=found, steps=steps, down=down)


def _state(socket: Path) -> tuple[ActionsState | None, str]:
    """Return what the agent says, and why nothing where it says nothing."""
    try:
        content = ControlClient(socket).get("/api/v1/state")
        return msgspec.json.decode(content, type=AgentState).actions, ""
    except NoAgentError as error:
        return None, str(error)
    except msgspec.MsgspecError as error:
        return None, f"the agent's state can't be read ({error}); is it another version?"
