"""A board's queries as Grafana asks them: variables looked up and put in, over a range or at an instant."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.bed import net

BUILT = Path(__file__).parents[3] / "dashboards" / "built"
POINTS = 240  # of a range, as a panel of some width asks for
COLUMNS = 24
PATIENCE = 30.0
_VALUES = re.compile(r"label_values\((?:(?P<series>.*),\s*)?(?P<label>\w+)\)$", re.DOTALL)
_RESULT = re.compile(r"query_result\((?P<expr>.*)\)$", re.DOTALL)

Board = dict[str, Any]
Panel = dict[str, Any]


class QueryError(RuntimeError):
    """Prometheus refused a query; the text is its own."""


class Query(NamedTuple):
    """One query of a panel, as it is written. ``where``: board, panel and reference."""

    where: str
    expr: str
    instant: bool


class Variables(NamedTuple):
    """``values``: as they stand in a query. ``options``: what there is to choose from, by variable."""

    values: Mapping[str, str]
    options: Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class Window:
    """What a board shows: Unix seconds, and how often Prometheus scrapes."""

    start: float
    end: float
    scrape: float

    @property
    def step(self) -> float:
        """Seconds between two points: never shorter than two scrapes are apart."""
        return max(self.scrape, round((self.end - self.start) / POINTS))

    def built_in(self) -> dict[str, str]:
        """Return Grafana's own variables."""
        rate = max(self.step + self.scrape, 4 * self.scrape)
        span = self.end - self.start
        values = {"__interval": self.step, "__rate_interval": rate, "__range": span}
        return {name: f"{seconds:.0f}s" for name, seconds in values.items()} | {
            "__range_s": f"{span:.0f}",
            "__interval_ms": f"{self.step * 1000:.0f}",
        }


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks one Prometheus what a board shows where everything is chosen."""

    url: str
    window: Window

    def variables(self, board: Board) -> Variables:
        """Return the board's variables. Raises QueryError where one has nothing to choose from."""
        found, options = self.window.built_in(), {}
        for each in board.get("templating", {}).get("list", []):
            name = each["name"]
            if each["type"] == "datasource":
                found[name] = "prometheus"
                continue
            query = each["query"]
            options[name] = self.options(resolve(query if isinstance(query, str) else query["query"], found))
            if not options[name]:
                raise QueryError(f"variable {name} has no value: {query}")
            every = each.get("allValue") or "(" + "|".join(map(re.escape, options[name])) + ")"
            found[name] = every if each.get("includeAll") else options[name][0]
        return Variables(found, options)

    def options(self, query: str) -> list[str]:
        """Return what a variable's query finds, in order."""
        if match := _VALUES.match(query):
            more = {"match[]": match["series"]} if match["series"] else {}
            values: list[str] = self._get(f"label/{match['label']}/values", **more)
            return sorted(values)
        if match := _RESULT.match(query):
            return [json.dumps(each["metric"]) for each in self.at(match["expr"], self.window.end)]
        raise QueryError(f"a variable's query that is not known here: {query}")

    def ask(self, query: Query, variables: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return a query's series: each with its labels ``metric`` and its ``values``, pairs of time and text."""
        expr = resolve(query.expr, variables)
        if query.instant:
            return [{"metric": each["metric"], "values": [each["value"]]} for each in self.at(expr, self.window.end)]
        start, step = self.window.start, self.window.step
        answer = self._get("query_range", query=expr, start=start, end=self.window.end, step=step)
        found: list[dict[str, Any]] = answer["result"]
        return found

    def at(self, expr: str, moment: float) -> list[dict[str, Any]]:
        """Return an instant vector; a scalar counts as a series without labels."""
        answer = self._get("query", query=expr, time=moment)
        if answer["resultType"] == "scalar":
            return [{"metric": {}, "value": answer["result"]}]
        found: list[dict[str, Any]] = answer["result"]
        return found

    def _get(self, path: str, **parameters: object) -> Any:
        about = urllib.parse.urlencode({"start": self.window.start, "end": self.window.end, **parameters})
        try:
            return json.loads(net.get(f"{self.url}/api/v1/{path}?{about}", PATIENCE))["data"]
        except urllib.error.HTTPError as error:
            raise QueryError(json.loads(error.read())["error"]) from None


def boards(folder: Path = BUILT) -> dict[str, Board]:
    """Return all built boards by uid."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {board["uid"]: board for board in found}


def panels(board: Board, options: Mapping[str, list[str]]) -> Iterator[tuple[Panel, dict[str, str]]]:
    """Yield a board's panels where they are drawn, rows among them, each with the variables that it alone has.

    A panel that repeats comes once for each of its variable's ``options``; rows that are closed are opened.
    """
    down = 0
    for panel in board["panels"]:
        place = panel["gridPos"]
        for number, copy in enumerate(_copies(panel, options)):
            yield _moved(copy[0], down), copy[1]
            last = copy[0]["gridPos"]["y"] - place["y"] if number else 0
        down += last
        inner = panel.get("panels") or ()
        if panel["type"] == "row" and inner:
            top = min(each["gridPos"]["y"] for each in inner)
            shift = down + place["y"] + 1 - top
            for each in inner:
                yield _moved(each, shift), {}
            down += max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in inner) - top


def _copies(panel: Panel, options: Mapping[str, list[str]]) -> Iterator[tuple[Panel, dict[str, str]]]:
    name = panel.get("repeat")
    if not name:
        yield panel, {}
        return
    values, place = options[name], panel["gridPos"]
    across = min(len(values), panel.get("maxPerRow", 4))
    for number, value in enumerate(values):
        line, column = divmod(number, across)
        width = COLUMNS // across
        own = {"x": column * width, "y": place["y"] + line * place["h"], "w": width, "h": place["h"]}
        title = resolve(panel["title"], {**options, name: value})
        yield {**panel, "id": f"{panel['id']}-{number}", "title": title, "gridPos": own}, {name: value}


def _moved(panel: Panel, down: int) -> Panel:
    return {**panel, "gridPos": {**panel["gridPos"], "y": panel["gridPos"]["y"] + down}}


def queries(board: Board, panel: Panel) -> list[Query]:
    """Return a panel's queries; those that are hidden are not asked by Grafana either."""
    where = f"{board['uid']}: {panel['title']}"
    return [
        Query(f"{where} ({target['refId']})", target["expr"], bool(target.get("instant")))
        for target in panel.get("targets", [])
        if not target.get("hide")
    ]


def annotations(board: Board) -> list[tuple[str, Query]]:
    """Return the names and queries of a board's annotations."""
    found = board.get("annotations", {}).get("list", [])
    return [
        (each["name"], Query(f"{board['uid']}: annotation {each['name']}", expr, False))
        for each in found
        if each["enable"] and (expr := each.get("expr"))
    ]


def resolve(text: str, variables: Mapping[str, str]) -> str:
    """Put the variables into ``text``, in all ways of writing them. Raises QueryError for one that is not known."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in variables:
            raise QueryError(f"a variable that the board does not have: ${name}")
        return variables[name]

    return re.sub(r"\$(\w+)|\$\{(\w+)(?::\w+)?\}", value, text)
