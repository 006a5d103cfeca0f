"""The matrix: from reports to a table, from a table into a document, and real runs from its command line."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.matrix import __main__ as command
from benchmarks.matrix import running
from benchmarks.matrix.entry import Entry, FaultRow, entry_of, not_run
from benchmarks.matrix.running import Run, run
from benchmarks.matrix.table import BEGIN, END, block, fill, notes, table
from chaos.model import FaultOutcome
from soak.errors import SoakError
from soak.model import Outcome, Vital
from soak.proxies.catalog import adapters
from soak.report import build_report
from soak.store import StoreReader
from tests.soak.synthetic import SyntheticRun, record

ROOT = Path(__file__).parents[2]
MACHINE = {
    "cpus": 2,
    "cpu_model": "X",
    "virtual": True,
    "kernel": "6.1",
    "python": "3.11",
    "versions": {"soakd": "0.1"},
}


@pytest.fixture
def report(tmp_path: Path) -> dict[str, Any]:
    """A real report: two reloads, one more that was skipped, and a backend away."""
    r = SyntheticRun(seconds=90)
    r.add_fault(record(1, "reload", 10.0, active_s=10.25))
    r.add_fault(record(2, "reload", 20.0, active_s=20.75))
    r.add_fault(record(3, "backend-down", 30.0, recovery_s=0.9, recovered_s=35.4))
    r.faults.append(
        record(4, "reload", 80.0, injected_s=None, active_s=None, outcome=FaultOutcome.SKIPPED, reason="busy")
    )
    r.fail(10, Outcome.STALE_REUSE, 2)
    r.fail(20, Outcome.CONNECT_RESET, 1)
    r.fail(31, Outcome.STATUS_5XX, 3)
    r.vitals = [Vital(t, "proxy", 10 * 2**20, t / 10, 50, 3, 1) for t in range(0, 90, 5)]
    with StoreReader(r.write(tmp_path / "run.db")) as store:
        return build_report(store)


def test_a_report_is_folded_into_a_row(report):
    """Faults by kind, what ran and what was lost by outcome; what was skipped did not run."""
    entry = entry_of("nginx", report, 1, ["reload"], ["x: y"])
    assert ("nginx", "fail", ("x: y",)) == (entry.proxy, entry.verdict, entry.left_out)
    assert entry.reason == report["reasons"][0]
    reload, down = entry.faults["reload"], entry.faults["backend-down"]
    assert (2, 2, {"connect_reset": 1, "stale_reuse": 2}) == (reload.n, reload.verified, reload.lost)
    assert (0.5, 0.75) == (reload.p50_s, reload.max_s)
    assert ({"status_5xx": 3}, 0.9, 0.9) == (down.lost, down.p50_s, down.max_s)
    assert report["load"]["sent"] == entry.sent
    assert 10 == entry.rss_mib
    assert pytest.approx(0.1) == entry.cpu_cores
    assert entry == Entry.from_json(json.loads(json.dumps(entry.to_json())))


def test_a_dirty_run_is_called_so(report):
    """Its report cannot know what its exit code says."""
    assert "dirty" == entry_of("nginx", report, 4, []).verdict


def test_a_table_has_a_row_for_everyone_also_for_who_did_not_run(report):
    """With what was lost, when it was seen, and what cannot be done."""
    rows = table(
        [entry_of("nginx", report, 1, ["reload", "h2"]), not_run("varnish", "no varnishd\nwas found")]
    )
    lines = rows.splitlines()
    assert 1 == len({line.count("|") for line in lines})
    assert (
        "| 1 connect_reset, 2 stale_reuse in 2 | 0.50 / 0.75 s | 3 status_5xx in 1 | 0.90 / 0.90 s | - | - |"
        in rows
    )
    assert "| cert_rotate, marker, metrics, websocket, tcp |" in lines[2]
    assert lines[3].startswith("| varnish | not run | - | - |")
    assert ["varnish: **not run**, no varnishd was found"] == notes(
        [not_run("varnish", "no varnishd\nwas found")]
    )


def test_what_was_not_verified_is_told_beside_what_was_lost():
    """A fault that nothing showed lost nothing, and proves nothing."""
    row = FaultRow(3, 2, {}, None, None)
    rows = table([Entry("x", "invalid", "why", faults={"reload": row})])
    assert "| 0 in 3 (1 not verified) | - |" in rows


def summary(*entries: Entry) -> dict[str, Any]:
    return {"minutes": 2.0, "rate": 1000.0, "machine": MACHINE, "entries": [e.to_json() for e in entries]}


def test_a_document_gets_the_table_between_its_markers_and_keeps_the_rest(report):
    """Without date, host or path; with the warning that goes with it."""
    text = block(summary(entry_of("nginx", report, 1, []), not_run("varnish", "not here")))
    for words in (
        "1,000 req/s for 2 min each",
        "2 X cores of a virtual machine",
        "Compare within this one run only",
    ):
        assert words in text
    assert str(Path.home()) not in text
    filled = fill(f"before\n{BEGIN}\nold\n{END}\nafter\n", text)
    assert filled == f"before\n{BEGIN}\n{text}\n{END}\nafter\n" == fill(filled, text)
    with pytest.raises(ValueError, match="has no <!-- matrix -->"):
        fill("nothing here", text)


def test_the_readme_has_a_place_for_it_and_the_committed_results_fit_their_table():
    """What stands there is what was measured."""
    readme = (ROOT / "README.md").read_text()
    assert 1 == readme.count(BEGIN) == readme.count(END)
    results = ROOT / "benchmarks" / "results" / "matrix.json"
    if results.exists():
        assert readme == fill(readme, block(json.loads(results.read_text())))


# -- one run ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pretend(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return a command that is a script in the place of soak."""

    def made(text: str) -> list[str]:
        path = tmp_path / "soak"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return [str(path)]

    return made


