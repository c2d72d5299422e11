"""Panels as boards write them: a title, what it tells a person at night, queries, a unit, and what no data means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    prometheus,
    statetimeline,
    statushistory,
    timeseries,
)
from grafana_foundation_sdk.builders import common as make
from grafana_foundation_sdk.builders import dashboard as board
from grafana_foundation_sdk.builders import (
    heatmap as heat,
)
from grafana_foundation_sdk.builders import (
    stat as single,
)
from grafana_foundation_sdk.models import common as kind
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.query import Query, of_detail
from dashboards.units import Unit
from exporters.catalogue.base import DETAIL_INTERVAL

# One of the SDK's builders of panels: they share their methods, and no class.
Panel = Any
Steps = tuple[tuple[float, str], ...]
SOURCE = kind.DataSourceRef(type_val="prometheus", uid="${datasource}")

GOOD, NOTED, WARNED, BAD = "green", "yellow", "orange", "red"
MANY = 8  # queries: a legend of more is a table


def above(warn: float, page: float | None = None) -> Steps:
    """Return thresholds of what is worse the higher it is."""
    return ((warn, WARNED),) if page is None else ((warn, WARNED), (page, BAD))


def below(*limits: float) -> Steps:
    """Return thresholds of what is worse the lower it is: ``limits`` from the mildest to the worst, three at most."""
    colours = (NOTED, WARNED, BAD)[-len(limits) :]
    first = list(zip(reversed(limits), [*reversed(colours[:-1]), GOOD], strict=True))
    return ((float("-inf"), colours[-1]), *first)


def stat(title: str, why: str, *queries: Query, unit: Unit, none: str, steps: Steps = (), name: bool = False) -> Panel:
    """Return one number, or one a series. ``name``: whose it is stands beside it."""
    panel = _begin(single.Panel(), title, why, queries, none, instant=True)
    # Else what is not known has the colour of the lowest value.
    said = model.ValueMappingResult(text=empty(none, *(each.expr for each in queries)), color="text")
    unknown = model.DashboardSpecialValueMapOptions(match=model.SpecialValueMatch.NULL_AND_NAN, result=said)
    panel = panel.mappings([model.SpecialValueMap(options=unknown)])
    panel = panel if unit.decimals is None else panel.decimals(unit.decimals)
    text = kind.BigValueTextMode.VALUE_AND_NAME if name else kind.BigValueTextMode.VALUE
    if name:  # Grafana fits both into one line, and a long name makes both too small to read
        panel = panel.text(make.VizTextDisplayOptions().title_size(14).value_size(28))
    return (
        _limits(panel, steps)
        .unit(unit.beside_a_number)
        .text_mode(text)
        .wide_layout(False)
        .graph_mode(kind.BigValueGraphMode.NONE)
        .color_mode(kind.BigValueColorMode.VALUE)
        .reduce_options(make.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    )


def lines(
    title: str,
    why: str,
    *queries: Query,
    unit: Unit,
    none: str,
    steps: Steps = (),
    stacked: bool = False,
    top: float | None = None,
    least: float | None = None,
    colours: Mapping[str, str] | None = None,
    apart: Iterable[str] = (),
    stepped: bool = False,
    many: bool = False,
) -> Panel:
    """Return series over time; where there is no value there is a gap.

    ``stacked``: they are parts of one whole. ``apart``: names of series that are lines before the stack, not in it.
    ``many``: each query has many series. ``colours``: by name. ``top``: where the axis ends; ``least``: where at the
    least, if the unit does not say.
    """
    panel = _begin(timeseries.Panel(), title, why, queries, none)
    panel = (
        _limits(panel, _as_lines(steps), line=True)
        .unit(unit.grafana)
        .axis_label(unit.what)
        .line_width(1 if stacked else 2)
        .fill_opacity(60 if stacked else 0)
        .span_nulls(False)
        .show_points(kind.VisibilityMode.AUTO)
        .tooltip(make.VizTooltipOptions().mode(kind.TooltipDisplayMode.MULTI).sort(kind.SortOrder.DESCENDING))
        .legend(_legend(many or len(queries) > MANY))
    )
    least = unit.least if least is None else least
    if top is not None:
        panel = panel.min(0).max(top)
    else:
        panel = panel.axis_soft_min(0)
        panel = panel if least is None else panel.axis_soft_max(least)
    if stacked:
        panel = panel.stacking(make.StackingConfig().mode(kind.StackingMode.NORMAL).group("A"))
    if stepped:
        panel = panel.line_interpolation(kind.LineInterpolation.STEP_AFTER)
    for name, colour in (colours or {}).items():
        panel = panel.override_by_name(name, [_value("color", {"mode": "fixed", "fixedColor": colour})])
    for name in apart:
        panel = panel.override_by_name(
            name,
            [
                _value("custom.stacking", {"mode": "none", "group": "A"}),
                _value("custom.fillOpacity", 0),
                _value("custom.lineWidth", 2),
            ],
        )
    return panel


def with_interval(panel: Panel) -> Panel:
    """Draw the ends of intervals, series whose names end in low or high, thin and dashed."""
    return panel.override_by_regexp(
        "/ (low|high)$/",
        [
            _value("custom.lineStyle", {"fill": "dash", "dash": [4, 6]}),
            _value("custom.lineWidth", 1),
            _value("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False}),
        ],
    )


def bars(
    title: str, why: str, *queries: Query, unit: Unit, none: str, steps: Steps = (), top: float | None = None
) -> Panel:
    """Return one bar a series, as it is now."""
    panel = _begin(bargauge.Panel(), title, why, queries, none, instant=True)
    panel = (
        _limits(panel, steps, plain="blue")
        .unit(unit.beside_a_number)
        .min(0)
        .orientation(kind.VizOrientation.HORIZONTAL)
        .text(make.VizTextDisplayOptions().title_size(14).value_size(18))
        .display_mode(kind.BarGaugeDisplayMode.BASIC)
        .show_unfilled(True)
        .reduce_options(make.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    )
    return panel if top is None else panel.max(top)


def heatmap(title: str, why: str, buckets: str, unit: Unit, none: str) -> Panel:
    """Return a histogram over time: how many came into each bucket. ``buckets``: increase by ``le``."""
    panel = _begin(heat.Panel(), title, why, (), empty(none, buckets))
    target = _query("A", buckets).legend_format("{{le}}").range()
    return (
        panel.with_target(target.format(PromQueryFormat.HEATMAP))
        .unit(unit.beside_a_number)
        .calculate(False)
        .color(heat.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64).exponent(0.5))
        .y_axis(heat.YAxisConfig().unit(unit.grafana).axis_label(unit.what))
        .cell_gap(1)
        .show_legend()
    )


def cells(title: str, why: str, *queries: Query, unit: Unit, none: str) -> Panel:
    """Return one row a series and one cell a moment, the darker the more."""
    panel = _begin(statushistory.Panel(), title, why, queries, none)
    return (
        panel.unit(unit.beside_a_number)
        .min(0)
        .max_data_points(120)
        .color_scheme(board.FieldColor().mode(model.FieldColorModeId.CONTINUOUS_BL_YL_RD))
        .show_value(kind.VisibilityMode.NEVER)
        .row_height(0.9)
        .legend(_legend(False))
    )


def spans(title: str, why: str, *queries: Query, none: str, words: Mapping[str, tuple[str, str]]) -> Panel:
    """Return one row a series, filled while it has a value. ``words``: value -> what it means, and its colour."""
    panel = _begin(statetimeline.Panel(), title, why, queries, none)
    means = {value: model.ValueMappingResult(text=text, color=colour) for value, (text, colour) in words.items()}
    return (
        panel.mappings([model.ValueMap(options=means)])
        .unit("none")
        .show_value(kind.VisibilityMode.AUTO)
        .merge_values(True)
        .row_height(0.8)
        .legend(_legend(False))
    )


def _begin(
    panel: Panel, title: str, why: str, queries: tuple[Query, ...], none: str, *, instant: bool = False
) -> Panel:
    said = empty(none, *(each.expr for each in queries))
    panel = panel.title(title).description(why).datasource(SOURCE).no_value(said)
    for number, query in enumerate(queries):
        target = _query(ref(number), query.expr).legend_format(query.legend)
        panel = panel.with_target(target.instant() if instant else target.range())
    return panel


def _query(name: str, expr: str) -> prometheus.Dataquery:
    """Return a query. Grafana makes the window of a rate of the data source's interval unless the query has its own:
    the second page is scraped more rarely, and in such a window there would be one sample, which has no rate.
    """
    query = prometheus.Dataquery().ref_id(name).expr(expr)
    return query.interval(DETAIL_INTERVAL) if "$__rate_interval" in expr and of_detail(expr) else query


def empty(none: str, *exprs: str) -> str:
    """Return what a panel of ``exprs`` says when it has no data."""
    return f"{none}, or /metrics/detail is not scraped" if all(map(of_detail, exprs)) and exprs else none


def ref(number: int) -> str:
    """Return the name of a panel's query: A, B, ... Z, AA, ..."""
    letter = chr(ord("A") + number % 26)
    return letter if number < 26 else chr(ord("A") + number // 26 - 1) + letter


def thresholds(steps: Steps, plain: str = "text") -> list[model.Threshold]:
    """Return the steps as Grafana has them: the first has no value and is good, unless the steps begin lower.

    ``plain``: the colour where there are no steps.
    """
    rest = [model.Threshold(value=value, color=colour) for value, colour in steps]
    if steps and steps[0][0] == float("-inf"):
        return [model.Threshold(value=None, color=steps[0][1]), *rest[1:]]
    return [model.Threshold(value=None, color=GOOD if steps else plain), *rest]


def _as_lines(steps: Steps) -> Steps:
    """Return steps so that a line has the colour of what is beyond it, also where that is below."""
    if not steps or steps[0][0] != float("-inf"):
        return steps
    return tuple((value, colour) for (value, _), (_, colour) in pairwise(reversed(steps)))[::-1]


def _limits(panel: Panel, steps: Steps, *, line: bool = False, plain: str = "text") -> Panel:
    panel = panel.thresholds(
        board.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(thresholds(steps, plain))
    )
    if line:
        mode = kind.GraphThresholdsStyleMode.DASHED if steps else kind.GraphThresholdsStyleMode.OFF
        return panel.thresholds_style(make.GraphThresholdsStyleConfig().mode(mode))
    return panel.color_scheme(board.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))


def _legend(as_table: bool) -> Any:
    mode = kind.LegendDisplayMode.TABLE if as_table else kind.LegendDisplayMode.LIST
    place = kind.LegendPlacement.RIGHT if as_table else kind.LegendPlacement.BOTTOM
    calcs = ["lastNotNull"] if as_table else []
    return make.VizLegendOptions().display_mode(mode).placement(place).show_legend(True).calcs(calcs)


def _value(name: str, value: object) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(id_val=name, value=value)
