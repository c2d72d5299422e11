"""What an agent has learned, for the one after it."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import msgspec

from agent.bundle.header import Usuals
from agent.recorder.store import BASELINES
from agent.signals.baseline import Baselines

logger = logging.getLogger("kvtide.recorder")

MAX_BYTES = 4 << 20


def baselines_in(directory: Path) -> Baselines | None:
    """Return what was kept in ``directory``; None where nothing was, or what is there can't be used."""
    path = directory / BASELINES
    try:
        # A pipe of that name must not hold up the agent.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is no file")
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError("it is too large")
        return msgspec.msgpack.decode(content, type=Usuals).baselines
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        logger.warning("%s: can't be used (%s): what is usual here is learned anew", path, why)
        return None
