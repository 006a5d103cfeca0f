"""The attach lab with a real nginx and real origins that it did not start: taken over, broken, healed, given back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from certs.install import serial_of
from chaos.target import BackendState, IdentityChangedError, TargetError
from soak.errors import LabError
from soak.lab.attach import AttachLab
from soak.lab.process import living, row_of
from soak.plan import Plan
from soak.proxies._asking import ask_http
from soak.rundir import RunDir
from tests.soak.lab.client import close, connect_pipe, fetch

from .conftest import until
from .strangers import Strangers


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Strangers]:
    """A proxy with two origins; every test leaves them running."""
    theirs = Strangers(tmp_path_factory.mktemp("strangers"))
    theirs.start()
    yield theirs
    theirs.end()


@pytest.fixture
async def lab(
    run: RunDir, strangers: Strangers, events: list[tuple[str, Mapping[str, Any]]]
) -> AsyncIterator[AttachLab]:
    """An attached lab; given back whatever a test did."""
    subject = AttachLab(run, strangers.plan, on_event=lambda name, data: events.append((name, data)))
    await subject.start()
    yield subject
    assert (await subject.stop()).ok


async def status(lab: AttachLab, name: str) -> tuple[BackendState, Mapping[str, Any]]:
    seen = await lab.backend_status(name)
    return seen.state, seen.identity


async def serves(lab: AttachLab, generation: int) -> None:
    """Wait until three fresh clients in a row see it: an old worker may still accept for a moment."""
    in_a_row = 0
    async with asyncio.timeout(30):
        while in_a_row < 3:
            seen = (await fetch(lab, "/bytes/10")).headers.get("x-soak-generation")
            in_a_row = in_a_row + 1 if seen == str(generation) else 0


async def test_the_proxy_is_taken_over_and_given_back(run: RunDir, strangers: Strangers):
    """During the run it has soak's generation and certificate; afterwards every byte and the process are as before."""
    before, pid = strangers.files(), strangers.pid("proxy")
    lab = AttachLab(run, strangers.plan, on_event=lambda _name, _data: None)
    await lab.start()
    try:
        await serves(lab, 1)
        assert lab.serial() == serial_of((strangers.directory / "site.pem").read_bytes())
        assert before["site.pem"] != strangers.files()["site.pem"]
        assert lab.proxy_version.count(".") == 2
    finally:
        given_back = await lab.stop()

    assert given_back.ok
    assert before == strangers.files()
    assert pid == strangers.pid("proxy")
    await until(lambda: not list((run.lab / "originals").iterdir()))
    assert (await lab.stop()).ok


async def test_reloads_rotations_and_refusals_reach_it(lab: AttachLab):
    """The same things as in a local lab, by signal, into the directory of somebody else."""
    assert (await lab.apply_generation(2)).ok
    rotated = await lab.install_certificate(3)
    assert rotated["serial"] == lab.serial()
    refused = await lab.apply_broken_config()
    assert refused.ok
    assert (await lab.apply_generation(4)).ok
    assert 4 == lab.generation()
    await serves(lab, 4)


@pytest.mark.parametrize("force", [False, True], ids=["down", "kill"])
async def test_a_backend_that_was_stopped_is_started_by_the_plans_command(
    lab: AttachLab, strangers: Strangers, force: bool
):
    """At its old address, as a process of its own that is not the run's and that stays."""
    _, identity = await status(lab, "b1")
    await lab.backend_stop("b1", identity, force=force)
    assert (BackendState.STOPPED, {}) == await status(lab, "b1")

    started = await lab.backend_start("b1")

    assert (BackendState.RUNNING, started) == await status(lab, "b1")
    assert started["pid"] == strangers.pid("b1") != identity["pid"]
    assert started == await lab.backend_start("b1")


async def test_a_suspended_backend_is_hung_until_it_is_resumed(lab: AttachLab):
    """By SIGSTOP and SIGCONT to the very process."""
    _, identity = await status(lab, "b2")
    await lab.backend_pause("b2", identity)
    assert BackendState.HUNG is (await status(lab, "b2"))[0]

    await lab.backend_resume("b2", identity)
    await lab.backend_resume("b2", identity)

    assert (BackendState.RUNNING, identity) == await status(lab, "b2")


async def test_a_backend_that_somebody_replaced_is_not_touched(lab: AttachLab):
    """The identity that was prepared is gone; the new one runs on, and resuming it is success as it is."""
    _, identity = await status(lab, "b1")
    os.kill(identity["pid"], signal.SIGTERM)
    await until(lambda: living(identity) is None)
    now = await lab.backend_start("b1")

    for touch in (lab.backend_pause("b1", identity), lab.backend_stop("b1", identity, force=True)):
        with pytest.raises(IdentityChangedError, match=r"b1 is no longer .* it was not touched"):
            await touch
    await lab.backend_resume("b1", identity)

    assert (BackendState.RUNNING, now) == await status(lab, "b1")


