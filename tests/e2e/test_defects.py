"""Planted defects: a proxy that lies is found out, by name, while a healthy one is not accused."""

from __future__ import annotations

import json
import signal
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from soak.proxies.catalog import adapter
from tests.e2e.runs import START_S, LiveRun, lost, started, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("calm")]

WRAPPER = """
    #!{python}
    import os, re, signal, subprocess, sys
    NGINX = {nginx!r}
    args = sys.argv[1:]
    if "-t" in args or "-v" in args or "-V" in args:
        os.execv(NGINX, [NGINX, *args])
    {prepare}
    child = subprocess.Popen([NGINX, *args])
    signal.signal(signal.SIGHUP, lambda *_: {on_hup})
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT):
        signal.signal(number, lambda n, _: child.send_signal(n))
    sys.exit(child.wait())
"""
FREEZE = """
    at = args.index("-c") + 1
    real, args[at] = args[at], args[at] + ".shadow"
    def shadow():
        text = open(real).read()
        for kind in ("ssl_certificate_key", "ssl_certificate"):
            path = re.search(kind + r"\\s+\\"?([^;\\"]+)\\"?;", text).group(1)
            frozen = real + "." + kind
            if not os.path.exists(frozen):
                open(frozen, "w").write(open(path).read())
            text = re.sub(kind + r"\\s+[^;]+;", lambda m: kind + " " + frozen + ";", text)
        open(args[at], "w").write(text)
    shadow()
"""


def wrapper(tmp_path, on_hup: str, prepare: str = ""):
    """Write an nginx that is started through a script."""
    nginx = str(adapter("nginx").find_binary(None))
    path = tmp_path / "lying-nginx"
    body = textwrap.dedent(WRAPPER).strip()
    path.write_text(
        body.format(python=sys.executable, nginx=nginx, on_hup=on_hup, prepare=textwrap.dedent(prepare))
        + "\n"
    )
    path.chmod(0o755)
    return path


def run(tmp_path, binary, series: str, length_s: int = 28):
    plan = f"""
    length: {length_s}s
    rate: 100
    proxy: {{binary: {binary}}}
    chaos:
      gap: 1s
      series:
        - {series}
    """
    with started(tmp_path / "home", plan, "--json") as live:
        out, err = live.process.communicate(timeout=120)
    assert out, err
    return live.process.returncode, json.loads(out)


def missed(report, name: str):
    return [o for o in report["objectives"] if not o["ok"] and name in o["name"]]


@pytest.mark.timeout(240)
def test_a_reload_that_does_nothing_fails_the_run_and_is_named(tmp_path):
    """The signal is swallowed: the new generation never shows, so the reload failed, whatever was returned."""
    code, report = run(tmp_path, wrapper(tmp_path, "None"), "{fault: reload, every: 30s, first: 4s}")
    assert (code, report["verdict"]) == (1, "fail")
    (fault,) = report["faults"]
    assert fault["outcome"] == "failed"
    assert "never seen in traffic" in json.dumps(report["reasons"])
    assert "reload" in report["reasons"][0]
    assert missed(report, "reload") or missed(report, "effect") or missed(report, "verified")
    assert report["load"]["failed"] == 0


@pytest.mark.timeout(240)
def test_a_certificate_that_is_never_installed_fails_the_run_and_is_named(tmp_path):
    """Reloads work, but the proxy goes on with the certificate it had at start."""
    binary = wrapper(tmp_path, "(shadow(), child.send_signal(signal.SIGHUP))", FREEZE)
    code, report = run(tmp_path, binary, "{fault: cert-rotate, every: 30s, first: 4s}")
    assert (code, report["verdict"]) == (1, "fail")
    (fault,) = report["faults"]
    assert (fault["kind"], fault["outcome"]) == ("cert-rotate", "failed")
    assert "never presented by a fresh handshake" in json.dumps(report["reasons"])
    assert "cert-rotate" in report["reasons"][0]


@pytest.mark.timeout(240)
def test_the_same_wrapper_that_passes_signals_on_passes(tmp_path):
    """The defect is found, not the wrapper."""
    binary = wrapper(tmp_path, "child.send_signal(signal.SIGHUP)")
    code, report = run(tmp_path, binary, "{fault: reload, every: 30s, first: 4s}", length_s=16)
    assert (code, report["verdict"]) == (0, "pass"), report["reasons"]
    assert lost(report) == 0
    assert "workers_kept" in {o["name"] for o in report["objectives"]}


def a_worker(live: LiveRun) -> psutil.Process:
    """Return one of nginx's workers."""
    for process in live.family():
        with suppress(psutil.Error):  # it ended while it was looked at
            if "nginx: worker process" in " ".join(process.cmdline()):
                return process
    raise AssertionError("nginx has no worker")


