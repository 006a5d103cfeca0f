"""Bad input of every kind: one clear sentence naming the value, exit 2, no traceback, nothing left behind."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from soak.plan import Plan
from soak.runs import create_run, hold
from soak.web.socketpath import short_path

PLANS = {
    "syntax": (
        "rate: : 3",
        "plan.yaml:1: not valid YAML: mapping values are not allowed here, at 'rate: : 3'",
    ),
    "unknown-key": ("rate: 5\nlenght: 1h\n", "plan.yaml:2: unknown key 'lenght'; did you mean 'length'?"),
    "wrong-type": ("rate: fast", "plan.yaml:1: rate: 'fast' must be a number"),
    "negative-rate": ("rate: -5", "plan.yaml:1: rate: -5 must be more than 0"),
    "absurd-rate": ("rate: 5000000", "plan.yaml:1: rate: 5000000 must be at most 200,000; past that"),
    "hold-not-shorter-than-period": (
        "chaos:\n  series:\n    - {fault: backend-down, every: 1m, hold: 90s}",
        "plan.yaml:3: chaos.series[0]: backend-down: hold 1m30s is not shorter than every 1m",
    ),
    "unknown-fault": (
        "chaos:\n  series:\n    - {fault: backend-dwon, every: 1m}",
        "plan.yaml:3: chaos.series[0].fault: there is no fault 'backend-dwon'; did you mean 'backend-down'?",
    ),
    "unknown-target": (
        "chaos:\n  series:\n    - {fault: backend-down, every: 1m, targets: [b9]}",
        "backend-down has no target 'b9'; known: b1, b2, b3",
    ),
    "duplicate-key": ("rate: 5\nrate: 6", "plan.yaml:2: the key 'rate' stands twice (first on line 1)"),
    "alias": ("a: &a 1\nb: *a", "plan.yaml:2: the alias '*a' is refused"),
    "empty": ("", "plan.yaml: the file is empty"),
    "no-value": (
        "length:",
        "plan.yaml:1: length: nothing (an empty value) is not a duration; write it like 30s",
    ),
    "boolean-length": ("length: yes", "plan.yaml:1: length: true is not a duration"),
    "unit-left-out": ("length: 1h30", "plan.yaml:1: length: '1h30' is not a duration; write it like"),
    "blank-in-unit": ("length: 15 min", "plan.yaml:1: length: '15 min' is not a duration"),
    "endless": (f"length: {'9' * 400}", "plan.yaml:1: length: a number of more than 308 digits is not"),
    "too-long": ("length: 100d", "plan.yaml:1: length: '100d' must be at most 31d"),
    "sixties": ("length: 1:30", "plan.yaml:1: length: YAML reads 1:30 as 90; write 90"),
    "octal": ("rate: 0777", "plan.yaml:1: rate: YAML reads 0777 as 511; write 511"),
    "no-such-date": ("rate: 2026-13-45", "plan.yaml:1: rate: '2026-13-45' is no date that exists"),
    "date": ("name: 2026-01-05", "plan.yaml:1: name: the date 2026-01-05 must be text"),
    "nan-as-text": ("rate: 'nan'", "plan.yaml:1: rate: 'nan' is not a finite number"),
    "infinite-limit": (
        "objectives: {p99_drift: 1e999}",
        "plan.yaml:1: objectives.p99_drift: '1e999' is not a finite number",
    ),
    "shape-list": (
        "traffic: {classes: [{shape: [h2], share: 1}]}",
        "plan.yaml:1: traffic.classes[0]: there is no traffic shape ['h2']; known: balance, ",
    ),
}
HOST = {
    "missing-nginx": ("proxy: {binary: /nonexistent/nginx}", "/nonexistent/nginx"),
    "too-few-open-files": (
        "traffic: {max_in_flight: 4000000000}",
        "and this plan needs 8,000,000,256; raise it ('ulimit -Hn 8000000256' as root)",
    ),
    "address-of-nobody-here": (
        "http_host: 192.0.2.1",
        "cannot listen on 192.0.2.1, http_port 0: Cannot assign requested address; let http_host be an address of",
    ),
    "no-address": (
        "http_host: not a host",
        "cannot listen on not a host, http_port 0: Name or service not known",
    ),
    "taken-port": ("http_port: PORT", "cannot listen on 127.0.0.1, http_port PORT: Address already in use"),
}
FLAGS = {
    "no-plan": (
        ["start", "gone.yaml"],
        "cannot read 'gone.yaml': No such file or directory; 'soak init gone.yaml'",
    ),
    "flag-type": (
        ["start", "--rate", "fast"],
        "Invalid value for '--rate': 'fast' is not a number; write it like 1000 or 0.5",
    ),
    "flag-thousands": (["start", "--rate", "1,000"], "'1,000' is not a number; write it like 1000 or 0.5"),
    "flag-whole": (["start", "--seed", "1e3"], "Invalid value for '--seed': '1e3' is not a whole number"),
    "flag-negative": (["start", "--rate", "-5"], "--rate: rate: -5 must be more than 0"),
    "flag-nan": (["start", "--rate", "nan"], "--rate: rate: nan is not a finite number"),
    "flag-length": (["start", "--minutes", "0"], "--minutes: length: 0 must be more than 0 and finite"),
    "flag-infinite": (["start", "--hours", "inf"], "--hours: length: inf must be more than 0 and finite"),
    "two-lengths": (["start", "--hours", "1", "--minutes", "2"], "both --hours 1 and --minutes 2 were given"),
    "flag-length-negative": (["start", "--hours", "-1"], "--hours: length: -1 must be more than 0"),
    "plan-directory": (["plan", "."], "cannot read '.': Is a directory; name a file in it"),
    "preset-empty": (["start", "--preset", ""], "--preset: there is no preset ''; known: "),
    "every-no-hold": (
        ["start", "--every", "backend-down=5m:0"],
        "the hold '0' of 'backend-down=5m:0' must be",
    ),
    "every-line-end": (["start", "--every", "re\nload=5m"], r"--every 're\nload=5m': chaos.series[3].fault"),
    "dir-empty": (["start", "--dir", ""], "'' is no directory; leave it out for one under SOAK_HOME"),
    "dir-no-user": (
        ["start", "--dir", "~nobody-here/x"],
        "'~nobody-here/x' cannot be used: there is no such user",
    ),
    "dir-long": (
        ["start", "--dir", "a" * 300],
        "cannot be used: File name too long; choose another directory",
    ),
    "status-long": (["status", "a" * 300], "names no run: File name too long; 'soak runs' lists them"),
    "report-no-user": (["report", "~nobody-here/x"], "'~nobody-here/x' names no run: there is no such user"),
    "heal-empty": (["heal", ""], "'' names no run; 'soak runs' lists them"),
    "inject-run-long": (["inject", "reload", "--run", "a" * 300], "names no run: File name too long"),
    "status-dots": (["status", "../.."], "'../..' is not the directory of a run: it has no plan.yaml"),
    "init-nowhere": (
        ["init", "gone/x.yaml"],
        "cannot write 'gone/x.yaml': No such file or directory; choose",
    ),
    "lab-command": (["lab", "--proxy", "command"], "--proxy: 'command' is a proxy that only a plan knows"),
    "lab-proxy": (["lab", "--proxy", "ngnix"], "proxy 'ngnix' is not known; did you mean 'nginx'?"),
    "load-line-end": (
        ["load", "http://127.0.0.1:1/\r\nX: y", "--rate", "1", "--seconds", "1"],
        r"'http://127.0.0.1:1/\r\nX: y' is not a URL to load: it holds a control character",
    ),
    "load-ca-gone": (
        ["load", "https://127.0.0.1:1/", "--rate", "1", "--seconds", "1", "--ca", "gone.pem"],
        "cannot read 'gone.pem': No such file or directory; name another file",
    ),
    "load-ca-device": (
        ["load", "https://127.0.0.1:1/", "--rate", "1", "--seconds", "1", "--ca", "/dev/null"],
        "'/dev/null' is no regular file; name one",
    ),
    "every-form": (["start", "--every", "reload"], "--every: 'reload' is not FAULT=PERIOD[:HOLD]"),
    "every-fault": (["start", "--every", "relod=5m"], "there is no fault 'relod'; did you mean 'reload'?"),
    "every-period": (["start", "--every", "reload=soon"], "'soon' is not a duration"),
    "every-hold": (["start", "--every", "backend-down=1m:2m"], "hold 2m is not shorter than every 1m"),
    "preset": (["start", "--preset", "quik"], "there is no preset 'quik'; did you mean 'quick'?"),
    "proxy": (["start", "--proxy", "ngnix"], "proxy.kind: 'ngnix' is not known; did you mean 'nginx'?"),
    "lab": (["start", "--lab", "moon"], "lab.kind: 'moon' is not known; known: attach, docker, local"),
    "detach-json": (["start", "--detach", "--json"], "--detach returns before there is a report"),
    "command": (["strat"], "there is no command 'strat'; did you mean 'start'?"),
    "option": (["start", "--ratee", "5"], "No such option '--ratee'"),
    "argument": (["inject"], "Missing argument 'FAULT'"),
    "unwritable-dir": (["start", "--dir", "/proc/soak/run"], "cannot write to /proc/soak/run"),
    "status-no-run": (["status"], "no run is live in {home}/runs; 'soak start' begins one"),
    "stop-no-run": (["stop"], "no run is live in {home}/runs"),
    "inject-no-run": (["inject", "reload"], "no run is live in {home}/runs"),
    "report-no-run": (["report"], "there is no run in {home}/runs"),
    "report-wrong-run": (["report", "xyz"], "there is no run 'xyz'"),
    "heal-wrong-run": (["heal", "xyz"], "there is no run 'xyz'"),
    "inject-unknown": (
        ["inject", "backend-dwon"],
        "there is no fault 'backend-dwon'; did you mean 'backend-down'?",
    ),
    "inject-hold": (
        ["inject", "reload", "--for", "3s"],
        "reload is a change without a way back and cannot hold",
    ),
    "inject-for": (["inject", "backend-down", "--for", "soon"], "'soon' is not a duration"),
    "inject-endless": (
        ["inject", "backend-down", "--for", "1000000d"],
        "'1000000d' must be at most 31d, the longest run",
    ),
    "inject-zero": (["inject", "backend-down", "--for", "0s"], "'0s' must be longer than 0"),
    "load-url": (["load", "ftp://x", "--rate", "1", "--seconds", "1"], "'ftp://x' is not a URL to load"),
    "load-rate": (["load", "http://x/", "--rate", "-1", "--seconds", "1"], "rate is -1; it must be"),
    "report-format": (["report", "--format", "pdf"], "'pdf' is not one of"),
    "objectives": (["report", "--objectives", "gone.yaml"], "cannot read 'gone.yaml'"),
}


def assert_one_clear_sentence(result, words: str) -> None:
    assert 2 == result.exit_code, result.output
    assert "" == result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("soak: ")
    assert words in line
    assert "Traceback" not in line


def left_behind(home: Path) -> list[Path]:
    return sorted(home.rglob("*")) if home.exists() else []


@pytest.mark.parametrize("command", ["start", "plan", "check"])
@pytest.mark.parametrize("kind", PLANS)
def test_a_bad_plan_is_one_sentence(soak, home, kind, command):
    """With file, line, value and rule; whichever command reads it."""
    text, words = PLANS[kind]
    Path("plan.yaml").write_text(text)
    assert_one_clear_sentence(soak(command, "plan.yaml"), words)
    assert [] == left_behind(home)


@pytest.mark.parametrize("kind", HOST)
def test_a_plan_that_this_host_cannot_carry_is_one_sentence(soak, home, kind):
    """Before anything is created."""
    text, words = HOST[kind]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        Path("plan.yaml").write_text(text.replace("PORT", port))
        assert_one_clear_sentence(soak("start", "plan.yaml"), words.replace("PORT", port))
        checked = soak("check", "plan.yaml")
    assert 2 == checked.exit_code
    assert "block" in checked.stdout
    assert "1 of 10 looks found something in the way" in checked.stderr
    assert [] == left_behind(home)


@pytest.mark.parametrize("kind", FLAGS)
def test_a_bad_command_line_is_one_sentence(soak, home, kind):
    """With the flag or the name that is wrong."""
    args, words = FLAGS[kind]
    assert_one_clear_sentence(soak(*args), words.replace("{home}", str(home)))
    assert [] == left_behind(home)


@pytest.mark.parametrize("place", ["/proc/soak", "/dev/null/soak"])
def test_an_unwritable_home_is_one_sentence(soak, monkeypatch, place):
    """With the way out."""
    monkeypatch.setenv("SOAK_HOME", place)
    assert_one_clear_sentence(soak("start"), f"cannot write to {place}/runs")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
@pytest.mark.parametrize(
    ("sizes_kib", "words"),
    [
        ((64, 64), "the file system of {home}/runs is full; free some space"),
        ((8192, 0), "{home}/runs has 8 MiB free and this plan may write 197 MiB; free some space"),
    ],
    ids=["full", "too-small"],
)
def test_a_full_home_is_one_sentence(soak, monkeypatch, tmp_path, sizes_kib, words):
    """On a real file system, without a free byte or with too few for the plan."""
    size_kib, filled_kib = sizes_kib
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"this host forbids mounting: {mounted.stderr.decode().strip()}")
    try:
        (place / "filler").write_bytes(b"x" * filled_kib * 1024)
        monkeypatch.setenv("SOAK_HOME", str(place / "home"))
        assert_one_clear_sentence(soak("start"), words.replace("{home}", f"{place}/home"))
        assert ["filler"] == [p.name for p in place.iterdir()]
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_second_start_on_a_live_run_is_refused(soak, home, tmp_path):
    """Naming the pid and how to end it; the live run is untouched."""
    run = create_run(Plan(), "rate: 1\n", home=home, directory=tmp_path / "mine")
    with hold(run):
        before = left_behind(home)
        result = soak("start", "--dir", str(run.path))
        assert_one_clear_sentence(result, f"a run is live in {run.path} (pid {os.getpid()}); 'soak stop")
        assert before == left_behind(home)
        assert "rate: 1\n" == run.plan.read_text()


@pytest.mark.parametrize("command", [["status"], ["stop"], ["inject", "reload"]])
def test_a_killed_runs_stale_socket_is_told_so(soak, home, command):
    """With the cure; by lock alone, and when the lock is held but nobody listens."""
    run = create_run(Plan(), "", home=home)
    with socket.socket(socket.AF_UNIX) as server, short_path(run.socket) as path:
        server.bind(path)
    assert_one_clear_sentence(
        soak(*command), f"the run {run.id} is dead: its daemon is gone and left a stale socket"
    )
    with hold(run):
        assert_one_clear_sentence(soak(*command), f"it is stale, its daemon is gone; 'soak heal {run.id}'")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
@pytest.mark.parametrize("command", [["status"], ["stop"], ["inject", "reload"]])
def test_somebody_elses_socket_is_refused(soak, home, command):
    """Naming both users."""
    run = create_run(Plan(), "", home=home)
    with hold(run), socket.socket(socket.AF_UNIX) as server:
        with short_path(run.socket) as path:
            server.bind(path)
        server.listen()
        os.chown(run.socket, 65_534, -1)
        assert_one_clear_sentence(soak(*command), "belongs to nobody (uid 65534) and you are root (uid 0)")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["start", "plan.yaml"], "unknown key 'ratee'"),
        (["status"], "no run is live"),
        (["start", "--rate", "x"], "'x' is not a number"),
    ],
)
def test_a_real_process_behaves_the_same(home, args, words):
    """Through the interpreter, not the test runner."""
    Path("plan.yaml").write_text("ratee: 5")
    done = subprocess.run(
        [sys.executable, "-m", "soak.cli", *args], capture_output=True, text=True, check=False, timeout=60
    )
    assert (2, "") == (done.returncode, done.stdout)
    (line,) = done.stderr.splitlines()
    assert words in line
    assert [] == left_behind(home)
