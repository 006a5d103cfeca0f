"""The dashboard as it is committed: fresh, whole, and written in nothing but what exists."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.soak import ROWS, to_json
from dashboards.verdict_rows import NO_PROXY_FAILURE
from soak.model import Outcome
from tests.dashboards.promql import EXPORTED, metrics_of, unknown_metrics

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "dashboards" / "soak.json"
BOARD = json.loads(COMMITTED.read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
NOTES = BOARD["annotations"]["list"]
VARIABLES = BOARD["templating"]["list"]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
VARIABLE_QUERY = re.compile(r"^(label_values|query_result)\((.+)\)$")


def plain(expr: str) -> str:
    """Return the expression with Grafana's variables filled in."""
    return (
        expr.replace("$__rate_interval", "20s")
        .replace("$__range", "1h")
        .replace("$instance", "127.0.0.1:9465")
        .replace("$first_hour_end", "1800003600")
    )


def test_committed_dashboard_is_fresh():
    """What 'python -m dashboards' writes is what is committed."""
    assert to_json() == COMMITTED.read_text(), "run 'make dashboard'"


def test_command_writes_the_committed_file():
    """'python -m dashboards' writes dashboards/soak.json, the same each time."""
    before = COMMITTED.read_text()
    subprocess.run([sys.executable, "-m", "dashboards"], cwd=ROOT, check=True, timeout=60)

    assert before == COMMITTED.read_text()


def test_every_field_is_one_that_the_sdk_knows():
    """Read by the SDK and written again nothing is lost: a misspelt field would be."""
    register_default_plugins()

    assert BOARD == json.loads(json.dumps(Dashboard.from_json(BOARD), cls=JSONEncoder))


