"""What is shipped for Prometheus and Grafana beside the dashboard: configuration, rules, provisioning, compose file."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from soak.model import Outcome
from tests.dashboards.promql import unknown_metrics

ROOT = Path(__file__).parents[2]
DASHBOARDS = ROOT / "dashboards"
PROVISIONING = DASHBOARDS / "grafana" / "provisioning"
RULES_TEST = Path(__file__).with_name("rules_test.yml")
RULES = [
    rule
    for group in yaml.safe_load((DASHBOARDS / "rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]


def run(*command):
    return subprocess.run(
        [str(word) for word in command], capture_output=True, check=False, timeout=60, text=True
    )


def test_prometheus_configuration_is_valid_and_finds_the_rules(require):
    """promtool finds nothing wrong with the scrape configuration nor with the rules that it names."""
    done = run(require("promtool"), "check", "config", DASHBOARDS / "prometheus.yml")

    assert (0, "") == (done.returncode, done.stderr)
    assert f"{len(RULES)} rules found" in done.stdout


def test_rules_do_what_they_promise(require):
    """A fault does not page, a steady failure does, recovery clears it; and so on, see rules_test.yml."""
    done = run(require("promtool"), "test", "rules", RULES_TEST)

    assert (0, "") == (done.returncode, done.stderr), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("scenario", "right", "wrong"),
    [
        ("a fault that fails half", '{phase="steady",outcome!~', "{outcome!~"),
        ("what has objectives of its own", "|stale_reuse", ""),
        ("recovery clears it", "\n          and job_instance:soak_steady_burn:ratio_rate2m30s > 4.8", ""),
        ("a rate of 98 %", "soak_run_elapsed_seconds > 360", "soak_run_elapsed_seconds > 0"),
        ("a rate of 98 %", "0.99 * soak_target", "0.97 * soak_target"),
        ("a run that vanishes", '{state=~"stopping|finished"}', '{state="finished"}'),
        ("growth is told", "soak_run_elapsed_seconds > 7200", "soak_run_elapsed_seconds > 600"),
    ],
)
def test_scenario_notices_a_wrong_rule(require, tmp_path, scenario, right, wrong):
    """Each scenario can fail: with a rule spoilt in the way it is about, promtool complains."""
    text = (DASHBOARDS / "rules.yml").read_text()
    assert right in text
    played = yaml.safe_load(RULES_TEST.read_text())
    played["tests"] = [test for test in played["tests"] if scenario in test["name"]]
    assert 1 == len(played["tests"])
    played["rule_files"] = ["rules.yml"]
    (tmp_path / "test.yml").write_text(yaml.safe_dump(played))
    (tmp_path / "rules.yml").write_text(text.replace(right, wrong))

    assert 0 == run(require("promtool"), "check", "rules", tmp_path / "rules.yml").returncode
    done = run(require("promtool"), "test", "rules", tmp_path / "test.yml")
    assert 1 == done.returncode
    assert "FAILED" in done.stderr
    assert "exp:" in done.stdout + done.stderr


def test_every_alert_is_played_through():
    """No alert without a scenario in which it fires, and each says how urgent it is and what is wrong."""
    played = RULES_TEST.read_text()

    assert [] == [rule["alert"] for rule in ALERTS if rule["alert"] not in played]
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert {"summary", "description"} == set(rule["annotations"])


def test_document_lists_every_alert_with_its_severity():
    """docs/DASHBOARD.md has a row for each alert, and none for one that is gone."""
    text = (ROOT / "docs" / "DASHBOARD.md").read_text()
    rows = re.findall(r"^\| (`Soak.+?) \| .+ \| (page|ticket) \|$", text, re.MULTILINE)
    listed = {name: severity for names, severity in rows for name in re.findall(r"`(\w+)`", names)}

    assert {rule["alert"]: rule["labels"]["severity"] for rule in ALERTS} == listed


def test_rules_use_only_metrics_that_exist():
    """Every series is in the catalog, recorded by these rules, or Prometheus' own."""
    recorded = {rule["record"] for rule in RULES if "record" in rule}

    assert {} == {rule["expr"]: bad for rule in RULES if (bad := unknown_metrics(rule["expr"], recorded))}