def test_a_run_gives_its_report_and_tells_how_far_it_is(pretend, tmp_path):
    """The report is stdout, progress is stderr; the run has a home of its own."""
    heard: list[str] = []
    done = run(
        pretend('echo going >&2; echo "{\\"verdict\\": \\"pass\\", \\"home\\": \\"$SOAK_HOME\\"}"'),
        5,
        heard.append,
        tmp_path,
    )
    assert (0, {"verdict": "pass", "home": str(tmp_path)}) == (done.status, done.report)
    assert ["    going"] == heard


@pytest.mark.parametrize(
    ("words", "script"),
    [
        ("no varnishd", "echo hello >&2; echo soak: no varnishd >&2; exit 2"),
        ("Killed", "echo Killed >&2; exit 9"),
        ("it said nothing", "echo '[1]'; exit 1"),
    ],
)
def test_a_run_without_a_report_says_why(pretend, words, script):
    """In soak's own sentence, if there is one."""
    done = run(pretend(script), 5, lambda _: None)
    assert (None, words) == (done.report, done.words)


def test_a_run_that_does_not_end_is_stopped(pretend, monkeypatch):
    """As Ctrl-C does at first; by force when it does not heed it."""
    # A shell must have set its trap by then, on a busy machine, too.
    monkeypatch.setattr(running, "EXTRA_S", 1.5)
    monkeypatch.setattr(running, "HEAL_S", 1.5)
    polite = run(pretend("trap 'exit 3' INT; while :; do sleep 0.02; done"), 0, lambda _: None)
    assert (3, "it did not end within 1.5 s and was stopped") == (polite.status, polite.words)
    stubborn = run(pretend("trap '' INT; while :; do sleep 0.02; done"), 0, lambda _: None)
    assert -signal.SIGKILL == stubborn.status


# -- the command line ------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path) -> list[str]:
    """Arguments that keep everything in a directory of the test."""
    document = tmp_path / "README.md"
    document.write_text(f"{BEGIN}\n{END}\n")
    places = {"kept": tmp_path / "kept", "results": tmp_path / "results.json", "document": document}
    return [part for name, path in places.items() for part in (f"--{name}", str(path))]


def test_wrong_arguments_end_with_two(capsys):
    """With what there is."""
    for wrong in (["--proxies", "ngnix"], ["--minutes", "0"], ["--rate", "-1"]):
        with pytest.raises(SystemExit) as ended:
            command.main(wrong)
        assert 2 == ended.value.code
    assert "no proxy 'ngnix'; there are " in capsys.readouterr().err


