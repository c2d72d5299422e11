"""Asks a server for its page, and for no more of it than is needed.

Making a whole page of vLLM keeps its API server busy for 14 ms, making the ten series that we use takes 0.3 ms. So the
whole page is asked for once a minute, and in between those series by ``/metrics/?name[]=``, which vLLM's exporter
understands. Where the answer is not the same engines (several API servers, SGLang), only whole pages are asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote, urlencode

from agent.sources.scrape.fetch import Fetcher, FetchError
from agent.sources.scrape.page import Page, PageError, PageReader, RowKey

WHOLE_SECONDS = 60.0
_MAX_NAMES = 32


class Asker:
    """``clock``: monotonic seconds."""

    def __init__(self, fetcher: Fetcher, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetcher = fetcher
        self._clock = clock
        self._reader = PageReader()
        self._narrow = fetcher.standard  # until an answer has shown that it does not work
        self._query = ""
        self._whole_due = 0.0
        self._infos: dict[RowKey, dict[str, str]] = {}

    def page(self) -> tuple[Page, float]:
        """Return the page, and its age by a cache's word in seconds; raises :class:`FetchError`, :class:`PageError`."""
        if self._query and self._clock() < self._whole_due:
            try:
                return self._part()
            except PageError:
                self._narrow = False
            except FetchError as error:
                if not error.answered:
                    self._forget()
                    raise
                self._narrow = False
        try:
            fetched = self._fetcher.get()
        except FetchError:
            self._forget()
            raise
        page = self._reader.read(fetched.text)
        self._infos = {key: row.info for key, row in page.rows.items()}
        self._whole_due = self._clock() + WHOLE_SECONDS
        names = [("name[]", name) for name in sorted(page.names)[:_MAX_NAMES]]
        self._query = urlencode(names, safe="[]:", quote_via=quote) if self._narrow else ""
        return page, fetched.age_seconds

    def _part(self) -> tuple[Page, float]:
        fetched = self._fetcher.get(self._query)
        page = self._reader.read(fetched.text)
        if page.rows.keys() != self._infos.keys():
            raise PageError("not the same engines")
        for key, row in page.rows.items():
            row.info = row.info or self._infos[key]
        return page, fetched.age_seconds

    def _forget(self) -> None:
        """What comes back may be another server."""
        self._narrow, self._query = self._fetcher.standard, ""
