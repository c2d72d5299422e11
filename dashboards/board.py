"""A board: its fixed uid, its variables, rows of panels, what is marked in all of them, and links to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as make
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as kind
from grafana_foundation_sdk.models import dashboard as model

from agent.policy.types import Policy
from dashboards.panels import SOURCE, Panel
from dashboards.query import Chosen, standing, who
from exporters import catalogue as c

TAG = "kvtide"
_WIDE = 24  # Grafana's columns
_ONE_MINUTE = "60s"


@dataclass(frozen=True, slots=True)
class Row:
    """Panels side by side under a title, ``across`` in a line and ``high`` in Grafana's units."""

    title: str
    panels: tuple[Panel, ...]
    across: int = 2
    high: int = 9


@dataclass(frozen=True, slots=True)
class Board:
    """One board. ``variables``: those it has beside data source, job, node and engine. ``rows``: made for a policy."""

    uid: str
    title: str
    about: str
    rows: Callable[[Policy], tuple[Row, ...]]
    variables: tuple[str, ...] = ()


def link(uid: str, *variables: str, **fields: str) -> str:
    """Return an address of another board that keeps time and data source; ``fields``: variable -> column of the row."""
    kept = "".join(f"&${{{name}:queryparam}}" for name in ("datasource", "job", *variables))
    chosen = "".join(f"&var-{name}=${{__data.fields.{column}}}" for name, column in fields.items())
    return f"/d/{uid}?${{__url_time_range}}{kept}{chosen}"


def build(board: Board, policy: Policy) -> model.Dashboard:
    """Return the board as Grafana has it; nothing in it depends on when or where it is built."""
    made = (
        make.Dashboard(board.title)
        .uid(board.uid)
        .description(board.about)
        .tags([TAG])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(
            make.DashboardLink("kvtide")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .tooltip("The other boards, with what is chosen here")
            .include_vars(True)
            .keep_time(True)
        )
    )
    for variable in _variables(board.variables):
        made = made.with_variable(variable)
    for annotation in _annotations():
        made = made.annotation(annotation)
    for row in board.rows(policy):
        made = made.with_row(make.Row(row.title))
        for panel in row.panels:
            made = made.with_panel(panel.span(_WIDE // row.across).height(row.high))
    found = made.build()
    for number, panel in enumerate(found.panels or (), 1):
        panel.id_val = number
    # The SDK puts all of them away in a menu.
    for each in (*(found.links or ()), *(found.annotations.list_val or ())):
        each.placement = None
    return found


def _variables(more: Iterable[str]) -> list[Builder[model.VariableModel]]:
    node = f'{c.BUILD_INFO.name}{{job=~"$job"}}'
    here = '{job=~"$job",instance=~"$instance"}'
    of_engines = f'{{__name__=~"{c.ENGINE_UP.name}|{c.SCRAPED_UP.name}",job=~"$job",instance=~"$instance"}}'
    found: list[Builder[model.VariableModel]] = [
        make.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        _query("job", "Job", f"label_values({c.BUILD_INFO.name}, job)"),
        _query("instance", "Node", f"label_values({node}, instance)"),
        _query("engine", "Engine", f"label_values({of_engines}, engine)"),
    ]
    if "gpu" in more:
        found.append(_query("gpu", "GPU", f"label_values({c.GPU_INFO.name}{here}, gpu)"))
    if "tenant" in more:
        of_tenants = f'{c.TENANT_HELD.name}{{job=~"$job",instance=~"$instance",engine=~"$engine"}}'
        found.append(_query("tenant", "Tenant", f"label_values({of_tenants}, tenant)"))
    return found


def _query(name: str, label: str, query: str) -> make.QueryVariable:
    every = model.VariableOption(selected=True, text=["All"], value=["$__all"])
    return (
        make.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query({"query": query, "refId": f"variable-{name}"})
        .definition(query)
        .multi(True)
        .include_all(True)
        .all_value(".*")  # also what has no such label; and no list of 10,000 nodes in each query
        .current(every)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
    )


def _annotations() -> list[make.AnnotationQuery]:
    every = Chosen()
    about = "instance, engine, tenant, gpu, process, kind"

    def marked(tier: str) -> str:
        return who(f"max by ({about}) ({standing(every, tier)})", "engine", "tenant", "process", "gpu")

    acted = every(c.ACTIONS)
    new = f"({acted} - {acted} offset 1m > 0 or {acted} unless {acted} offset 1m)"
    whose = "{{who}} on {{instance}}"
    return [
        make.AnnotationQuery()
        .name("Annotations & Alerts")
        .datasource(kind.DataSourceRef(type_val="grafana", uid="-- Grafana --"))
        .type("dashboard")
        .built_in(1)
        .enable(True)
        .hide(True)
        .icon_color("rgba(0, 211, 255, 1)"),
        _mark("Pages", marked("page"), "{{kind}}", whose, "red", shown=True),
        _mark("Warnings", marked("warn"), "{{kind}}", whose, "orange", shown=False),
        _mark(
            "Actions",
            f"max by (instance, lever, result) {new}",
            "kvtide: {{lever}} {{result}}",
            "on {{instance}}",
            "blue",
            shown=True,
        ),
    ]


def _mark(name: str, expr: str, title: str, text: str, colour: str, *, shown: bool) -> make.AnnotationQuery:
    return (
        make.AnnotationQuery()
        .name(name)
        .datasource(SOURCE)
        .enable(shown)
        .hide(False)
        .icon_color(colour)
        .expr(expr)
        .step(_ONE_MINUTE)
        .title_format(title)
        .text_format(text)
    )
