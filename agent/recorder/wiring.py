"""From the configuration to a recorder."""

from __future__ import annotations

import socket

from msgspec.structs import replace

from agent.bundle.format import Header, Usuals
from agent.config import RecorderConfig
from agent.judging import LiveJudge
from agent.recorder.kept import boot_id
from agent.recorder.recorder import Recorder
from agent.recorder.store import Store


def recorder_of(config: RecorderConfig, judge: LiveJudge) -> Recorder | None:
    """Return the recorder, not started yet; None where it is switched off."""
    if not config.enabled:
        return None
    header = Header(
        why="flight recorder",
        host=socket.gethostname(),
        profile=judge.policy.profile,
        policy=judge.policy.model_dump_json(),
    )
    store = Store(
        config.directory,
        header,
        full_seconds=60.0 * config.full_minutes,
        coarse_seconds=86400.0 * config.days,
        max_bytes=config.max_bytes,
    )
    boot = boot_id()

    def usuals() -> Usuals:
        learned = judge.usuals()
        return replace(learned, tracks=replace(learned.tracks, boot=boot) if learned.tracks is not None else None)

    return Recorder(store, usuals)
