"""The dashboard on real data: a real Prometheus scrapes a real run with faults, then every query of it is asked.

What the data must look like stands beside each query (``dashboards.chart.Query``).
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.chart import Query
from dashboards.soak import FIRST_HOUR_END, ROWS
from soak.lab.topology import free_ports
from tests.conftest import find_tool
from tests.e2e.runs import started, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
BOARD = json.loads((ROOT / "dashboards" / "soak.json").read_text())
PLAN = """
    length: 50s
    rate: 200
    chaos:
      gap: 1s
      series:
        - {fault: reload, every: 1h, first: 11s}
        - {fault: backend-down, every: 1h, first: 16s, hold: 4s, targets: [b2]}
        - {fault: cert-rotate, every: 1h, first: 26s}
"""
QUERIES = [
    pytest.param(query, id=f"{row.title.split(':')[0]}-{chart.title}-{query.legend}")
    for row in ROWS
    for chart in row.charts
    for query in chart.queries
]


@dataclass
class Server:
    """A Prometheus that scrapes one run; ``start`` and ``end`` are the seconds in which the run held its rate."""

    url: str
    instance: str
    start: float = 0.0
    end: float = 0.0
    fill: dict[str, str] = field(default_factory=dict)

    def ask(self, path: str, **parameters: Any) -> Any:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def look(self, expr: str) -> list[dict[str, Any]]:
        """Return the series of an instant query at the end of the run."""
        out: list[dict[str, Any]] = self.ask("query", query=self.filled(expr), time=self.end)["result"]
        return out

    def plot(
        self, expr: str, step: float = 1
    ) -> dict[tuple[tuple[str, str], ...], list[tuple[float, float]]]:
        """Return what a panel over the run would draw: by labels, (time, value)."""
        data = self.ask("query_range", query=self.filled(expr), start=self.start, end=self.end, step=step)
        return {
            tuple(sorted(series["metric"].items())): [(t, float(value)) for t, value in series["values"]]
            for series in data["result"]
        }

    def filled(self, expr: str) -> str:
        """Return the expression with Grafana's variables filled in, as Grafana would with a scrape a second."""
        for name, value in self.fill.items():
            expr = expr.replace(name, value)
        assert "$" not in expr
        return expr


@contextmanager
def prometheus(binary: str, home: Path, target: str) -> Iterator[Server]:
    """Run a Prometheus with the shipped configuration and rules, at a scrape a second, on this target."""
    config = yaml.safe_load((ROOT / "dashboards" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(ROOT / "dashboards" / "rules.yml")]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    file = home / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    url = f"127.0.0.1:{port}"
    command = [binary, f"--config.file={file}", f"--storage.tsdb.path={home / 'data'}"]
    with (home / "prometheus.log").open("w") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={url}"], stdout=log, stderr=log)
    try:
        yield Server(f"http://{url}", target)
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Prometheus that has watched a run with a reload, a backend that was down, and a rotation."""
    binary = find_tool("prometheus")
    if binary is None:
        reason = "prometheus is neither in the venv nor on PATH; 'make test' gets it where it can"
        (pytest.fail if os.environ.get("SOAK_REQUIRE_ALL") == "1" else pytest.skip)(reason)
    home = tmp_path_factory.mktemp("dashboard")
    with started(home / "soak", PLAN, "--json") as live:
        live.until_running()
        target = live.client.status().http_url.removeprefix("http://")
        with prometheus(binary, home, target) as server:

            def scraped() -> Any:
                try:
                    return server.ask("query", query=f'soak_run_elapsed_seconds{{instance="{target}"}}')[
                        "result"
                    ]
                except OSError:
                    return None

            wait_for(scraped, 60, "the first scrape")
            server.start = time.time() + 3

            def done() -> bool:
                faults = live.client.status().faults_done
                return sum(sum(outcomes.values()) for outcomes in faults.values()) == 3

            wait_for(done, 120, "the end of all three faults")
            time.sleep(3)
            server.end = time.time() - 1
            server.fill = {"$__rate_interval": "4s", "$__range": "1m", "$instance": target}
            (answer,) = server.look(FIRST_HOUR_END)
            server.fill["$first_hour_end"] = answer["value"][1]
            yield server


@pytest.mark.parametrize("query", QUERIES)
def test_query_of_a_panel_shows_plausible_data(server: Server, query: Query) -> None:
    """Data, no NaN, each sample within its range, and the largest reaches what the run must have caused."""
    series = server.plot(query.expr)
    values = [value for samples in series.values() for _, value in samples]

    assert values, "no data"
    assert not [value for value in values if math.isnan(value)]
    assert query.low <= min(values), min(values)
    assert max(values) <= query.high, max(values)
    assert max(values) >= query.peak, max(values)


def test_legends_name_labels_that_the_series_have(server: Server) -> None:
    """A legend with a label that a query has summed away is an empty name."""
    for row in ROWS:
        for chart in row.charts:
            for query in chart.queries:
                for labels in server.plot(query.expr, step=5):
                    wanted = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
                    assert wanted <= {name for name, _ in labels}, (chart.title, labels)


def named(legend: str, labels: dict[str, str]) -> str:
    """Return a line's name, as Grafana makes it."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)


def test_lines_are_told_apart_by_their_legend(server: Server) -> None:
    """No two lines of a panel have the same name."""
    for row in ROWS:
        for chart in row.charts:
            names = [
                named(query.legend, dict(labels))
                for query in chart.queries
                for labels in server.plot(query.expr, step=5)
            ]
            assert sorted(set(names)) == sorted(names), chart.title


def test_variables_have_values(server: Server) -> None:
    """The instance is found by its label; the first hour ends an hour after the run's start."""
    variables = {v["name"]: v for v in BOARD["templating"]["list"]}
    match = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables["instance"]["query"]["query"])
    assert match
    found = server.ask(f"label/{match[2]}/values", **{"match[]": match[1]})
    assert [server.instance] == found
    assert f"query_result({FIRST_HOUR_END})" == variables["first_hour_end"]["query"]["query"]
    (start,) = server.look('soak_run_start_timestamp_seconds{instance="$instance"}')
    end = server.fill["$first_hour_end"]
    assert end == str(math.floor(float(start["value"][1]) + 3600))
    # What Grafana matches its regex against: labels, value, time in milliseconds.
    regex = variables["first_hour_end"]["regex"].strip("/")
    shown = re.search(regex, f"{{}} {end} 1800000000000")
    assert shown
    assert end == shown[1]


