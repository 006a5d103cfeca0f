"""Percentiles on the dashboard against the report's: the same requests, once by exported buckets, once by our own histogram."""

import subprocess
from dataclasses import replace

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from dashboards.verdict_rows import LATENCY
from soak.measure.histogram import Histogram
from soak.measure.ledger import Ledger
from soak.metrics import Metrics
from soak.plan import Plan
from tests.dashboards.test_soak import plain
from tests.soak.windows import report, window

MS = 1_000_000
CHART = next(chart for chart in LATENCY.charts if chart.title == "p99 by class")


def latency(fast, slow):
    """Requests of a second: fast ones around 2 ms, slow ones that a fault held up for 250 ms."""
    out = Histogram()
    for n in range(fast):
        out.add(round((1 + 2 * n / fast) * MS))
    for n in range(slow):
        out.add(round((250 + 1 + 2 * n / slow) * MS))
    return out


def buckets(metrics):
    """Return the exported buckets of the class that has the traffic, by boundary, and the count."""
    families = text_string_to_metric_families(metrics.render()[0].decode())
    (family,) = [f for f in families if f.name == "soak_request_latency_seconds"]
    return {
        (sample.name, sample.labels.get("le")): sample.value
        for sample in family.samples
        if sample.labels["class"] == "post" and not sample.name.endswith("_sum")
    }


@pytest.mark.parametrize(
    ("slow_of_1000", "within"),
    [
        (15, 0.1),
        (20, 0.1),
        (100, 0.1),
        (500, 0.1),
        (1000, 0.1),
        (11, 0.25),  # the percentile is the first slow one: at a cliff a bucket's width is the bound
    ],
)
def test_p99_of_a_fault_of_250_ms_is_the_reports(require, tmp_path, slow_of_1000, within):
    """Within a tenth, by Prometheus' own engine and the panel's own query; coarse buckets made 454 ms of it."""
    ledger = Ledger()
    metrics = Metrics(
        Plan(), ledger, run_id="r", proxy_version="1", started_wall_s=1.8e9, faults={"reload": ["proxy"]}
    )
    scrapes, total = [buckets(metrics)], Histogram()
    for second in range(20):
        one = latency(1000 - slow_of_1000, slow_of_1000)
        total.merge(one)
        ledger.add(report(second, replace(window(second, traffic="post", ok=1000), latency=one)))
        scrapes.append(buckets(metrics))
    expected_s = total.quantile_ns(0.99) / 1e9
    labels = 'instance="127.0.0.1:9465",class="post"'
    series = [
        {
            "series": f"{name}{{{labels}" + (f',le="{le}"}}' if le else "}"),
            "values": " ".join(f"{scrape[name, le]:g}" for scrape in scrapes),
        }
        for name, le in scrapes[0]
    ]
    query = plain(CHART.queries[0].expr)
    inside = f"abs(({query}) / {expected_s} - 1) < bool {within}"
    test = {
        "interval": "1s",
        "input_series": series,
        "promql_expr_test": [
            {"expr": inside, "eval_time": "20s", "exp_samples": [{"labels": '{class="post"}', "value": 1}]}
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"evaluation_interval": "1s", "tests": [test]}))

    assert expected_s == pytest.approx(0.252, rel=0.02)
    done = subprocess.run(
        [require("promtool"), "test", "rules", str(tmp_path / "test.yml")],
        capture_output=True,
        check=False,
        timeout=60,
        text=True,
    )
    assert (0, "") == (done.returncode, done.stderr), done.stdout