def test_it_is_a_classic_dashboard_that_any_grafana_can_provision():
    """Schema 42, no inputs that only an import by hand fills, a datasource variable, ids once each."""
    assert (42, "soak", "soak") == (BOARD["schemaVersion"], BOARD["uid"], BOARD["title"])
    assert "__inputs" not in COMMITTED.read_text()
    assert ("datasource", "prometheus") == (VARIABLES[0]["type"], VARIABLES[0]["query"])
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_rows_are_those_that_a_soak_needs():
    """All the headings, in the order in which one asks."""
    rows = [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"]

    assert [row.title for row in ROWS] == rows
    words = ("Verdict", "Traffic", "Errors", "Latency", "Faults", "Drift", "proxy", "own health")
    assert all(word in title for word, title in zip(words, rows, strict=True))
    assert {"stat", "timeseries", "heatmap", "state-timeline"} == {panel["type"] for panel in PANELS}


@pytest.mark.parametrize("panel", PANELS, ids=[f"{p['id']}-{p['title']}" for p in PANELS])
def test_panel_is_whole(panel):
    """Title, description, unit, datasource on panel and query, a legend, a window that follows the zoom."""
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert SOURCE == panel["datasource"]
    assert panel["targets"]
    letters = [target["refId"] for target in panel["targets"]]
    assert sorted(set(letters)) == letters
    for target in panel["targets"]:
        assert SOURCE == target["datasource"]
        assert target["legendFormat"]
        assert '{instance="$instance"' in target["expr"]
        windows = re.findall(r"\[([^\]]+)\]", target["expr"])
        assert set(windows) <= {"$__rate_interval", "1h"}
        assert ("rate(" in target["expr"] or "increase(" in target["expr"]) <= bool(windows)


def test_panels_fill_the_grid_without_overlap():
    """No two panels share a cell, and none reaches past the 24 columns."""
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24, panel["title"]
        assert not taken & cells, panel["title"]
        taken |= cells


def test_heatmap_gets_prometheus_own_buckets():
    """Format heatmap, legend by bucket, and Grafana makes no buckets itself."""
    (heatmap,) = [panel for panel in PANELS if panel["type"] == "heatmap"]
    (target,) = heatmap["targets"]

    assert ("heatmap", "{{le}}") == (target["format"], target["legendFormat"])
    assert heatmap["options"]["calculate"] is False
    assert "sum by (le) (increase(soak_request_latency_seconds_bucket" in target["expr"]


@pytest.mark.parametrize("note", NOTES, ids=[note["name"] for note in NOTES])
def test_annotation_is_whole(note):
    """Datasource, texts, and a step: the default of 60 s would weld faults together."""
    assert SOURCE == note["datasource"]
    assert note["enable"]
    assert note["titleFormat"]
    assert note["textFormat"]
    assert re.fullmatch(r"\d+s", note["step"])


def test_faults_are_marked_long_ones_and_short_ones():
    """Regions from the active gauge at a step of seconds, and each start by its own timestamp, in milliseconds."""
    by_name = {note["name"]: note for note in NOTES}

    assert "soak_fault_active" in by_name["Faults"]["expr"]
    assert "5s" == by_name["Faults"]["step"]
    assert "soak_fault_last_start_timestamp_seconds" in by_name["Injections"]["expr"]
    assert by_name["Injections"]["expr"].endswith("* 1000")
    assert by_name["Injections"]["useValueForTime"] is True


def test_variables_are_asked_of_the_chosen_datasource():
    """Each query variable has a datasource, a description and a query of a kind that Grafana's Prometheus knows."""
    for variable in VARIABLES[1:]:
        assert SOURCE == variable["datasource"]
        assert variable["description"]
        assert VARIABLE_QUERY.match(variable["query"]["query"])
        assert variable["definition"] == variable["query"]["query"]
    used = set(re.findall(r"\$([a-z]\w*)", " ".join(EXPRESSIONS)))
    assert used == {variable["name"] for variable in VARIABLES[1:]}


def test_only_exported_metrics_are_used():
    """A panel about a metric that nobody exports is empty for ever."""
    variables = [variable["query"]["query"] for variable in VARIABLES[1:]]
    everything = [*EXPRESSIONS, *(note["expr"] for note in NOTES), *variables]

    assert {} == {expr: bad for expr in everything if (bad := unknown_metrics(expr))}
    assert {"soak_nonsense"} == unknown_metrics('sum(rate(soak_nonsense{a="b"}[1m])) / soak_run_dirty')


def test_nearly_every_metric_is_shown():
    """What is exported and not on the dashboard is on this list, with a reason in mind: it would say nothing new."""
    shown = set().union(*(metrics_of(expr) for expr in [*EXPRESSIONS, *(note["expr"] for note in NOTES)]))
    families = {name.removesuffix(part) for name in shown for part in ("", "_bucket", "_sum", "_count")}

    assert {
        "soak_objective_success_ratio",  # in the budget
        "soak_origin_cacheable_answers_total",  # for plans with a cache only
    } == {re.sub(r"_(bucket|sum|count)$", "", name) for name in EXPORTED} - families


def test_dashboard_leaves_out_what_is_no_failure_of_the_proxy():
    """The same outcomes as in the verdict."""
    assert {o.value for o in Outcome if not o.is_proxy_failure} == set(NO_PROXY_FAILURE.split("|"))


def test_every_expression_is_valid_promql(require, tmp_path):
    """promtool parses each, as a rule: of panels, annotations and variables."""
    queries = [VARIABLE_QUERY.match(v["query"]["query"]) for v in VARIABLES[1:]]
    asked = [match[2] for match in queries if match and match[1] == "query_result"]
    everything = [*EXPRESSIONS, *(note["expr"] for note in NOTES), *asked]
    rules = [{"record": f"query:{n}", "expr": plain(expr)} for n, expr in enumerate(everything)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        [require("promtool"), "check", "rules", str(file)],
        capture_output=True,
        check=False,
        timeout=60,
        text=True,
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert f"{len(rules)} rules found" in done.stdout


def test_dashboards_know_nothing_of_soak():
    """The package imports none of the tool's packages: names of metrics are all it shares."""
    for path in (ROOT / "dashboards").glob("*.py"):
        assert not re.search(r"^\s*(from|import) (soak|chaos|certs)\b", path.read_text(), re.MULTILINE), path