def test_annotations_mark_every_fault_where_it_was(server: Server) -> None:
    """A region for the backend that was down, a start for each fault, within the run and in milliseconds."""
    notes = {note["name"]: note for note in BOARD["annotations"]["list"]}
    regions = {
        dict(labels)["fault"]: samples
        for labels, samples in server.plot(notes["Faults"]["expr"], step=1).items()
    }
    down = [t for t, _ in regions["backend-down"]]
    assert 2 <= max(down) - min(down) <= 12
    assert down == [min(down) + n for n in range(len(down))], "one region"
    starts = {
        (dict(labels)["fault"], dict(labels)["target"]): samples[-1][1] / 1000
        for labels, samples in server.plot(notes["Injections"]["expr"]).items()
    }
    assert {"reload", "backend-down", "cert-rotate"} == {fault for fault, _ in starts}
    assert starts["backend-down", "b2"] == pytest.approx(min(down), abs=3)
    assert all(server.start - 40 < at < server.end for at in starts.values())
    (run,) = server.look(notes["Starts of runs"]["expr"])
    assert server.end - 60 < float(run["value"][1]) / 1000 < server.start


def test_timeline_shows_each_fault_and_nothing_else(server: Server) -> None:
    """The state timeline holds the three faults that struck, short ones too; all others stay off."""
    (chart,) = [chart for row in ROWS for chart in row.charts if chart.title == "Faults"]
    lines = server.plot(chart.queries[0].expr)
    struck = {dict(labels)["fault"] for labels, samples in lines.items() if any(v for _, v in samples)}

    assert {"reload", "backend-down", "cert-rotate"} == struck
    assert len(lines) > len(struck)


def test_heatmap_holds_every_request_in_growing_buckets(server: Server) -> None:
    """Cumulative buckets, complete up to +Inf: what Grafana's heatmap format takes apart."""
    (chart,) = [chart for row in ROWS for chart in row.charts if chart.kind == "heatmap"]
    columns: dict[float, dict[float, float]] = {}
    for labels, samples in server.plot(chart.queries[0].expr, step=4).items():
        for t, n in samples:
            columns.setdefault(t, {})[float(dict(labels)["le"])] = n
    assert len(columns) >= 4
    for column in columns.values():
        counts = [column[le] for le in sorted(column)]
        assert len(counts) > 45
        assert all(a <= b + 1e-6 for a, b in itertools.pairwise(counts))
        assert counts[-1] == pytest.approx(800, rel=0.3)


def test_rules_are_evaluated_and_no_fault_pages(server: Server) -> None:
    """Prometheus loads every rule, evaluates it without an error, and nothing pages though a backend was down."""
    rules = [rule for group in server.ask("rules")["groups"] for rule in group["rules"]]

    assert len(rules) == (ROOT / "dashboards" / "rules.yml").read_text().count("expr:")
    assert [] == [rule["name"] for rule in rules if rule["health"] != "ok" or rule.get("lastError")]
    burn = server.look('job_instance:soak_steady_burn:ratio_rate2m30s{instance="$instance"}')
    assert 1 == len(burn)
    assert 0 <= float(burn[0]["value"][1]) < 1000
    assert [] == server.look('ALERTS{severity="page",alertstate="firing"}')
