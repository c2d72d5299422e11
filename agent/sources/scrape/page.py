"""A page of metrics as rows, one per engine on it.

Only the lines that we need are looked at: parsing a whole page of vLLM 0.32 takes 30 ms, finding its ten lines 0.2 ms.
Their labels are parsed by prometheus_client, once per series.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.sources.scrape.families import ALL_NAMES, COUNTERS, FIELD_OF, INFO, MODES
from engine_hooks.names import printable

MAX_ROWS = 64
MAX_SERIES = 4096  # whose meaning is remembered
MAX_LINES = 20_000  # of engines, on one page
LONGEST_LABELS = 8192  # characters: vLLM's longest, of its cache's settings, have some 1,500
_LONGEST_NAME = 256  # characters of one label's value
_LARGEST = float(1 << 63)  # no engine has counted so far
_SLACK = 1e-6  # rounding may take a ratio so far above one
_LINE = re.compile(r"\n((?:ray_)?(vllm|sglang)[:_])(" + "|".join(map(re.escape, ALL_NAMES)) + r")(?=[{ \t])([^\n]*)")
_REPORTERS = ("pid", "tp_rank", "pp_rank", "moe_ep_rank")
_REPLICAS = ("ReplicaId", "worker_addr", "pod", "instance", "WorkerId")


class PageError(Exception):
    """What came is no page of an engine; the text says why."""


class RowKey(NamedTuple):
    """Which engine on a page: data-parallel ``rank`` and, where one page shows several servers, ``replica``."""

    kind: str
    model: str
    rank: str
    replica: str


class Rejected(NamedTuple):
    """A value that can't be: ``reason`` is negative, above_one, too_large or not_finite."""

    name: str
    value: float
    reason: str


@dataclass(slots=True)
class Row:
    """Values by name: those that belong to the engine, and those of each of several processes that speak for it."""

    base: dict[str, float] = field(default_factory=dict)
    reporters: dict[tuple[str, ...], dict[str, float]] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    info: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Page:
    """``names`` are those of its series, as they are there.

    ``newest``: the youngest time stamp on its lines in Unix seconds, None where they have none, as is usual.
    """

    rows: dict[RowKey, Row]
    names: set[str]
    left_out: int
    newest: float | None


class _Series(NamedTuple):
    """What the name and the labels of a line mean. ``names``: by which its value is kept, each with its field."""

    key: RowKey
    reporter: tuple[str, ...]  # empty: the engine itself
    names: tuple[tuple[str, str], ...]
    labels: dict[str, str]


class PageReader:
    """Reads the pages of one server; remembers what its series mean."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], _Series] = {}

    def read(self, text: str) -> Page:
        """Return the page's rows; raises :class:`PageError`."""
        html = "<html" in text[:1000].lower()
        if not text.endswith("\n") and not html:
            raise PageError("the page ends in the middle of a line" if text else "the page is empty")
        rows: dict[RowKey, Row] = {}
        infos: dict[tuple[str, str], dict[str, str]] = {}
        names: set[str] = set()
        newest: float | None = None
        left_out: set[RowKey] = set()
        # One by one: to find all at once would keep every other thread of the agent waiting.
        for number, found in enumerate(_LINE.finditer("\n" + text)):
            if number >= MAX_LINES:
                raise PageError(f"more than {MAX_LINES:,} lines of engines are on the page")
            prefix, kind, name, rest = found.groups()
            names.add(prefix + name)
            series, value, stamp = self._split(kind, name, rest)
            if stamp is not None:
                newest = stamp if newest is None else max(newest, stamp)
            key = series.key
            if name == INFO:
                infos[key.rank, key.replica] = series.labels
            elif key in rows or len(rows) < MAX_ROWS:
                _put(rows.setdefault(key, Row()), series, name, value)
            else:
                left_out.add(key)
        if not rows:
            raise PageError(
                "it is a page for people (HTML), not one of metrics"
                if html
                else "no metric of vLLM or SGLang is on the page"
            )
        _fold(rows)
        for key, row in rows.items():
            row.info = infos.get((key.rank, key.replica)) or infos.get(("", key.replica)) or {}
        return Page(rows=rows, names=names, left_out=len(left_out), newest=newest)

    def _split(self, kind: str, name: str, rest: str) -> tuple[_Series, float, float | None]:
        end = rest.rfind("}") + 1 if rest.startswith("{") else 0
        words = rest[end:].split()
        try:
            if len(words) not in (1, 2) or (rest.startswith("{") and not end):
                raise ValueError
            if end > LONGEST_LABELS:
                raise PageError(f"the labels of a line of {name} have {end:,} characters; an engine's have less")
            stamp = int(words[1][:20]) / 1000 if len(words) == 2 else None
            return self._series(kind, name, rest[:end]), float(words[0]), stamp
        except ValueError:
            raise PageError(f"a line of {name} can't be read: {rest.strip()[:60]!r}") from None

    def _series(self, kind: str, name: str, labels: str) -> _Series:
        series = self._known.get((kind, name, labels))
        if series is None:
            if len(self._known) >= MAX_SERIES:
                self._known.clear()
            series = self._known[kind, name, labels] = _series_of(kind, name, _parsed(labels))
        return series