async def test_a_backend_that_does_not_come_back_is_said(run: RunDir, strangers: Strangers):
    """The command of the plan is wrong: its name, the address and the reason."""
    section = strangers.lab | {"start_timeout": 0.5}
    backends = [one | {"start": ["/no/such/origin"]} for one in section["attach"]["backends"]]
    plan = Plan.model_validate({"lab": section | {"attach": section["attach"] | {"backends": backends}}})
    lab = AttachLab(run, plan, on_event=lambda _name, _data: None)
    await lab.start()
    _, identity = await status(lab, "b1")
    await lab.backend_stop("b1", identity, force=False)
    try:
        with pytest.raises(TargetError, match="b1 could not be started again with '/no/such/origin'"):
            await lab.backend_start("b1")
    finally:
        await lab.stop()
        assert strangers.plan.lab.attach is not None
        strangers.spawn(strangers.plan.lab.attach.backends[0].start)
        await until(lambda: row_of(strangers.pid("b1")) is not None)


async def test_what_the_origins_counted_is_counted_from_the_start_of_the_run(lab: AttachLab):
    """Their shared table lives on from run to run."""
    assert 0 == (await lab.origin_stats("b1"))["requests"]
    await asyncio.gather(*(fetch(lab, "/single/bytes/10") for _ in range(3)))
    counted = await lab.origin_stats("b1")
    assert 3 == counted["requests"]
    assert 0 == counted["cache"]["plain"]["full"]
    with pytest.raises(TargetError, match="there is no backend 'b7'"):
        await lab.origin_stats("b7")


async def test_without_a_shared_file_the_origins_counters_are_said_to_be_missing(
    run: RunDir, strangers: Strangers
):
    """With what to set."""
    section = strangers.lab | {"attach": strangers.lab["attach"] | {"shared": None}}
    lab = AttachLab(run, Plan.model_validate({"lab": section}), on_event=lambda _name, _data: None)
    with pytest.raises(TargetError, match=r"set lab\.attach\.shared"):
        await lab.origin_stats("b1")


async def test_vitals_show_the_proxy_with_its_workers_and_each_origin(lab: AttachLab):
    """From the process table: nobody told soak who they are but the pid files."""
    looks = {vital.subject: vital for vital in await lab.vitals(7.0)}
    assert {"proxy", "b1", "b2"} == set(looks)
    assert looks["proxy"].processes >= 3
    assert looks["proxy"].rss_bytes > 1_000_000
    assert looks["b1"].processes == 1
    assert {7.0} == {vital.at_s for vital in looks.values()}


async def test_a_proxy_that_was_restarted_is_an_event_and_gets_no_reload(
    run: RunDir, strangers: Strangers, events: list[tuple[str, Mapping[str, Any]]]
):
    """Its files go back all the same; the new one is not touched."""
    before = strangers.files()
    lab = AttachLab(run, strangers.plan, on_event=lambda name, data: events.append((name, data)))
    await lab.start()
    identity = await lab.proxy_identity()
    os.kill(identity["pid"], signal.SIGTERM)
    await until(lambda: living(identity) is None)
    strangers.restart_proxy()

    with pytest.raises(IdentityChangedError, match="the proxy is no longer"):
        await lab.proxy_identity()
    reloaded = await lab.apply_generation(2)
    await until(lambda: any(name == "proxy.died" for name, _ in events))
    given_back = await lab.stop()

    assert (False, True) == (reloaded.ok, given_back.ok)
    assert "was not asked to read them" in given_back.reason
    assert before == strangers.files()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            ("proxy", "pid_file", "/no/such.pid"),
            "proxy does not run: the pid file /no/such.pid names no living process",
        ),
        (("backends", "port", 9), "nothing answers as b1 on 127.0.0.1:9"),
        (("proxy", "directory", "nowhere"), "lab.attach.proxy.directory .*/nowhere does not exist"),
        (
            ("proxy", "directory", "elsewhere"),
            "nginx does not serve soak's configuration: it is not ready after 0.3 s",
        ),
        (("attach", "shared", "/no/such.shared"), "the origins' shared file /no/such.shared cannot be used"),
    ],
)
async def test_what_is_not_there_is_named_and_nothing_is_changed(
    run: RunDir, strangers: Strangers, change: tuple[str, str, Any], says: str
):
    """One sentence, and the proxy has its own files."""
    before, text = strangers.files(), says.replace(".", r"\.").replace(r"\.*", ".*")
    part, key, value = change
    attach = dict(strangers.lab["attach"])
    if part == "attach":
        attach[key] = value
    elif part == "proxy":
        if key == "directory":
            (run.path / "elsewhere").mkdir()
            value = str(run.path / value)
        attach["proxy"] = attach["proxy"] | {key: value}
    else:
        attach["backends"] = [attach["backends"][0] | {key: value}, attach["backends"][1]]
    plan = Plan.model_validate({"lab": {"kind": "attach", "start_timeout": 0.3, "attach": attach}})
    lab = AttachLab(run, plan, on_event=lambda _name, _data: None)

    with pytest.raises(LabError, match=text):
        await lab.start()

    assert before == strangers.files()


