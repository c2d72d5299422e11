"""The web settings in force: read again when a file changes, all or nothing, with the old ones until then."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agent.errors import ConfigError
from agent.web.credentials import Credentials
from agent.web.settings import Loaded, WebSettings, load
from agent.web.state import REASONS

logger = logging.getLogger("kvtide.agent")


class Web:
    """``file``: None for no TLS and no users. Raises :class:`ConfigError` where the first reading finds a fault.

    ``settings`` is exchanged whole; ``problem`` says why a newer file was not taken. What keeps strangers out is never
    taken away by it: an editor that empties a file before it writes it must not open a door.
    """

    def __init__(self, file: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock = file, clock
        self._loaded = load(file) if file is not None else Loaded(WebSettings(), {})
        self._threads = ThreadPoolExecutor(1, "kvtide-web")  # its thread starts when a hash is first computed
        self.settings = self._loaded.settings
        self.credentials = Credentials(self.settings.users, self._threads, clock)
        _uneven(self.settings)
        self.problem = ""
        self.refused = dict.fromkeys(REASONS, 0)
        self.changed: Callable[[], None] = lambda: None

    @property
    def watches(self) -> bool:
        """Whether there is a file that can change."""
        return self._file is not None

    def look(self) -> Loaded | None:
        """Return what the file says now, None where there is nothing new to be taken. Reads files: on a thread.

        Raises :class:`ConfigError`.
        """
        if self._file is None or not self._loaded.changed():
            return None
        loaded = load(self._file)
        if lost := _lost(self.settings, loaded.settings):
            raise ConfigError(
                f"{self._file}: has no {lost} any more: that takes a restart, for a file may be half written"
            )
        return loaded

    def take(self, loaded: Loaded) -> None:
        """Let ``loaded`` be in force from the next connection and the next request on."""
        self._loaded = loaded
        self.credentials = Credentials(loaded.settings.users, self._threads, self._clock)
        self.settings = loaded.settings
        self.problem = ""
        _uneven(loaded.settings)
        logger.info("web: %s was loaded again", self._file)
        self.changed()

    def stays(self, error: ConfigError) -> None:
        """Note why the file was not taken; said once."""
        if str(error) != self.problem:
            self.problem = str(error)
            logger.error("web: what was before stays in force: %s", error)


def _uneven(settings: WebSettings) -> None:
    if len({each[4:6] for each in settings.users.values()}) > 1:
        logger.warning("web: basic_auth_users: hashes of different costs: how long a refusal takes tells names apart")


def _lost(before: WebSettings, after: WebSettings) -> str:
    """Return what kept strangers out before and does no more."""
    if before.tls is not None:
        if after.tls is None:
            return "tls_server_config"
        if before.tls.verify_mode > after.tls.verify_mode:
            return f"client_auth_type that checks as much ({before.tls.verify_mode.name})"
    return "basic_auth_users" if before.users and not after.users else ""
