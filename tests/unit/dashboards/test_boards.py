"""Boards as a person meets them: stable addresses, units, words, and gaps where nothing is known."""

from __future__ import annotations

import json
import re
from typing import Any, get_args
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from agent.policy.types import Policy
from agent.waterfall.state import PartName
from alerts.build import BUILT as ALERTS
from dashboards.build import boards
from tests.unit.dashboards.support import BOARDS, addresses, panels, variables

UIDS = (
    "kvtide-fleet",
    "kvtide-node",
    "kvtide-engine",
    "kvtide-tenants",
    "kvtide-leaks",
    "kvtide-allocator",
    "kvtide-actions",
    "kvtide-efficiency",
)
ALL = [(f"{uid}: {panel['title']}", panel) for uid, board in BOARDS.items() for panel in panels(board)]
COUNTED = "short"


def of_type(name: str) -> list[tuple[str, dict[str, Any]]]:
    found = [(where, panel) for where, panel in ALL if panel["type"] == name]
    assert found
    return found


def units(panel: dict[str, Any]) -> list[str]:
    """Return the panel's unit, or those of a table's columns of numbers."""
    default = panel["fieldConfig"]["defaults"].get("unit")
    if default is not None:
        return [default]
    return [
        value["value"]
        for override in panel["fieldConfig"]["overrides"]
        for value in override["properties"]
        if value["id"] == "unit"
    ]


def test_the_boards_have_the_addresses_that_alerts_lead_to() -> None:
    assert tuple(BOARDS) == UIDS
    assert all(board["uid"] == uid for uid, board in BOARDS.items())


def test_every_link_of_an_alert_opens_a_board_with_its_variables() -> None:
    links = {
        rule["annotations"]["dashboard"]
        for file in ALERTS.glob("kvtide-*.yml")
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule and "dashboard" in rule["annotations"]
    }
    assert len(links) >= 5
    for link in links:
        # What Prometheus puts in stands between braces; {{ with }} keeps a variable out where it has no value.
        plain = re.sub(r"\{\{.*?\}\}", "", link)
        parts = urlsplit(plain)
        uid = parts.path.removeprefix("/d/")
        assert uid in BOARDS, link
        named = {name.removeprefix("var-") for name in parse_qs(parts.query, keep_blank_values=True)}
        assert named <= {*variables(BOARDS[uid])}, link
        assert "instance" in named, link


def test_every_link_between_boards_opens_a_board_with_its_variables() -> None:
    found = [url for board in BOARDS.values() for url in addresses(board)]
    assert found
    for url in found:
        parts = urlsplit(url)
        uid = parts.path.removeprefix("/d/")
        assert uid in BOARDS, url
        assert "${__url_time_range}" in parts.query, url
        assert "${datasource:queryparam}" in parts.query, url
        for name in re.findall(r"var-(\w+)=", parts.query) + re.findall(r"\$\{(\w+):queryparam\}", parts.query):
            assert name in variables(BOARDS[uid]), url


def test_a_row_s_link_takes_its_values_from_columns_that_the_table_has() -> None:
    for _, panel in ALL:
        for url in addresses(panel):
            columns = {*panel["transformations"][-1]["options"]["renameByName"].values()}
            assert {*re.findall(r"__data\.fields\.(\w+)", url)} <= columns, panel["title"]


@pytest.mark.parametrize("uid", UIDS)
def test_the_other_boards_are_a_click_away_with_what_is_chosen(uid: str) -> None:
    (link,) = BOARDS[uid]["links"]
    assert (link["type"], link["tags"], link["includeVars"], link["keepTime"]) == ("dashboards", ["kvtide"], True, True)
    assert "placement" not in link
    assert BOARDS[uid]["tags"] == ["kvtide"]


@pytest.mark.parametrize("uid", UIDS)
def test_variables_choose_all_unless_told(uid: str) -> None:
    has = variables(BOARDS[uid])
    assert list(has)[:4] == ["datasource", "job", "instance", "engine"]
    for name, variable in has.items():
        assert variable["label"]
        if name == "datasource":
            assert variable["query"] == "prometheus"
            continue
        assert variable["includeAll"]
        assert variable["multi"]
        assert variable["current"]["value"] == ["$__all"]
        assert variable["allValue"] == ".*"  # also what has no such label
        assert variable["query"]["query"].startswith("label_values(")


@pytest.mark.parametrize("uid", UIDS)
def test_pages_and_actions_are_marked_on_every_board(uid: str) -> None:
    marks = {mark["name"]: mark for mark in BOARDS[uid]["annotations"]["list"]}
    assert {"Pages", "Warnings", "Actions"} <= {*marks}
    assert [marks[name]["enable"] for name in ("Pages", "Warnings", "Actions")] == [True, False, True]
    assert all("placement" not in mark for mark in marks.values())


