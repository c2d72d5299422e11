"""Tables: named columns, and nothing in them that nobody asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common as make
from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.builders import table as rows
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.panels import SOURCE, Panel, Steps, empty, ref, thresholds
from dashboards.units import Unit


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers: ``expr`` has the labels of the table's rows and no others."""

    name: str
    expr: str
    unit: Unit
    steps: Steps = ()


def table(
    title: str,
    why: str,
    by: Mapping[str, str],
    *columns: Column,
    none: str,
    links: Mapping[str, tuple[str, str]] | None = None,
    worst_first: str = "",
    ascending: bool = False,
) -> Panel:
    """Return a table with a row for each set of labels; the first of ``columns`` has a number for each.

    ``by``: label -> its column's name, in their order.
    ``links``: column -> what a click on it says and where it leads. ``worst_first``: the column to sort by.
    """
    said = empty(none, *(column.expr for column in columns))
    panel = rows.Panel().title(title).description(why).datasource(SOURCE).no_value(said)
    named = {"Value" if len(columns) == 1 else f"Value #{ref(number)}": each for number, each in enumerate(columns)}
    for number, column in enumerate(columns):
        target = prometheus.Dataquery().ref_id(ref(number)).expr(column.expr).instant()
        panel = panel.with_target(target.format(PromQueryFormat.TABLE))
    # Where one query alone has an answer, Grafana calls its numbers "Value": the first column's, which every row has.
    names = {**by, "Value": columns[0].name, **{field: column.name for field, column in named.items()}}
    if len(columns) > 1:
        panel = panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel = panel.with_transformation(
        model.DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {"Time": True},
                "indexByName": {field: number for number, field in enumerate(names)},
                "renameByName": names,
            },
        )
    )
    # What says why the table is empty would stand in each empty cell, too.
    panel = panel.override_by_regexp("/.*/", [model.DynamicConfigValue(id_val="noValue", value="-")])
    for column in columns:
        panel = panel.override_by_name(column.name, _look(column))
    for name, (says, url) in (links or {}).items():
        link = {"title": says, "url": url, "targetBlank": False}
        panel = panel.override_by_name(name, [model.DynamicConfigValue(id_val="links", value=[link])])
    if worst_first:
        order = make.TableSortByFieldState().display_name(worst_first).desc(not ascending)
        panel = panel.sort_by([order])
    return panel.show_header(True)


def _look(column: Column) -> list[model.DynamicConfigValue]:
    found = [model.DynamicConfigValue(id_val="unit", value=column.unit.beside_a_number)]
    if column.steps:
        steps = [{"value": each.value, "color": each.color} for each in thresholds(column.steps)]
        found.append(model.DynamicConfigValue(id_val="thresholds", value={"mode": "absolute", "steps": steps}))
        found.append(model.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"}))
        found.append(model.DynamicConfigValue(id_val="color", value={"mode": "thresholds"}))
    return found