@pytest.mark.timeout(240)
def test_a_worker_that_crashes_and_is_replaced_fails_the_run_and_is_named(tmp_path):
    """Its master has another one within milliseconds, and hardly a request notices."""
    plan = """
    length: 14s
    rate: 100
    chaos: {series: []}
    """
    with started(tmp_path / "home", plan, "--json") as live:
        live.until_running()
        wait_for(lambda: "proxy.workers_known" in live.run.log.read_text(), START_S, "a look at the workers")
        worker = a_worker(live)
        worker.send_signal(signal.SIGSEGV)
        out, err = live.process.communicate(timeout=120)
    assert out, err
    report = json.loads(out)
    (died,) = missed(report, "workers_kept")
    assert (live.process.returncode, report["verdict"], died["value"]) == (1, "fail", 1)
    assert (
        f"1 of the proxy's workers ended unasked (1 replaced, limit 0): pid {worker.pid} between"
        in died["reason"]
    )
    assert "(exited on signal 11" in died["reason"]
    assert {o["name"] for o in report["objectives"] if not o["ok"]} <= {"workers_kept", "steady_failures"}


GATEWAY = Path(__file__).with_name("gateway.py")
SICK = ["hang", "other-answer", "twice", "deaf", "stale", "workers", "dies", "forgets"]
GATEWAY_PLAN = """
    length: 25s
    rate: 60
    traffic:
      response_timeout: 3s
      max_age: 3s
      classes:
        - {name: tls-reused, share: 0.6, connection: reuse}
        - {name: tls-new, share: 0.2, connection: new}
        - {shape: post, share: 0.2}
    chaos:
      gap: 1s
      series:
        - {fault: reload, every: 60s, first: 9s}
        - {fault: backend-down, every: 60s, first: 14s, hold: 3s, targets: [b2]}
    objectives:
      {rate_held: 0.9, success: 0.9, stale_reuse: 0.02, effect_within: 5s, drain_within: 4s}
    proxy:
      kind: command
      binary: @PYTHON@
      command:
        name: gateway
        can: [reload, cert_rotate, marker]
        start: ["@{binary}", "@GATEWAY@", "@{config}"]
        validate: ["@{binary}", "@GATEWAY@", "--check", "@{config}"]
        reload: {signal: HUP}
        refused: "^refused"
        processes: {master: "gateway.py /", worker: " --worker", old_worker: "--old-worker"}
        files:
          gateway.json: |
            {"host": "@{host}", "http": @{http_port}, "https": @{https_port}, "generation": @{generation},
             "certificate": @{certificate|quoted}, "key": @{key|quoted}, "defects": @DEFECTS@,
             "backends": [
            @{each backend}
            ["@{backend.host}", @{backend.port}]@{backend.comma}
            @{end}
            ]}
"""
LAB = """
    lab: {backends: 3}
    self: {max_lag_p99: 2s, max_loop_gap: 3s, max_unwell: 0.3, max_others: 1}
"""


def gateway(tmp_path, defects: list[str]):
    """Run our own small proxy with these defects; returns the exit code and the report."""
    plan = GATEWAY_PLAN.replace("@PYTHON@", sys.executable).replace("@GATEWAY@", str(GATEWAY))
    plan = plan.replace("@DEFECTS@", json.dumps(defects))
    with started(tmp_path / "home", plan, "--json", calm=LAB) as live:
        out, err = live.process.communicate(timeout=120)
    assert out, err
    return live.process.returncode, json.loads(out)


@pytest.mark.timeout(240)
def test_eight_defects_of_a_proxy_are_named_each_by_its_objective(tmp_path):
    """Seven of them fail next to no request. Nothing else is held against it."""
    code, report = gateway(tmp_path, SICK)
    assert (code, report["verdict"]) == (1, "fail")
    reasons = {o["name"]: o["reason"] for o in report["objectives"] if not o["ok"]}
    named = {
        "steady_p99": "requests hung in",
        "mismatches": "1 answers did not belong to their request",
        "duplicates": "requests that are not idempotent were delivered again",
        "transition_failures": "connect_refused of class tls-new",
        "old_config_gone": "by reload #1",
        "old_workers_gone": "1 old workers still lived",
        "workers_kept": "of the proxy's workers ended unasked",
        "faults_verified": "backend b2 never came back into rotation",
    }
    assert dict.fromkeys(named, True) == {
        name: name in reasons and words in reasons[name] for name, words in named.items()
    }, reasons
    assert set(reasons) <= {*named, "steady_failures"}, reasons


@pytest.mark.timeout(240)
def test_the_same_proxy_without_defects_passes(tmp_path):
    """By every objective that its defects had missed."""
    code, report = gateway(tmp_path, [])
    assert (code, report["verdict"]) == (0, "pass"), report["reasons"]
    judged = {o["name"] for o in report["objectives"]}
    assert {
        "steady_p99",
        "duplicates",
        "old_config_gone",
        "old_workers_gone",
        "workers_kept",
        "balance",
    } < judged
