"""Builds the dashboard with Grafana's foundation SDK: classic JSON, any Prometheus datasource, faults marked on every chart.

What is shown is in ``verdict_rows`` and ``system_rows``; here is how. ``python -m dashboards`` writes ``soak.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode, HeatmapColorScale
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.chart import Chart, Kind, Row
from dashboards.system_rows import DRIFT, FAULTS, PROXY, SELF
from dashboards.verdict_rows import ERRORS, LATENCY, TRAFFIC, VERDICT

ROWS: tuple[Row, ...] = (VERDICT, TRAFFIC, ERRORS, LATENCY, FAULTS, DRIFT, PROXY, SELF)

INSTANCES = "label_values(soak_run_info, instance)"
FIRST_HOUR_END = (
    'floor(max(last_over_time(soak_run_start_timestamp_seconds{instance="$instance"}[$__range])) + 3600)'
    " or vector(0)"
)
"""End of the run's first hour in seconds since 1970, for ``@``: an offset would move with the time that is looked at.

Zero where there is no run: then the row is empty, where a missing number would make its queries invalid.
"""

SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")

Panel = stat.Panel | timeseries.Panel | heatmap.Panel | statetimeline.Panel


def to_json() -> str:
    """Return the dashboard as the text of ``soak.json``."""
    return json.dumps(build_dashboard(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def build_dashboard() -> dashboard.Dashboard:
    """Return the dashboard."""
    out = (
        build.Dashboard("soak")
        .uid("soak")
        .description(
            "A soak run of a reverse proxy: does the promise hold, what do faults cost, what drifts."
        )
        .tags(["soak", "chaos", "reverse-proxy"])
        .refresh("10s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .with_variable(build.DatasourceVariable("datasource").label("Datasource").type("prometheus"))
        .with_variable(_instance())
        .with_variable(_first_hour_end())
    )
    for note in _annotations():
        out = out.annotation(note)
    number = 0
    for row in ROWS:
        number += 1
        out = out.with_row(build.Row(row.title).id(number))
        for chart in row.charts:
            number += 1
            out = out.with_panel(_panel(chart).id(number))
    return out.build()


def _instance() -> build.QueryVariable:
    return (
        build.QueryVariable("instance")
        .label("Run at")
        .description("Address at which the run is scraped.")
        .datasource(SOURCE)
        .query({"query": INSTANCES, "refId": "instance"})
        .definition(INSTANCES)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    )


def _first_hour_end() -> build.QueryVariable:
    query = f"query_result({FIRST_HOUR_END})"
    return (
        build.QueryVariable("first_hour_end")
        .label("End of the first hour")
        .description("Seconds since 1970; what the row about drift compares with.")
        .hide(dashboard.VariableHide.HIDE_VARIABLE)
        .datasource(SOURCE)
        .query({"query": query, "refId": "first_hour_end"})
        .definition(query)
        .regex(r"/\} (\S+) /")
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def _annotations() -> list[build.AnnotationQuery]:
    """Return what is marked on every chart: faults as regions, each injection and each start of a run as a line.

    Samples within one step merge into a region, hence the step; a fault shorter than a scrape has its start alone.
    """
    selector = '{instance="$instance"}'
    faults = build.AnnotationQuery().name("Faults").icon_color("orange")
    faults = faults.expr(f"max by (fault, target) (soak_fault_active{selector}) > 0").step("5s")
    starts = build.AnnotationQuery().name("Injections").icon_color("red")
    starts = starts.expr(
        f"(max by (fault, target) (soak_fault_last_start_timestamp_seconds{selector}) > 0) * 1000"
    )
    runs = build.AnnotationQuery().name("Starts of runs").icon_color("blue")
    runs = runs.expr(f"soak_run_start_timestamp_seconds{selector} * 1000")
    return [
        faults.title_format("{{fault}}")
        .text_format("{{fault}} on {{target}}")
        .tag_keys("fault,target")
        .datasource(SOURCE),
        starts.title_format("{{fault}}")
        .text_format("{{fault}} struck {{target}}")
        .tag_keys("fault,target")
        .step("5s")
        .use_value_for_time(True)
        .datasource(SOURCE),
        runs.title_format("Start")
        .text_format("The run starts")
        .tag_keys("instance")
        .step("60s")
        .use_value_for_time(True)
        .datasource(SOURCE),
    ]


def _panel(chart: Chart) -> Panel:
    panel = _MAKERS[chart.kind](chart)
    panel.title(chart.title).description(chart.description).unit(chart.unit).datasource(SOURCE)
    panel.height(chart.height).span(chart.width)
    for letter, query in zip("ABCDEFGH", chart.queries, strict=False):
        target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(letter)
        target.datasource(SOURCE).range()
        if chart.kind == "heatmap":
            target.format(PromQueryFormat.HEATMAP)
        panel.with_target(target)
    if chart.steps:
        steps = [dashboard.Threshold(value=value, color=colour) for value, colour in chart.steps]
        panel.thresholds(build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps))
    if chart.states:
        named = {
            str(value): dashboard.ValueMappingResult(text=text, color=colour, index=value)
            for value, (text, colour) in enumerate(chart.states)
        }
        panel.mappings([dashboard.ValueMap(options=named)])
    return panel


def _stat(chart: Chart) -> Panel:
    mode = common.BigValueTextMode.NAME if chart.names else common.BigValueTextMode.AUTO
    return (
        stat.Panel()
        .text_mode(mode)
        .graph_mode(common.BigValueGraphMode.NONE)
        .color_mode(common.BigValueColorMode.VALUE if chart.steps else common.BigValueColorMode.NONE)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    )


def _lines(_: Chart) -> timeseries.Panel:
    legend = (
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    tooltip = common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    return (
        timeseries.Panel()
        .line_width(1)
        .fill_opacity(8)
        .show_points(common.VisibilityMode.NEVER)
        .axis_soft_min(0)
        .legend(legend)
        .tooltip(tooltip.sort(common.SortOrder.DESCENDING))
    )


def _stacked(chart: Chart) -> Panel:
    return (
        _lines(chart)
        .fill_opacity(40)
        .stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    )


def _heatmap(chart: Chart) -> Panel:
    """The buckets come from Prometheus; Grafana must not make its own."""
    color = (
        heatmap.HeatmapColorOptions()
        .mode(HeatmapColorMode.SCHEME)
        .scheme("Oranges")
        .scale(HeatmapColorScale.EXPONENTIAL)
        .exponent(0.5)
        .steps(64)
        .reverse(False)
    )
    return (
        heatmap.Panel()
        .calculate(False)
        .color(color)
        .y_axis(heatmap.YAxisConfig().unit(chart.unit))
        .cell_gap(0)
        .show_value(common.VisibilityMode.NEVER)
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .show_legend()
    )


def _timeline(_: Chart) -> Panel:
    return (
        statetimeline.Panel()
        .merge_values(True)
        .show_value(common.VisibilityMode.NEVER)
        .row_height(0.8)
        .line_width(0)
        .fill_opacity(80)
    )


_MAKERS: Mapping[Kind, Callable[[Chart], Panel]] = {
    "stat": _stat,
    "lines": _lines,
    "stacked": _stacked,
    "heatmap": _heatmap,
    "timeline": _timeline,
}