async def answered_by(lab: AttachLab, origins: set[str]) -> None:
    """Wait until each of them was reached through the pipe: a proxy may take a moment to believe that one is back."""
    async with asyncio.timeout(30):
        while origins:
            origins = origins - {(await fetch(lab, "/bytes/10", pipe=True)).headers["x-soak-origin"]}


@pytest.mark.parametrize("kind", ["nginx", "haproxy", "envoy", "traefik"])
async def test_a_byte_pipe_leads_to_the_origins_own_tls(run: RunDir, tmp_path: Path, kind: str):
    """Rendered first and in the run; its certificate is trusted, survives a rotation and an origin that was started again."""
    theirs = Strangers(tmp_path, kind=kind, pipe=True)
    lab = AttachLab(run, theirs.plan, on_event=lambda _name, _data: None)
    own = (theirs.directory / "origin.pem").read_bytes
    theirs.start()
    before = own()
    try:
        await lab.start()
        await answered_by(lab, {"b1", "b2"})
        rotated = await lab.install_certificate(2)
        _, writer = await connect_pipe(lab)
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert serial_of(before) == serial_of(shown) != rotated["serial"]
        await close(writer)
        _, identity = await status(lab, "b1")
        await lab.backend_stop("b1", identity, force=False)
        await lab.backend_start("b1")
        theirs.render()
        assert before == own()
        await answered_by(lab, {"b1"})
        assert (await lab.stop()).ok
    finally:
        await lab.stop()
        theirs.end()


async def test_what_only_a_start_reads_is_refused_when_the_plan_has_changed_since(
    run: RunDir, tmp_path: Path
):
    """A backend that Envoy's bootstrap does not know would get nothing, without a word; nothing was changed."""
    theirs = Strangers(tmp_path, kind="envoy")
    theirs.start()
    bootstrap, routes = theirs.directory / "envoy.json", theirs.directory / "routes.yaml"
    before = routes.read_bytes()
    attach = theirs.lab["attach"]
    one = theirs.lab | {"attach": attach | {"backends": attach["backends"][:1]}}
    plan = Plan.model_validate({"lab": one, "proxy": {"kind": "envoy"}})
    lab = AttachLab(run, plan, on_event=lambda _name, _data: None)
    try:
        with pytest.raises(
            LabError,
            match=f"envoy reads envoy.json only when it starts, and {bootstrap} is not what this plan renders",
        ):
            await lab.start()
        assert before == routes.read_bytes()
    finally:
        theirs.end()


async def test_envoys_listeners_stay_as_they_were_rendered_until_a_full_reload(run: RunDir, tmp_path: Path):
    """Neither the takeover nor a routing reload replaces one: their connections are those of before."""
    theirs = Strangers(tmp_path, backends=1, kind="envoy")
    lab = AttachLab(run, theirs.plan, on_event=lambda _name, _data: None)
    modified = "listener_manager.listener_modified"

    async def replaced() -> int:
        text = (await ask_http(theirs.directory / "admin.sock", "GET", f"/stats?filter={modified}"))[1]
        return int(text.rpartition(" ")[2])

    theirs.start()
    try:
        await lab.start()
        await serves(lab, 1)
        routing = await lab.apply_generation(2)
        await serves(lab, 2)
        assert (True, "routing", 0) == (routing.ok, routing.detail["kind"], await replaced())
        assert (await lab.apply_generation(3, kind="full")).ok
        assert await replaced() == 2
        assert (await lab.stop()).ok
    finally:
        await lab.stop()
        theirs.end()


def test_where_an_attached_proxy_counts_for_itself_is_told(run: RunDir, strangers: Strangers):
    """For the status and the report; without a port for it there is no such place."""
    attach = strangers.lab["attach"]
    proxy = attach["proxy"] | {"ports": {"metrics": 9113}}
    plan = Plan.model_validate({"lab": strangers.lab | {"attach": attach | {"proxy": proxy}}})
    urls = [
        AttachLab(run, one, on_event=lambda _name, _data: None).proxy_address.metrics_url
        for one in (plan, strangers.plan)
    ]
    assert ["http://127.0.0.1:9113/status", ""] == urls


def test_a_lab_that_is_not_started_says_so(run: RunDir, strangers: Strangers):
    """No door leads anywhere yet; its addresses are known from the plan."""
    lab = AttachLab(run, strangers.plan, on_event=lambda _name, _data: None)
    assert ["b1", "b2"] == list(lab.backend_names())
    assert lab.supports("backend_stop")
    assert lab.supports("reload")
    assert not lab.supports("no-such-thing")
    with pytest.raises(LabError, match="not started"):
        _ = lab.ca_file