def _parsed(labels: str) -> dict[str, str]:
    if not labels:
        return {}
    # Not before it is needed: it costs 2.5 MB.
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415

    (family,) = text_string_to_metric_families(f"series{labels} 0\n")
    return family.samples[0].labels


def _series_of(kind: str, name: str, labels: dict[str, str]) -> _Series:
    labels = {label: text if len(text) <= _LONGEST_NAME else printable(text) for label, text in labels.items()}
    reporter = tuple(labels.get(label, "") for label in _REPORTERS)
    names = MODES.get((name, labels["mode"]), ()) if "mode" in labels else (name,)
    return _Series(
        key=RowKey(
            kind=kind,
            model=labels.get("model_name") or labels.get("name") or "",
            rank=labels.get("engine" if kind == "vllm" else "dp_rank") or "",
            replica=next((labels[label] for label in _REPLICAS if labels.get(label)), ""),
        ),
        reporter=reporter if any(reporter) else (),
        # A name of the other kind has no field here.
        names=tuple((known, FIELD_OF[kind, known]) for known in names if (kind, known) in FIELD_OF),
        labels=labels if name == INFO else {},
    )


def _put(row: Row, series: _Series, name: str, value: float) -> None:
    into = row.reporters.setdefault(series.reporter, {}) if series.reporter else row.base
    for known, field_name in series.names:
        if reason := _wrong(field_name, value):
            row.rejected.append(Rejected(name, value, reason))
        elif field_name in COUNTERS:  # labels that we do not know split it
            into[known] = into.get(known, 0.0) + value
        else:
            into[known] = max(into.get(known, 0.0), value)


def _wrong(field_name: str, value: float) -> str:
    if not math.isfinite(value):
        return "not_finite"
    if value < 0:
        return "negative"
    if value > _LARGEST:
        return "too_large"
    return "above_one" if field_name == "usage" and value > 1 + _SLACK else ""


def _fold(rows: dict[RowKey, Row]) -> None:
    """Give a row that lacks labels to the only one that it can belong to.

    Where it can belong to several it speaks of the whole server, as SGLang's front does of its ranks, and is left out.
    """
    for key in [key for key in rows if not (key.model and key.rank)]:
        owners = [other for other in rows if other != key and _fits(key, other)]
        if owners and not rows[key].reporters:
            loose = rows.pop(key)
            if len(owners) == 1:
                owner = rows[owners[0]]
                owner.base = loose.base | owner.base
                owner.rejected += loose.rejected


def _fits(loose: RowKey, other: RowKey) -> bool:
    return loose == other._replace(model=loose.model and other.model, rank=loose.rank and other.rank)
