"""``soak load``: a real server, and how the result is shown and judged."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from soak.cli.load import Progress, exit_code, histogram, render_load
from soak.measure.ledger import Ledger
from soak.shapes import SHAPES, SUMMARIES
from tests.soak.synthetic import report, window


def result(**load: object) -> dict[str, Any]:
    """A result of a clean run of 1,000 requests; ``load`` replaces counts."""
    ms = {"p50": 0.5, "p99": 2.0, "p999": 3.0, "max": 4.0}
    return {
        "url": "http://127.0.0.1:1/",
        "rate": 100.0,
        "seconds": 10.0,
        "traffic": {},
        "waited_s": 0.002,
        "origins": {},
        "duplicates": 0,
        "load": {
            "scheduled": 1000,
            "sent": 1000,
            "dropped": 0,
            "missed": 0,
            "ok": 1000,
            "failed": 0,
            "in_flight": 0,
            "outcomes": {"ok": 1000},
            "classes": {},
            "examples": [],
            "latency_ms": ms,
            "service_ms": ms,
            "lag_ms": ms,
            "handshake_ms": {"p50": 7.0, "p99": 8.0, "p999": 9.0, "max": 10.0, "count": 3},
            "histogram": [[0.25, 10], [0.5, 985], [4.0, 5]],
            **load,
        },
        "connections": {
            "opened": 3,
            "reused": 997,
            "closed_by_peer": 0,
            "closed_by_us": 3,
            "tls_full": 2,
            "tls_resumed": 1,
        },
        "self": {"cpu_s": 0.05, "rss_bytes": 50 * 1024 * 1024, "cpu_us_per_request": 50.0},
        "violations": [],
        "workers_died": [],
    }


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (result(), 0),
        (result(missed=1), 0),
        (result(failed=1), 1),
        (result() | {"duplicates": 1}, 1),
        (result(dropped=2), 3),
        (result(scheduled=0), 3),
        (result() | {"violations": ["1 != 2"]}, 3),
        (result() | {"workers_died": [{"worker": 0}]}, 3),
    ],
)
def test_the_exit_code_says_what_the_result_is_worth(found, code):
    """Held and all answered, some failed, or not held."""
    assert code == exit_code(found)


def test_the_result_reads_from_top_to_bottom():
    """Rate, outcomes, latency apart from service and lag, connections, cost, picture."""
    text = render_load(result(dropped=2, failed=3, outcomes={"ok": 995, "status_5xx": 3}))
    for words in (
        "100 req/s for 10 s",
        "1,000 of 1,000 sent · 2 dropped · 0 missed",
        "handshake    p50 7.00 ms",
        "TLS 2 full, 1 resumed",
        "995 ok, 3 status_5xx",
        "latency      p50 0.50 ms · p99 2.00 ms · p99.9 3.00 ms · max 4.00 ms",
        "3 opened · 997 requests on kept ones",
        "50 us of CPU per request · 50 MiB",
        "     0.500         985  " + "█" * 40,
    ):
        assert words in text


def test_what_broke_is_shown():
    """A result that cannot be trusted says so."""
    text = render_load(result(outcomes={}) | {"violations": ["sent is 5"], "workers_died": [{"worker": 0}]})
    assert "  broken       sent is 5" in text
    assert "  broken       {'worker': 0}" in text
    assert "  outcomes     none" in text


def test_what_only_some_results_have_is_shown_when_it_is_there():
    """Shapes, backends, the wait, what was not waited for, duplicates, an example of each failure, a row for each class."""
    plain = result()
    assert "backends" not in render_load(plain)
    assert "waited" not in render_load(plain)
    each = {
        "sent": 500,
        "failed": 3,
        "outcomes": {"ok": 497, "status_5xx": 3},
        "latency_ms": plain["load"]["latency_ms"],
    }
    more = result(
        in_flight=7,
        classes={"h2": each, "post": each},
        examples=[{"traffic": "h2", "outcome": "status_5xx", "error": "status 502"}],
    ) | {
        "traffic": {"h2": 0.5, "post": 0.5},
        "waited_s": 21.04,
        "origins": {"b1": {"answers": 10, "share": 0.25}, "b2": {"answers": 30, "share": 0.75}},
        "duplicates": 2,
    }
    text = render_load(more)
    for words in (
        "100 req/s for 10 s · h2 0.5, post 0.5",
        "  backends     b1 25.0% · b2 75.0%",
        "  waited       21.0 s after the last slot",
        "  in flight    7, not waited for",
        "  duplicates   2 requests",
        "  failed       h2 status_5xx: status 502",
        "  class  sent           failed      p50     p99   p99.9     max",
        "  h2      500  3: 3 status_5xx  0.50 ms  2.0 ms  3.0 ms  4.0 ms",
    ):
        assert words in text


def test_the_shapes_are_listed(soak):
    """Without a URL, and in the help; a shape's line says which scheme it needs."""
    found = soak("load", "--traffic", "list")
    assert 0 == found.exit_code
    lines = found.stdout.splitlines()
    assert 1 + len(SHAPES) == len(lines)
    assert any(line.startswith("h2 ") and "https" in line and SUMMARIES["h2"] in line for line in lines)
    told = soak("load", "--help").stdout
    assert all(f"  {name} " in told for name in SHAPES)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("http://h", "--traffic", "h3"), "there is no traffic shape 'h3'"),
        (("http://h", "--traffic", "h2"), "needs the proxy's https:// URL, but 'http://h' is plain"),
        (("http://h/x", "--traffic", "churn"), "leave the path out"),
        (("http://h", "https://h", "tls://h", "http://g", "--traffic", "churn"), "4 URLs were given"),
        (("http://h", "--traffic", "churn=2"), "'2' is no share"),
    ],
)
def test_an_order_that_makes_no_sense_is_one_sentence(soak, words, says):
    """Exit 2, before anything is sent."""
    found = soak("load", *words, "--rate", "1", "--seconds", "1")
    assert 2 == found.exit_code
    assert says in found.stderr
    assert 1 == len(found.stderr.splitlines())


