"""One server's page, read on a thread of its own, so that a slow one delays nobody else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from agent.sources.scrape.ask import Asker
from agent.sources.scrape.families import Reading, reading_of
from agent.sources.scrape.fetch import Fetcher, FetchError
from agent.sources.scrape.history import History, Trend
from agent.sources.scrape.page import PageError, Rejected, Row, RowKey
from agent.sources.scrape.reporters import Reporters
from agent.sources.scrape.state import ScrapePhase

logger = logging.getLogger("kvtide.agent")


class Seen(msgspec.Struct, frozen=True):
    """What the last good page said of one engine. ``rejected``: values that can't be; ``bad`` counts them by reason."""

    reading: Reading
    trend: Trend
    info: dict[str, str]
    rejected: tuple[Rejected, ...]
    bad: dict[str, int]


class Report(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One server now. ``rows`` is empty before the first good page, and then keeps who was on the last one.

    ``taken``: when that page came, on the scraper's clock; ``page_age``: how old it was by its own word, in seconds.
    """

    phase: ScrapePhase
    reason: str
    rows: dict[RowKey, Seen]
    left_out: int = 0
    scrapes: int = 0
    failures: int = 0
    seconds: float | None = None
    taken: float | None = None
    page_age: float = 0.0


class _Engine:
    """What is kept of one engine from page to page."""

    def __init__(self) -> None:
        self.reporters = Reporters()
        self.history = History()
        self.bad: dict[str, int] = {}


class Scraper:
    """Reads ``fetcher``'s page each ``period`` seconds. ``clock``: monotonic; ``wall``: Unix seconds."""

    def __init__(
        self,
        name: str,
        fetcher: Fetcher,
        *,
        period: float,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._name = name
        self._fetcher = fetcher
        self._period, self._timeout = period, timeout
        self._clock, self._wall = clock, wall
        self._asker = Asker(fetcher, clock)
        self._engines: dict[RowKey, _Engine] = {}
        self._stop = threading.Event()
        self._began: float | None = None  # while a page is being fetched
        self._report = Report(phase="down", reason="not read yet", rows={})
        # A daemon: a thread that waits for a name server must not keep the agent from ending.
        self._thread = threading.Thread(target=self._run, name="kvtide-scrape", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading; a GET under way is broken off."""
        self._stop.set()
        self._fetcher.close()

    def wait(self, seconds: float) -> None:
        """Wait for the end of a reader that was stopped, so long at most."""
        if self._thread.is_alive():
            self._thread.join(max(0.0, seconds))

    def report(self) -> Report:
        """Return what is known now."""
        report, began = self._report, self._began
        # The fetcher ends by itself, but for a name server or a server that sends a header byte by byte.
        if began is not None and self._clock() - began > 1.5 * self._timeout:
            reason = f"no answer for {self._clock() - began:.0f} s"
            return msgspec.structs.replace(report, phase="down", reason=reason)
        return report

    def scrape(self) -> None:
        """Read the page once."""
        began = self._began = self._clock()
        previous = self._report
        try:
            page, age = self._asker.page()
        except FetchError as error:
            self._failed(previous, "down", str(error))
        except PageError as error:
            self._failed(previous, "bad_page", str(error))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            # Once for each; and at the end the connection is taken away from under it.
            if not self._stop.is_set() and previous.reason != reason:
                logger.exception("scraping %s", self._name)
            self._failed(previous, "bad_page", reason)
        else:
            now = self._clock()
            gone = self._engines.keys() - page.rows.keys()
            for key in gone:
                del self._engines[key]
            if page.newest is not None:
                age = max(age, self._wall() - page.newest)
            if previous.phase != "up" and previous.scrapes:
                logger.info("scraping %s: its page is read", self._name)
            self._report = Report(
                phase="up",
                reason="",
                rows={key: self._seen(key, row, now) for key, row in page.rows.items()},
                left_out=page.left_out,
                scrapes=previous.scrapes + 1,
                failures=previous.failures,
                seconds=now - began,
                taken=now,
                page_age=age,
            )
        finally:
            self._began = None

    def _failed(self, previous: Report, phase: Literal["down", "bad_page"], reason: str) -> None:
        if self._stop.is_set():
            return
        if (previous.phase, previous.reason) != (phase, reason):
            logger.warning("scraping %s: %s", self._name, reason)
        self._report = msgspec.structs.replace(
            previous,
            phase=phase,
            reason=reason,
            scrapes=previous.scrapes + 1,
            failures=previous.failures + 1,
        )

    def _seen(self, key: RowKey, row: Row, now: float) -> Seen:
        engine = self._engines.setdefault(key, _Engine())
        reading = reading_of(key.kind, engine.reporters.choose(key.kind, row, now))
        for _, _, reason in row.rejected:
            engine.bad[reason] = engine.bad.get(reason, 0) + 1
        return Seen(reading, engine.history.add(now, reading), row.info, tuple(row.rejected), dict(engine.bad))

    def _run(self) -> None:
        due = self._clock()
        while not self._stop.is_set():
            self.scrape()
            due = max(due + self._period, self._clock())
            self._stop.wait(due - self._clock())
