"""Which servers are scraped: those that the settings name, and those that are found among the processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from typing import NamedTuple

from agent.sources.config import ScrapeConfig, page_of
from agent.sources.scrape.discovery import Discovery
from agent.sources.scrape.fetch import Fetcher, shown_url
from agent.sources.scrape.scraper import Scraper
from agent.sources.scrape.state import PassedOver

LOOK_SECONDS = 10.0  # from one search among the processes to the next
CLOSE_SECONDS = 0.3
SETTLE_SECONDS = 5.0  # engines with hooks are connected by then: after a start of the agent they take up to 4 s

TargetKey = tuple[str, ...]


class Target(NamedTuple):
    """A server that is scraped. ``name`` is from the settings; ``hint`` stands in for it until a page has come.

    ``pid`` is that of a server that was found, None for one of the settings.
    """

    scraper: Scraper
    url: str
    name: str = ""
    hint: str = ""
    pid: int | None = None
    kind: str = ""


class Targets:
    """All of them. ``hooked``: pids of what reports by hooks, as this process sees them."""

    def __init__(
        self, config: ScrapeConfig, hooked: Callable[[], Set[int]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._clock = clock
        self._discovery = Discovery(hooked) if config.discover else None
        self._next_look = clock() + SETTLE_SECONDS
        self._targets: dict[TargetKey, Target] = {}
        self._closed = False
        self.passed_over: list[PassedOver] = []

    def current(self) -> dict[TargetKey, Target]:
        """Return the servers by a key that is each one's own; those that are new are being scraped from now on."""
        if not self._targets:
            self._add_configured()
        if self._discovery is not None and self._clock() >= self._next_look:
            self._next_look = self._clock() + LOOK_SECONDS
            self._look(self._discovery)
        return self._targets

    def close(self) -> None:
        """Stop scraping."""
        self._closed = True
        scrapers = [target.scraper for target in list(self._targets.values())]
        for scraper in scrapers:
            scraper.stop()
        deadline = self._clock() + CLOSE_SECONDS  # for all of them: each may hang
        for scraper in scrapers:
            scraper.wait(deadline - self._clock())

    def _add_configured(self) -> None:
        for number, engine in enumerate(self._config.engines, 1):
            fetcher = Fetcher(
                engine.url,
                self._config.timeout_seconds,
                token_file=engine.bearer_token_file,
                ca_file=engine.tls_ca_file,
                clock=self._clock,
            )
            shown = shown_url(engine.url)
            scraper = self._scraper(engine.name or shown, fetcher)
            self._add(("config", engine.url), Target(scraper, shown, engine.name or "", f"engine-{number}"))

    def _look(self, discovery: Discovery) -> None:
        servers, self.passed_over = discovery.look()
        configured = {page_of(engine.url) for engine in self._config.engines}
        found = {
            ("process", str(server.pid), str(server.started)): server
            for server in servers
            if page_of(server.url) not in configured
        }
        for key in [key for key in self._targets if key[0] == "process" and key not in found]:
            self._targets.pop(key).scraper.stop()
        for key, server in found.items():
            if key not in self._targets:
                scraper = self._scraper(
                    server.url, Fetcher(server.url, self._config.timeout_seconds, clock=self._clock)
                )
                hint = server.model or server.kind
                self._add(key, Target(scraper, server.url, hint=hint, pid=server.pid, kind=server.kind))

    def _scraper(self, name: str, fetcher: Fetcher) -> Scraper:
        config = self._config
        return Scraper(name, fetcher, period=config.period_seconds, timeout=config.timeout_seconds, clock=self._clock)

    def _add(self, key: TargetKey, target: Target) -> None:
        if not self._closed:
            self._targets[key] = target
            target.scraper.start()
