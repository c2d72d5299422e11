"""Judges scenarios on several cores, the longest first."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from bench.corpus import served, simulated
from bench.corpus.catalogue import scenarios
from bench.corpus.scenario import Part, Scenario
from bench.score.episodes import Heard, listen

_Key = tuple[Part, str]


def chosen(part: Part, *, quick: bool, only: str = "") -> list[Scenario]:
    """Return the scenarios to judge. ``quick``: one of each recipe that is not long. ``only``: part of their names."""
    found = [each for each in scenarios(part) if only in each.name]
    if quick:
        found = [each for each in found if each.number == 0 and not each.recipe.long]
    return found


def heard(wanted: list[Scenario]) -> Iterator[Heard]:
    """Yield what was said of each scenario, in the order in which they are done."""
    served.prepare(wanted)  # alone, since others on its cores would be in the recording
    real = [each for each in wanted if each.recipe.family == "simulated"]
    made = [each for each in wanted if each.recipe.family != "simulated"]
    by_name = {each.name: each for each in wanted}
    cores = min(len(os.sched_getaffinity(0)), 8)
    with multiprocessing.get_context("forkserver").Pool(cores) as pool, ThreadPoolExecutor(1) as beside:
        # What the real scheduler does is made while the pool judges the rest.
        ready = beside.submit(simulated.prepare, real)
        yield from _told(pool.imap_unordered(_listen_named, _keys(made)), by_name)
        ready.result()
        yield from _told(pool.imap_unordered(_listen_named, _keys(real)), by_name)


def progress(found: Iterable[Heard], of: int) -> Iterator[Heard]:
    """Pass ``found`` on and tell now and then how far it is."""
    told = time.monotonic()
    for number, each in enumerate(found, 1):
        if time.monotonic() - told > 15:
            told = time.monotonic()
            print(f"[score] {number} of {of} scenarios", file=sys.stderr, flush=True)
        yield each


_SCENARIOS: dict[_Key, Scenario] = {}
_Plain = tuple[str, Heard]


def _listen(key: _Key) -> Heard:
    if key not in _SCENARIOS:
        logging.getLogger("kvtide").setLevel(logging.CRITICAL)  # what the source's own code says of stale pages
        _SCENARIOS.update({(key[0], each.name): each for each in scenarios(key[0])})
    return listen(_SCENARIOS[key])


def _listen_named(key: _Key) -> _Plain:
    return key[1], _listen(key).without_scenario()


def _told(found: Iterable[_Plain], by_name: dict[str, Scenario]) -> Iterator[Heard]:
    for name, each in found:
        yield each.of(by_name[name])


def _keys(wanted: list[Scenario]) -> list[_Key]:
    return [(each.part, each.name) for each in sorted(wanted, key=_cost)]


def _cost(scenario: Scenario) -> tuple[bool, bool]:
    return (not scenario.recipe.long, scenario.recipe.family != "normal")
