"""Streaming classes: latency ends with the first byte, the body has a time of its own, a cut is told with its age."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from soak.lab.local import LocalLab
from soak.lab.sweep import release
from soak.load.engine import Engine
from soak.load.traffic import ClassSpec, classes_of, pattern
from soak.measure.facts import facts_of
from soak.measure.histogram import Histogram
from soak.model import Outcome, SightKind
from soak.plan import Plan
from soak.proxies.base import SERVER_NAME
from soak.rundir import RunDir
from tests.soak.load.rig import Behaviour, Peer, Result, Server, against, answer, drive, run, slice_of, spec

O = Outcome  # noqa: E741 -- read often
BYTES = 64
STREAM: dict[str, Any] = {
    "streaming": True,
    "body_timeout_s": 10.0,
    "connection": "new",
    "response_bytes": BYTES,
    "rate": 20,
}
SHORT = {"body_timeout_s": 0.2}
"""The slice's body timeout, which a streaming class does not have."""


def drips(*, first_s: float = 0.0, for_s: float = 1.0, until: int = BYTES, body: bytes = b"") -> Behaviour:
    """Answer in sixteen pieces over a time, from a first byte that may be late, to an end that may be early."""
    whole = body or pattern(BYTES)

    async def behave(peer: Peer) -> None:
        request_id = await peer.request()
        await asyncio.sleep(first_s)
        await peer.send(answer(request_id, b"", length=BYTES, headers=b"X-Soak-Generation: 3\r\n"))
        for at in range(0, until, BYTES // 16):
            await asyncio.sleep(for_s / 16)
            await peer.send(whole[at : at + BYTES // 16])

    return behave


def streams(behaviour: Behaviour, load: dict[str, Any] | None = None, **changes: Any) -> Result:
    shape = {**STREAM, **changes}
    return run(
        against(Server(behaviour), lambda port: slice_of(spec(port, **shape), **{**SHORT, **(load or {})}))
    )


def milliseconds(result: Result, what: str, q: float) -> float:
    """A quantile over the run."""
    whole = Histogram()
    for report in result.reports:
        for w in report.windows:
            whole.merge(getattr(w, what))
    return float(whole.quantile_ns(q)) / 1e6


def after_the_first_byte_s(result: Result) -> float:
    """What is left of all requests' times, from send to end, without what their latencies say, which begin when they are due."""
    windows = [w for r in result.reports for w in r.windows]
    return sum(w.service.sum_ns + w.lag.sum_ns - w.latency.sum_ns for w in windows) / 1e9


def test_two_seconds_of_drips_are_ok_and_their_latency_is_that_of_the_first_byte() -> None:
    """Longer than the slice's body timeout; service time is the whole download; the body is checked as usual."""
    result = streams(drips(for_s=2.0))
    assert {O.OK: 5} == result.outcomes
    assert after_the_first_byte_s(result) >= 5 * 1.8
    assert milliseconds(result, "service", 0.0) >= 1900
    assert 5 * BYTES == result.total("bytes_received")
    assert all(w.streaming for r in result.reports for w in r.windows)


def test_a_class_that_does_not_stream_still_has_the_slices_timeout() -> None:
    """The same drips are a body timeout, and the latency is the whole."""
    result = streams(drips(for_s=2.0), streaming=False, body_timeout_s=None)
    assert {O.BODY_TIMEOUT: 5} == result.outcomes
    assert milliseconds(result, "latency", 0.0) >= 190
    assert not any(w.streaming for r in result.reports for w in r.windows)


def test_each_class_has_its_own_body_timeout_also_side_by_side() -> None:
    """Two streaming classes and a plain one against the same drips."""

    async def three() -> Result:
        async with Server(drips(for_s=1.0)) as server:
            patient = spec(server.port, **STREAM)
            hasty = replace(patient, name="hasty", body_timeout_s=0.4)
            plain = replace(patient, name="plain", streaming=False, body_timeout_s=None)
            return (await drive(slice_of(patient, hasty, plain, **SHORT))).check()

    result = run(three())
    by_class: dict[str, set[Outcome]] = {}
    for report in result.reports:
        for w in report.windows:
            by_class.setdefault(w.traffic, set()).update(w.outcomes)
    assert {"c": {O.OK}, "hasty": {O.BODY_TIMEOUT}, "plain": {O.BODY_TIMEOUT}} == by_class


def test_a_slow_first_byte_is_latency_and_too_slow_a_one_a_response_timeout() -> None:
    """The time to the first byte counts from due."""
    result = streams(drips(first_s=0.3, for_s=0.2))
    assert {O.OK: 5} == result.outcomes
    assert milliseconds(result, "latency", 0.0) >= 290
    assert after_the_first_byte_s(result) >= 5 * 0.17
    result = streams(drips(first_s=2.0), {"response_timeout_s": 0.1})
    assert {O.RESPONSE_TIMEOUT: 5} == result.outcomes


def test_a_cut_in_the_middle_is_told_with_its_age() -> None:
    """cut_mid_response; how long it went well and how far it came are in the text."""
    result = streams(drips(for_s=0.8, until=BYTES // 2))
    assert {O.CUT_MID_RESPONSE: 5} == result.outcomes
    for cut in result.evidence:
        assert cut.connection_age_s is not None
        assert cut.connection_age_s >= 0.39
        assert "the peer closed the connection, " in cut.error
        assert cut.error.endswith("s and 32 bytes into the answer")
    latest = max(w.last_failure_due_s or 0 for r in result.reports for w in r.windows)
    assert latest >= 0.39 + 0.19  # the cut's instant, not that of the slot


def test_a_wrong_or_short_or_long_body_is_noticed_at_its_end() -> None:
    """By checksum and length."""
    assert {O.BODY_MISMATCH: 5} == streams(drips(for_s=0.1, body=b"y" * BYTES)).outcomes
    assert {O.BODY_MISMATCH: 5} == streams(drips(for_s=0.1), response_bytes=BYTES + 1).outcomes


def test_what_streams_sends_is_bounded_by_max_in_flight_and_counted() -> None:
    """Dropped, never queued: the books show what did not fit."""
    result = streams(drips(for_s=0.6), {"max_in_flight": 3})
    assert (3, 2) == (result.total("sent"), result.total("dropped"))


def test_a_generation_is_seen_when_the_answer_began() -> None:
    """A download that an old generation began must not make it seem that this generation still answers at its end."""
    result = streams(drips(for_s=1.2, until=BYTES // 2))  # failures, since their evidence has all instants
    seen = [s for r in result.reports for s in r.sightings if s.kind is SightKind.GENERATION]
    assert {"3"} == {s.value for s in seen}
    began = [e.first_byte_s for e in result.evidence]
    assert (5, min(began), max(began)) == (
        len(began),
        min(s.first_s for s in seen),
        max(s.last_s for s in seen),
    )
    assert all(e.done_s - e.first_byte_s >= 0.5 for e in result.evidence)


def test_recovery_does_not_see_what_is_long_by_design() -> None:
    """Not the downloads in flight, and not a first byte that came long before; failures count."""
    result = streams(drips(first_s=0.2, for_s=1.5), {"seconds": 1.0})
    flying = [r.windows[0].in_flight for r in result.reports]
    assert max(flying) >= 15
    facts = [facts_of(r.second, [r]) for r in result.reports]
    assert {0} == {f.in_flight for f in facts}
    assert {0.0} == {f.p99_s for f in facts}
    assert 20 == sum(f.done for f in facts)
    result = streams(drips(for_s=0.2, until=BYTES // 2))
    assert 5 == sum(facts_of(r.second, [r]).failed for r in result.reports)


@pytest.mark.parametrize(("steady", "carried"), [(True, 5), (False, 5)])
def test_a_download_that_a_fault_cuts_is_booked_on_the_fault(steady: bool, carried: int) -> None:
    """Whatever was going on when it began: a calm, or an earlier fault."""

    async def faults(engine: Engine) -> None:
        engine.enter_scope(1, steady=steady)
        while engine.in_flight < 5:
            await asyncio.sleep(0.005)
        engine.enter_scope(2, steady=False)

    async def go() -> Result:
        async with Server(drips(for_s=1.0, until=BYTES // 2)) as server:
            return (await drive(slice_of(spec(server.port, **STREAM), **SHORT), faults)).check()

    result = run(go())
    booked: Counter[tuple[int, Outcome]] = Counter()
    for w in (w for r in result.reports for w in r.windows):
        booked.update({(w.scope, ended): n for ended, n in w.outcomes.items()})
    assert {(2, O.CUT_MID_RESPONSE): 5} == booked
    assert carried == result.total("carried")


# -- through the real proxy --------------------------------------------------------------------------------------------


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[LocalLab]:
    """A started lab of the real nginx and two origins."""
    directory = RunDir(tmp_path / "run")
    directory.path.mkdir()
    directory.lab.mkdir()
    plan = Plan.model_validate({"lab": {"backends": 2}})
    subject = LocalLab(directory, plan, on_event=lambda *_: None)
    await subject.start()
    try:
        yield subject
    finally:
        await subject.stop()
        await release(directory)


def shaped(lab: LocalLab, rate: float, **fields: Any) -> ClassSpec:
    """The only class of a plan, as the engine gets it, at the lab's proxy."""
    plan = Plan.model_validate({"rate": rate, "traffic": {"classes": [{"share": 1, **fields}]}})
    at = lab.proxy_address
    (made,) = classes_of(
        plan, host=at.host, http_port=at.http_port, https_port=at.https_port, authority=SERVER_NAME
    )
    return made


async def test_drips_through_nginx_arrive_as_they_are_sent(lab: LocalLab) -> None:
    """Two seconds each over TLS: nothing between us and the origin keeps the first byte back."""
    made = shaped(lab, 20, shape="stream", path="/drip/2000/bytes/65536")
    load = slice_of(made, ca_file=str(lab.ca_file), **SHORT)
    result = (await drive(load)).check()
    assert {O.OK: 5} == result.outcomes
    assert milliseconds(result, "service", 0.0) >= 1900
    stood_still_s = sum(r.stats.loop_gap_s for r in result.reports)
    assert milliseconds(result, "latency", 1.0) < 1500 + 1000 * stood_still_s


@pytest.mark.e2e
async def test_long_lived_cohorts_over_a_reload_of_nginx_are_cut_when_its_old_workers_end(
    lab: LocalLab,
) -> None:
    """Ten seconds after a reload (``worker_shutdown_timeout``) each is cut once, with its age; then all is well again."""
    sockets = replace(shaped(lab, 40, shape="websocket", connections=20), name="sockets")
    downloads = replace(shaped(lab, 1, shape="stream", path="/drip/12000/bytes/65536"), name="downloads")

    async def reload(engine: Engine) -> None:
        await asyncio.sleep(3)
        assert (await lab.apply_generation(2)).ok
        engine.enter_scope(1, steady=False)

    load = slice_of(sockets, downloads, seconds=17.5, ca_file=str(lab.ca_file), evidence_per_second=100)
    result = (await drive(load, reload)).check()
    cuts = [e for e in result.evidence if e.traffic == "sockets"]
    assert {O.OK, O.CUT_MID_RESPONSE} == set(result.outcomes)
    assert 20 == len({e.connection for e in cuts})
    for cut in cuts:
        assert cut.connection_age_s is not None
        assert cut.connection_age_s >= 9.5
        assert f"cut after {cut.connection_age_s:.1f} s" in cut.error
        assert "under generation 1" in cut.error
    assert any(e.traffic == "downloads" and "into the answer" in e.error for e in result.evidence)
    last = [w for w in result.reports[-1].windows if w.traffic == "sockets"]
    assert 0 == sum(w.failed for w in last)