def test_a_picture_of_nothing_is_nothing():
    """And the smallest bar is still seen."""
    assert [] == histogram([])
    assert histogram([[1.0, 1000], [2.0, 1]])[-1].endswith("█")
    assert histogram([[1.0, 1000], [2.0, 0]])[-1].endswith("0  ")


def test_the_wait_after_the_last_slot_is_shown(capsys):
    """On a terminal, with how many are waited for."""
    ledger = Ledger()
    ledger.add(report(2, window(2, sent=0, scheduled=0, outcomes={}, in_flight=12)))
    Progress(2.0, terminal=True).second(ledger)
    assert "2 of 2 s" in (told := capsys.readouterr().err)
    assert told.endswith(" · waiting for the end of 12")


def test_progress_is_for_terminals(capsys):
    """A pipe gets none; the line is cleared at the end."""
    silent, loud = Progress(2.0, terminal=False), Progress(2.0, terminal=True)
    for progress in (silent, loud):
        progress.second(Ledger())
        progress.close()
    assert "\r\x1b[K0 of 2 s · 0 sent · 0 dropped · 0 missed\r\x1b[K" == capsys.readouterr().err


@pytest.fixture
def server():
    """A plain HTTP/1.1 server on loopback; /bad answers 503."""

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.send_response(503 if self.path == "/bad" else 200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def handle_one_request(self):
            with contextlib.suppress(ConnectionError):
                super().handle_one_request()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


@pytest.mark.e2e
def test_a_real_server_is_loaded_as_ordered(soak, server):
    """Every slot is accounted for; the answer is JSON."""
    found = soak("load", f"{server}/", "--rate", "50", "--seconds", "2", "--connections", "20", "--json")
    load = json.loads(found.stdout)["load"]
    assert 100 == load["scheduled"] == load["sent"] + load["dropped"] + load["missed"]
    assert load["sent"] == load["ok"] + load["failed"] + load["in_flight"]


@pytest.mark.e2e
def test_a_server_that_fails_is_a_failure(soak, server):
    """503 is no success."""
    found = soak("load", f"{server}/bad", "--rate", "20", "--seconds", "1", "--new-connections")
    assert 1 == found.exit_code
    assert "status_5xx" in found.stdout
