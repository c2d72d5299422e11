"""Which policy is in force, and what became of the last attempt to load another."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from msgspec.structs import replace

from agent.errors import ConfigError
from agent.policy.file import choose
from agent.policy.state import PolicyState
from agent.policy.types import Policy

logger = logging.getLogger("kvtide.agent")


class LoadedPolicy:
    """Loads the policy that ``source`` names, and loads it again; raises :class:`ConfigError` the first time.

    ``adopt`` takes another policy; what it raises counts as a refusal, and then it gets the old one again.
    """

    def __init__(self, source: str, wall: Callable[[], float] = time.time) -> None:
        self._source = source
        self._wall = wall
        self.policy = choose(source)
        self.state = PolicyState(source=source, profile=self.policy.profile, loaded_at=wall())

    def reload(self, adopt: Callable[[Policy], None]) -> str:
        """Load it again, all of it or nothing; return why it was not taken, empty where it was."""
        try:
            policy = choose(self._source)
        except ConfigError as error:
            return self._refused(str(error))
        try:
            adopt(policy)
        except Exception as error:
            logger.exception("a policy could not be taken: please report this")
            adopt(self.policy)
            return self._refused(f"{type(error).__name__}: {error}")
        self.policy = policy
        self.state = PolicyState(source=self._source, profile=policy.profile, loaded_at=self._wall())
        logger.info("the policy %s was loaded again (profile %s)", self._source, policy.profile)
        return ""

    def _refused(self, why: str) -> str:
        logger.error("the policy stays as it was: %s", why)
        self.state = replace(self.state, problem=why)
        return why
