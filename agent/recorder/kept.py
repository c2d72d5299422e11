"""What an agent has learned, for the one after it."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import msgspec
from msgspec.structs import replace

from agent.bundle.header import Usuals
from agent.recorder.store import BASELINES

logger = logging.getLogger("kvtide.recorder")

MAX_BYTES = 8 << 20
BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return what names this boot of the host, whose monotonic clock begins with it; empty where nobody says."""
    try:
        return BOOT.read_text().strip()[:64]
    except (OSError, UnicodeDecodeError):
        return ""


def usuals_in(directory: Path) -> Usuals | None:
    """Return what was kept in ``directory``; None where nothing was, or what is there can't be used.

    What slow estimates rest on is of no use after another boot: processes and GPUs have begun anew, and so has the
    clock.
    """
    path = directory / BASELINES
    try:
        # A pipe of that name must not hold up the agent.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is no file")
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError("it is too large")
        usuals = msgspec.msgpack.decode(content, type=Usuals)
        same_boot = usuals.tracks is not None and usuals.tracks.boot == boot_id() != ""
        return usuals if same_boot else replace(usuals, tracks=None)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        logger.warning("%s: can't be used (%s): what is usual here is learned anew", path, why)
        return None
