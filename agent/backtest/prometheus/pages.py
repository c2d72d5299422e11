"""Engines without hooks whose own pages a Prometheus has read: the pages are put together again and read as ours are.

So that one reader knows all names of all versions, resets, several processes that speak for one engine, and what is
no value at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.backtest.prometheus.moment import Line
from agent.sources.scrape.engines import Engines
from agent.sources.scrape.fetch import Fetched, Fetcher
from agent.sources.scrape.scraper import Scraper
from agent.sources.scrape.state import ScrapedState
from agent.sources.scrape.targets import Target, TargetKey

# What Prometheus adds to each series of a target: on the page they are not.
_ADDED = ("job", "instance", "__name__")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class _Kept(Fetcher):
    """Gives the page that was put last in the place of a GET."""

    def __init__(self) -> None:
        super().__init__("http://kept.invalid/page", 1.0)
        self.text = ""

    def get(self, query: str = "") -> Fetched:
        """Return that page; it is never narrowed, for ``query`` would have to be understood."""
        return Fetched(self.text, 0.0)


class Pages:
    """One target whose page Prometheus reads."""

    def __init__(self, name: str, kind: str) -> None:
        self._kept = _Kept()
        self._at = 0.0
        self._scraper = Scraper(
            name, self._kept, period=1.0, timeout=1.0, clock=lambda: self._at, wall=lambda: self._at
        )
        self._target: dict[TargetKey, Target] = {
            ("prometheus", name): Target(self._scraper, name, hint=kind, kind=kind)
        }
        self._engines = Engines()
        self._texts: dict[int, str] = {}

    def of(self, lines: Iterable[tuple[str, Line]], step: int, at: float) -> ScrapedState:
        """Return the target's engines by what its series say at ``step``, which was scraped at ``at``."""
        self._at = at
        rows = [
            f"{self._head(name, line)} {value!r}\n"
            for name, line in lines
            if (value := line.values.get(step)) is not None
        ]
        self._kept.text = "".join(rows)
        self._scraper.scrape()
        engines, left_out = self._engines.of(self._target, at)
        return ScrapedState(engines=engines, left_out=left_out)

    def _head(self, name: str, line: Line) -> str:
        """Return a line's name and labels, made once for each chunk of the history."""
        head = self._texts.get(id(line))
        if head is None:
            inner = ",".join(
                f'{label}="{text.translate(_ESCAPES)}"' for label, text in line.labels.items() if label not in _ADDED
            )
            head = self._texts[id(line)] = f"{name}{{{inner}}}"
        return head

    def forget(self) -> None:
        """The lines that were given are done with."""
        self._texts.clear()