def test_all_proxies_are_rows_and_the_standard_length_is_written(here, monkeypatch, report, tmp_path, capsys):
    """Everyone that soak has an adapter for; one whose binary is missing says so."""
    monkeypatch.setattr(command, "names", lambda: ["nginx", "haproxy"])
    monkeypatch.setattr(command, "run", lambda *_args: Run(1, report))
    nowhere = adapters()["haproxy"]
    monkeypatch.setattr(type(nowhere), "find_binary", _missing)
    assert 0 == command.main(here)
    text = (tmp_path / "README.md").read_text()
    assert "| nginx " in text
    assert "haproxy: **not run**, it is not here" in text
    assert ["nginx", "haproxy"] == [
        e["proxy"] for e in json.loads((tmp_path / "results.json").read_text())["entries"]
    ]
    assert report == json.loads((tmp_path / "kept" / "nginx.json").read_text())
    assert "nginx (1 of 2)" in capsys.readouterr().err
    assert 0 == command.main(["--show", str(tmp_path / "results.json")])
    assert "| haproxy | not run |" in capsys.readouterr().out


def _missing(_self: object, _configured: str | None) -> Path:
    raise SoakError("it is not here")


def test_a_part_is_printed_and_not_written(here, monkeypatch, report, tmp_path, capsys):
    """Unless one says so: half a table is not comparable with the rest of it."""
    monkeypatch.setattr(command, "run", lambda *_args: Run(0, report))
    part = [*here, "--proxies", "nginx", "--minutes", "1"]
    assert 0 == command.main(part)
    assert f"{BEGIN}\n{END}\n" == (tmp_path / "README.md").read_text()
    assert "| nginx " in capsys.readouterr().out
    assert 0 == command.main([*part, "--write"])
    assert "| nginx " in (tmp_path / "README.md").read_text()


def test_an_interrupted_matrix_is_resumed_where_it_was(here, monkeypatch, report, tmp_path, capsys):
    """What was measured is kept, unless the length is another one."""
    asked: list[str] = []

    def once(argv: list[str], *_rest: object) -> Run:
        asked.append(argv[argv.index("--proxy") + 1])
        if asked == ["nginx", "haproxy"]:
            raise KeyboardInterrupt
        return Run(0, report)

    monkeypatch.setattr(command, "run", once)
    both = [*here, "--proxies", "nginx,haproxy"]
    assert 130 == command.main(both)
    assert "| nginx " in capsys.readouterr().out
    assert 0 == command.main([*both, "--resume"])
    assert ["nginx", "haproxy", "haproxy"] == asked
    assert not (tmp_path / "kept" / "unfinished.json").exists()
    (tmp_path / "kept" / "unfinished.json").write_text(
        json.dumps({**summary(), "schema": 1, "preset": "quick"})
    )
    assert 0 == command.main([*both, "--resume", "--minutes", "3"])
    assert "beginning anew" in capsys.readouterr().err


def test_a_report_that_lacks_something_is_a_row_that_says_so(tmp_path):
    """An older soak, say."""
    entry = command.folded("nginx", Run(0, {"verdict": "pass", "load": {}}), [], (), tmp_path)
    assert ("not run", "its report lacks 'proxy_cpu'") == (entry.verdict, entry.reason)


@pytest.mark.e2e
def test_a_real_proxy_is_soaked_from_the_command_line(tmp_path, here):
    """Some seconds of nginx with a reload: the row says what was lost, the report is kept."""
    options = ["--proxies", "nginx", "--minutes", "0.3", "--rate", "50"]
    extra = ["--", "--every", "reload=4s", "--every", "backend-down=1h", "--every", "cert-rotate=1h"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.matrix", *here, *options, *extra],
        cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    assert "| nginx 1." in done.stdout
    kept = json.loads((tmp_path / "kept" / "nginx.json").read_text())
    entry = entry_of("nginx", kept, 0, [])
    assert entry.verdict in {"pass", "fail", "invalid"}
    assert entry.faults["reload"].n >= 1
    assert entry.sent > 200
    assert entry.cpu_us_per_request is not None
    assert "nginx (1 of 1): 0.3 min at 50 req/s" in done.stderr


@pytest.mark.e2e
def test_ctrl_c_heals_and_leaves_nothing(tmp_path, here):
    """The run under way is stopped gracefully; exit 130."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.matrix", *here, "--proxies", "nginx", "--minutes", "5", "--rate", "20"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "req/s | held" in line:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert 130 == process.returncode
    assert len(children) > 4
    gone, alive = psutil.wait_procs(children, timeout=30)
    assert [] == alive
    assert gone
