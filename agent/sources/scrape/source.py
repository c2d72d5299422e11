"""The source: engines without hooks, by the pages that they serve themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Set

from agent.sources.config import ScrapeConfig
from agent.sources.scrape.engines import Engines
from agent.sources.scrape.state import ScrapedState
from agent.sources.scrape.targets import Targets


class ScrapeSource:
    """``hooked`` gives the pids, as this process sees them, of what reports by hooks; this source's thread calls it."""

    NAME = "scrape"

    def __init__(
        self,
        config: ScrapeConfig,
        hooked: Callable[[], Set[int]] = frozenset,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.period = config.period_seconds
        self.timeout = 15.0  # a look at thousands of processes may take a while; pages have threads of their own
        self._clock = clock
        self._targets = Targets(config, hooked, clock)
        self._engines = Engines()

    def read(self) -> ScrapedState:
        """Return what is known of all engines; the first call starts to scrape them."""
        engines, left_out = self._engines.of(self._targets.current(), self._clock())
        return ScrapedState(engines=engines, passed_over=tuple(self._targets.passed_over), left_out=left_out)

    def close(self) -> None:
        """Stop scraping."""
        self._targets.close()
