"""HTTP/2 against the real nginx: what a reload, a limit and a killed worker do to requests, and nothing that is our own fault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import monotonic_ns
from typing import Any

import psutil
import pytest

from soak.lab.local import LocalLab
from soak.lab.sweep import processes_of, release
from soak.load.engine import Engine
from soak.model import Outcome, SightKind
from soak.plan import Plan
from soak.rundir import RunDir
from tests.soak.load.rig import Result, drive, run, slice_of, spec

O = Outcome  # noqa: E741 -- short names keep the sets readable
During = Callable[[LocalLab], Callable[[Engine], Coroutine[Any, Any, None]]]


def against_nginx(
    home: Path, *, seconds: float, during: During | None = None, extra: str = "", **shape: Any
) -> Result:
    """Run a slice of the h2 shape against a lab of its own; leave nothing behind."""

    async def main() -> Result:
        directory = RunDir(home)
        directory.lab.mkdir()
        plan = Plan.model_validate({"lab": {"backends": 2, "start_timeout": 20}, "proxy": {"extra": extra}})
        lab = LocalLab(directory, plan, on_event=lambda *_: None)
        await lab.start()
        try:
            address = lab.proxy_address
            one = spec(
                address.https_port,
                **{
                    "host": address.host,
                    "authority": lab.server_name,
                    "server_name": lab.server_name,
                    "tls": True,
                    "protocol": "h2",
                    "path": "/bytes/1024",
                    "response_bytes": 1024,
                    **shape,
                },
            )
            load = slice_of(one, seconds=seconds, ca_file=str(lab.ca_file), response_timeout_s=5.0)
            return (await drive(load, during(lab) if during else None)).check()
        finally:
            await lab.stop()
            await release(directory)
            assert [] == processes_of(directory)

    return run(main())


def seen(result: Result, kind: SightKind) -> set[str]:
    return {s.value for r in result.reports for s in r.sightings if s.kind is kind}


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {
            "method": "POST",
            "path": "/echo",
            "request_bytes": 4096,
            "response_bytes": 4096,
            "idempotent": False,
        },
        {"path": "/bytes/1048576", "response_bytes": 1 << 20, "rate": 20},
        {"method": "POST", "path": "/echo", "request_bytes": 300_000, "response_bytes": 300_000, "rate": 20},
    ],
    ids=["1 KiB", "POST 4 KiB", "1 MiB", "POST 300 KB"],
)
def test_every_answer_is_right(tmp_path: Path, shape: dict[str, Any]) -> None:
    """Id, length and checksum; origins, generation and certificate are seen; far fewer connections than requests."""
    result = against_nginx(tmp_path, seconds=1.0, **{"rate": 150, **shape})
    assert {O.OK: result.total("scheduled")} == result.outcomes
    assert {"b1", "b2"} == seen(result, SightKind.ORIGIN)
    assert {"1"} == seen(result, SightKind.GENERATION)
    assert 1 == len(seen(result, SightKind.SERIAL))
    assert 1 <= result.connections("opened") <= 16


@pytest.mark.parametrize("shape", [{}, {"path": "/delay/100/bytes/1024"}], ids=["quick", "slow"])
def test_a_reload_loses_only_what_crossed_its_goaway(tmp_path: Path, shape: dict[str, Any]) -> None:
    """nginx names the last stream that it took: requests up to it finish, later ones are h2_goaway; new connections follow."""
    seconds, newest = 4.0, 1

    def reloads(lab: LocalLab) -> Callable[[Engine], Coroutine[Any, Any, None]]:
        async def during(_: Engine) -> None:
            nonlocal newest
            end_ns = monotonic_ns() + int(seconds * 1e9)
            while newest < 5:
                await asyncio.sleep(0.5)
                if monotonic_ns() > end_ns - 1e9:
                    break  # a machine that is this slow has no load left for another one
                assert (await lab.apply_generation(newest + 1)).ok
                newest += (
                    monotonic_ns() < end_ns - 5e8
                )  # else the load may have ended before it was in effect

        return during

    result = against_nginx(tmp_path, seconds=seconds, during=reloads, rate=150, **shape)
    assert {O.OK, O.H2_GOAWAY} >= set(result.outcomes)
    assert result.outcomes[O.OK] >= 0.95 * result.total("sent")
    assert newest >= 2
    assert {"1", str(newest)} <= seen(result, SightKind.GENERATION)
    assert result.connections("opened") >= newest
    assert 0 == result.connections("closed_by_us")
    assert all("GOAWAY NO_ERROR, last stream" in e.error for e in result.evidence)


def test_a_connections_last_request_is_no_failure(tmp_path: Path) -> None:
    """``keepalive_requests``: nginx sends GOAWAY after 20 of them; the answers before it count."""
    result = against_nginx(tmp_path, seconds=1.5, rate=150, extra="keepalive_requests 20;")
    assert {O.OK, O.H2_GOAWAY} >= set(result.outcomes)
    assert result.outcomes[O.OK] >= 0.9 * result.total("sent")
    assert result.connections("opened") >= 10
    assert 0 == result.connections("closed_by_us")


def test_the_proxys_limit_of_streams_is_obeyed(tmp_path: Path) -> None:
    """Two streams of sixteen: never refused; more connections carry the load."""
    result = against_nginx(
        tmp_path, seconds=1.5, rate=100, path="/delay/100/bytes/1024", extra="http2_max_concurrent_streams 2;"
    )
    assert {O.OK} == set(result.outcomes)
    assert 5 <= result.connections("opened") <= 16


def test_a_killed_worker_cuts_what_it_carried_and_no_more(tmp_path: Path) -> None:
    """Each of its requests has one end that says so; the next connection meets another worker."""

    def kills(lab: LocalLab) -> Callable[[Engine], Coroutine[Any, Any, None]]:
        async def during(_: Engine) -> None:
            await asyncio.sleep(0.6)
            master = psutil.Process((await lab.proxy_identity())["pid"])
            while not (
                workers := [c for c in master.children() if "worker process" in " ".join(c.cmdline())]
            ):
                await asyncio.sleep(0.01)
            for worker in workers:
                worker.kill()

        return during

    result = against_nginx(tmp_path, seconds=2.0, during=kills, rate=150, path="/delay/50/bytes/1024")
    lost = set(result.outcomes) - {O.OK}
    assert lost
    assert {
        O.CUT_BEFORE_RESPONSE,
        O.CUT_MID_RESPONSE,
        O.STALE_REUSE,
        O.CONNECT_RESET,
        O.TLS_HANDSHAKE,
    } >= lost
    assert result.outcomes[O.OK] >= 0.8 * result.total("sent")
    assert result.connections("closed_by_peer") >= 1