@pytest.mark.parametrize("uid", UIDS)
def test_a_board_fills_its_grid_without_overlap(uid: str) -> None:
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in BOARDS[uid]["panels"]]
    assert sorted(ids) == list(range(1, len(ids) + 1))
    for panel in BOARDS[uid]["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("uid", UIDS)
def test_the_first_row_is_a_few_numbers(uid: str) -> None:
    first, *rest = BOARDS[uid]["panels"]
    assert first["type"] == "row"
    top = [panel for panel in rest if panel["gridPos"]["y"] == 1]
    assert 3 <= len(top) <= 6
    assert {panel["type"] for panel in top} == {"stat"}


def test_a_panel_says_what_it_is_for_and_why_there_is_nothing() -> None:
    for where, panel in ALL:
        words = panel["description"]
        assert len(panel["title"]) <= 60, where
        assert words[0].isupper(), where
        assert words.endswith("."), where
        assert 20 <= len(words) <= 200, where
        assert len(panel["fieldConfig"]["defaults"]["noValue"]) > 5, where


def test_a_panel_of_the_second_page_says_that_it_may_not_be_scraped() -> None:
    said = {where for where, panel in ALL if "/metrics/detail" in panel["fieldConfig"]["defaults"]["noValue"]}
    assert "kvtide-allocator: Free memory by size of its blocks" in said
    assert "kvtide-tenants: How long sessions live" in said
    assert "kvtide-engine: KV tide of $engine" not in said
    assert "kvtide-engine: Growth over hours" not in said  # half of it is there without


def test_what_is_not_known_has_the_colour_of_no_value() -> None:
    for where, panel in of_type("stat"):
        defaults = panel["fieldConfig"]["defaults"]
        (mapping,) = defaults["mappings"]
        assert mapping["options"]["match"] == "null+nan", where
        assert mapping["options"]["result"]["text"] == defaults["noValue"], where
        assert mapping["options"]["result"]["color"] == "text", where


def test_a_panel_has_a_unit_and_says_what_is_counted() -> None:
    for where, panel in ALL:
        found = units(panel)
        assert found, where
        assert all(found), where
        if panel["type"] == "timeseries" and found == [COUNTED]:
            assert panel["fieldConfig"]["defaults"]["custom"]["axisLabel"], where
        if panel["type"] != "timeseries":
            assert COUNTED not in found, f"{where}: a number without an axis has to say what it counts"


def test_a_gap_is_a_gap() -> None:
    for where, panel in of_type("timeseries"):
        custom = panel["fieldConfig"]["defaults"]["custom"]
        assert custom["spanNulls"] is False, where
        assert custom["showPoints"] == "auto", where  # one sample between two gaps is seen


def test_a_line_of_zeros_has_an_axis_that_can_be_read() -> None:
    """To Grafana the range of nothing but zeros goes to 100: of a share that is 10,000 %."""
    for where, panel in of_type("timeseries"):
        defaults = panel["fieldConfig"]["defaults"]
        if defaults["unit"] in ("percentunit", "short"):
            assert "max" in defaults or defaults["custom"]["axisSoftMax"] <= 1, where


def test_series_have_names() -> None:
    for where, panel in ALL:
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]), where
        for target in panel["targets"]:
            assert panel["type"] == "table" or target["legendFormat"], where


def test_a_table_has_named_columns_and_nothing_else() -> None:
    for where, panel in of_type("table"):
        options = panel["transformations"][-1]["options"]
        assert options["excludeByName"] == {"Time": True}, where
        assert {*options["indexByName"]} == {*options["renameByName"]}, where
        names = [*options["renameByName"].values()]
        assert all(name[0].isupper() for name in names), where
        rows = {field for field in options["renameByName"] if not field.startswith("Value")}
        for target in panel["targets"]:
            assert (target["format"], target["instant"]) == ("table", True), where
            by = re.match(r"\w+ by \(([^)]*)\)", target["expr"])
            assert by, f"{where}: {target['expr']}: with labels that are no columns a row falls into several"
            assert {*map(str.strip, by[1].split(","))} == rows, where
        for override in panel["fieldConfig"]["overrides"]:
            assert override["matcher"]["options"] in (*names, "/.*/"), where


def test_two_builds_are_the_same_to_the_byte() -> None:
    assert boards() == boards()


def test_thresholds_are_the_policy_s() -> None:
    default = json.dumps(BOARDS["kvtide-engine"])
    policy = Policy.model_validate({"score": {"warn_below": 61.5, "severe_below": 41.5, "emergency_below": 21.5}})
    changed = boards(policy)["kvtide-engine.json"]
    for number in ("61.5", "41.5", "21.5"):
        assert number not in default
        assert number in changed
    assert boards(Policy())["kvtide-engine.json"] == boards()["kvtide-engine.json"]


def test_stacked_parts_are_of_one_whole_and_the_rest_is_apart() -> None:
    (waterfall,) = [panel for panel in panels(BOARDS["kvtide-node"]) if panel["title"] == "Memory of GPU $gpu"]
    assert waterfall["repeat"] == "gpu"
    assert waterfall["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    apart = [
        override["matcher"]["options"]
        for override in waterfall["fieldConfig"]["overrides"]
        for value in override["properties"]
        if value["id"] == "custom.stacking" and value["value"]["mode"] == "none"
    ]
    assert apart == ["the whole device"]


def test_the_waterfall_shows_every_part_that_there_is() -> None:
    (waterfall,) = [panel for panel in panels(BOARDS["kvtide-node"]) if panel["title"] == "Memory of GPU $gpu"]
    asked = {part for target in waterfall["targets"] for part in re.findall(r'part="(\w+)"', target["expr"])}
    assert asked == {*get_args(PartName), "unattributed"}