def test_rules_count_as_failure_what_the_verdict_counts():
    """The outcomes that the rules leave out are those that are no failure of the proxy."""
    left_out = "|".join(o.value for o in Outcome if not o.is_proxy_failure)
    patterns = {
        m for rule in RULES for m in re.findall(r'soak_requests_total\{.*?outcome!~"(.*?)"', rule["expr"])
    }

    assert patterns
    assert all(set(left_out.split("|")) == set(pattern.split("|")) for pattern in patterns)


def test_burn_rates_are_those_of_a_day():
    """Budget spent = burn x window / 24 h: a tenth, a quarter, three eighths; each with a short window that clears it."""
    pairs: dict[float, list[str]] = {}
    for rule in ALERTS:
        for window, burn in re.findall(r"ratio_rate(\w+) > ([\d.]+)", rule["expr"]):
            pairs.setdefault(float(burn), []).append(window)

    assert {4.8: ["30m", "2m30s"], 3.0: ["2h", "10m"], 1.5: ["6h", "30m"]} == pairs
    assert [0.1, 0.25, 0.375] == [round(b * h / 24, 6) for b, h in ((4.8, 0.5), (3.0, 2), (1.5, 6))]


@pytest.mark.parametrize("file", ["compose.yaml", "compose/monitoring.yaml"])
def test_grafana_finds_its_datasource_and_its_dashboard(file):
    """The provisioned datasource is the Prometheus of the compose file; its interval is the scrape interval."""
    compose = yaml.safe_load((ROOT / file).read_text())["services"]
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yaml").read_text())["datasources"]
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "soak.yaml").read_text())["providers"]
    scrape = yaml.safe_load((DASHBOARDS / "prometheus.yml").read_text())["global"]["scrape_interval"]

    assert ("prometheus", True) == (source["type"], source["isDefault"])
    assert "${PROMETHEUS_URL}" == source["url"]
    listens = [c.split("=")[1] for c in compose["prometheus"]["command"] if "listen-address" in c]
    assert (
        f"http://{(listens or ['prometheus:9090'])[0]}" == compose["grafana"]["environment"]["PROMETHEUS_URL"]
    )
    assert scrape == source["jsonData"]["timeInterval"]
    mounted = dict(m.split(":")[:2] for m in compose["grafana"]["volumes"])
    mounted = {name.replace("../", "./"): path for name, path in mounted.items()}
    assert f"{provider['options']['path']}/soak.json" == mounted["./dashboards/soak.json"]
    for name, path in mounted.items():
        if "provisioning" in name:
            assert path == "/etc/grafana" + name.removeprefix("./dashboards/grafana")


@pytest.mark.parametrize("file", ["compose.yaml", "compose/monitoring.yaml"])
def test_grafana_is_read_only_and_on_loopback(file):
    """Nobody from outside reaches it, and who reaches it may only look."""
    grafana = yaml.safe_load((ROOT / file).read_text())["services"]["grafana"]
    environment = grafana["environment"]

    published = [port.split(":")[0] for port in grafana.get("ports", [])]
    assert ["127.0.0.1"] == (published or [environment["GF_SERVER_HTTP_ADDR"]])
    assert ("true", "Viewer") == (
        environment["GF_AUTH_ANONYMOUS_ENABLED"],
        environment["GF_AUTH_ANONYMOUS_ORG_ROLE"],
    )


def test_the_prometheus_of_compose_differs_in_its_target_alone(require, tmp_path):
    """Same intervals, rules and job: dashboard and alerts mean the same; promtool finds nothing wrong."""
    ours, inside = (
        yaml.safe_load((ROOT / file).read_text())
        for file in ("dashboards/prometheus.yml", "compose/prometheus.yml")
    )
    assert ["soak:9465"] == inside["scrape_configs"][0]["static_configs"][0]["targets"]
    inside["scrape_configs"][0]["static_configs"] = ours["scrape_configs"][0]["static_configs"]
    assert ours == inside
    for file in ("dashboards/rules.yml", "compose/prometheus.yml"):
        shutil.copy(ROOT / file, tmp_path)
    done = run(require("promtool"), "check", "config", tmp_path / "prometheus.yml")
    assert (0, "") == (done.returncode, done.stderr)
