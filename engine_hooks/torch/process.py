"""A PyTorch process that belongs to no engine: one call has the agent see its allocator."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from engine_hooks.identity import Identity
from engine_hooks.member_link import MemberLink
from engine_hooks.settings import Settings
from engine_hooks.torch.probe import of_process

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines


class Attachment:
    """What :func:`attach` returns. ``name``: what the agent shows; it makes it unique on its node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = os.getpid()
        self.open = False
        self._link: MemberLink | None = None

    def start(self, settings: Settings) -> None:
        """Begin to report."""
        identity = Identity.of_process(self.name)
        self._link = MemberLink(self, identity, settings, lambda: None, of_process(settings))
        self._link.start()
        self.open = True

    def close(self) -> None:
        """End it; returns at once, and may be called again. The process goes on as it was."""
        self.open = False
        if self._link is not None:
            self._link.close()


_attachments: list[Attachment] = []


def attach(name: str | None = None) -> Attachment:
    """Report this process's CUDA allocator to the node's agent, once a second, from a thread of its own.

    ``name``: for people; the script's where it is left out. ``KVTIDE_*`` in the environment configures it, and
    ``KVTIDE_DISABLE`` makes this a call without effect. May be called before torch is imported and again: there is one
    attachment in a process, and what is returned then is the one that there is. Never raises. vLLM's workers need none.
    """
    known = _attachments[0] if _attachments else None
    if known is not None and known.open and known.pid == os.getpid():
        return known
    attachment = Attachment(_name(name))
    try:
        settings = Settings.from_environment()
        if settings.enabled:
            attachment.start(settings)
            _attachments[:] = [attachment]
    except Exception:
        logger.exception("kvtide: this process could not be attached; it goes on without")
    return attachment


def _name(name: str | None) -> str:
    return str(name or Path(sys.argv[0] if sys.argv else "").stem or "python")
