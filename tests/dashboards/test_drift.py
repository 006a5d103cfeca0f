"""The drift row in a run of hours, played by Prometheus' own engine: what it compares with stays the run's first hour."""

import subprocess

import pytest
import yaml

from dashboards.soak import FIRST_HOUR_END
from dashboards.system_rows import DRIFT
from tests.dashboards.test_soak import plain

START_S = 1200  # the run starts 20 minutes after Prometheus does, so that an hour of the clock is not an hour of the run
INSTANCE = 'instance="127.0.0.1:9465"'
QUERIES = {chart.title: {query.legend: query.expr for query in chart.queries} for chart in DRIFT.charts}


def at_run_time(expr: str) -> str:
    return plain(expr.replace("$first_hour_end", str(START_S + 3600)))


def play(promtool, tmp_path, expected):
    """Play five hours: memory 100 MB for an hour, then 150 MB; files 50, then 80; CPU per request 1 ms, then 2 ms."""
    test = {
        "interval": "1m",
        "input_series": [
            {
                "series": f"soak_run_start_timestamp_seconds{{{INSTANCE}}}",
                "values": f"_x20 {START_S}x320",
            },
            {
                "series": f"soak_proxy_resident_memory_bytes{{{INSTANCE}}}",
                "values": "_x20 100000000x60 150000000x260",
            },
            {"series": f"soak_proxy_open_fds{{{INSTANCE}}}", "values": "_x20 50x60 80x260"},
            {"series": f"soak_proxy_cpu_seconds_total{{{INSTANCE}}}", "values": "_x20 0+6x60 372+12x260"},
            {
                "series": f'soak_requests_sent_total{{{INSTANCE},class="get"}}',
                "values": "_x20 0+6000x320",
            },
        ],
        "promql_expr_test": [
            {
                "expr": f"abs(({at_run_time(expr)}) / {value} - 1) < bool 0.02",
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": labels, "value": 1}],
            }
            for expr, value, labels in expected
            for minute in (200, 320)
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]}))
    return subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "test.yml")],
        capture_output=True,
        check=False,
        timeout=60,
        text=True,
    )


EXPECTED = [
    (QUERIES["Memory of the proxy"]["first hour"], 100_000_000, f"{{{INSTANCE}}}"),
    (QUERIES["Memory of the proxy"]["this hour"], 150_000_000, f"{{{INSTANCE}}}"),
    (QUERIES["Open files of the proxy"]["first hour"], 50, f"{{{INSTANCE}}}"),
    (QUERIES["Open files of the proxy"]["this hour"], 80, f"{{{INSTANCE}}}"),
    (QUERIES["CPU of the proxy per request"]["first hour"], 0.001, f"{{{INSTANCE}}}"),
    (QUERIES["CPU of the proxy per request"]["this hour"], 0.002, f"{{{INSTANCE}}}"),
    (QUERIES["Memory against the first hour"]["memory"], 1.5, f"{{{INSTANCE}}}"),
    (FIRST_HOUR_END, START_S + 3600, "{}"),
]


def test_first_hour_stays_the_first_hour(require, tmp_path):
    """Three hours and five hours after the start the row compares with the same hour, and tells it from this one."""
    done = play(require("promtool"), tmp_path, EXPECTED)

    assert (0, "") == (done.returncode, done.stderr), done.stdout


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (QUERIES["Memory of the proxy"]["first hour"], 150_000_000),
        (QUERIES["Memory against the first hour"]["memory"], 1),
    ],
)
def test_wrong_hour_would_be_noticed(require, tmp_path, expr, value):
    """The comparison can fail."""
    done = play(require("promtool"), tmp_path, [(expr, value, f"{{{INSTANCE}}}")])

    assert 1 == done.returncode
    assert "FAILED" in done.stderr
