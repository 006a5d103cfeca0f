"""The facts of Varnish and hitch, asked of the real binaries; what every proxy must do is in test_conformance.py."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import resource
import shutil
import signal
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from certs.authority import Pair
from certs.install import serial_of
from chaos.target import TargetError
from soak.errors import LabError
from soak.lab.local import LocalLab
from soak.load.traffic import cache_body
from soak.model import WorkerEnd
from soak.proxies.base import ProcessRole, ProxyModel, SeenProcess
from soak.proxies.varnish import ADAPTER
from soak.rundir import RunDir
from tests.soak.lab.client import Socket, fetch

from .conftest import StartLab, binary_of, model_of


@pytest.fixture
def model(tmp_path) -> ProxyModel:
    """A model in a directory whose name needs quoting."""
    return model_of(ADAPTER, tmp_path)


def varnishd() -> Path:
    """Return the real one, or skip."""
    return binary_of(ADAPTER)


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_hitch_takes_what_is_rendered_and_refuses_a_pair_that_is_none(model):
    """In a directory with quotes, which its own file could not name; the check is the one that comes before a reload."""
    files = ADAPTER.render(model)
    (model.directory / "hitch.conf").write_text(files["hitch.conf"])

    def done(model: ProxyModel) -> subprocess.CompletedProcess[str]:
        (hitch,) = ADAPTER.companions(varnishd(), model)
        return subprocess.run(
            hitch.check, capture_output=True, text=True, timeout=30, check=False, cwd=model.directory.parent
        )

    good = done(model)
    assert 0 == good.returncode, good.stderr
    bad = done(replace(model, bundle=model.key))
    assert 0 != bad.returncode
    (hitch,) = ADAPTER.companions(varnishd(), model)
    assert hitch.refusals(bad.stderr)


def test_hitch_is_found_beside_or_on_the_path(tmp_path, monkeypatch):
    """Beside the configured varnishd first; without it nothing is started, and the fix is named."""
    beside = executable(tmp_path / "sbin" / "varnishd")
    monkeypatch.setenv("PATH", str(tmp_path))
    real_which = shutil.which
    monkeypatch.setattr(
        "soak.proxies.varnish.shutil.which",
        lambda name: None if str(name).startswith("/usr/sbin") else real_which(name),
    )
    with pytest.raises(LabError, match=r"no hitch, .*; install it with 'apt install varnish hitch'"):
        ADAPTER.find_binary(str(beside))
    elsewhere = executable(tmp_path / "hitch")
    assert beside == ADAPTER.find_binary(str(beside))
    model = ProxyModel(1, "127.0.0.1", 1, 2, "soak.test", tmp_path, tmp_path, [], 2, tmp_path)
    assert str(elsewhere) in ADAPTER.companions(beside, model)[0].command
    nearer = executable(tmp_path / "sbin" / "hitch")
    assert str(nearer) in ADAPTER.companions(beside, model)[0].command


def test_one_that_is_too_old_is_refused(tmp_path):
    """What soak says to the compiler came with 7.0."""
    old = executable(tmp_path / "varnishd", "#!/bin/sh\necho 'varnishd (varnish-6.6.1 revision e6a8)' >&2\n")

    with pytest.raises(LabError, match=r"is Varnish 6\.6\.1; soak needs 7\.0 or newer"):
        ADAPTER.version(old)


@pytest.mark.parametrize(("expected", "hard"), [(20_000, resource.RLIM_INFINITY), (4096, 4096)])
def test_open_files_are_as_many_as_are_allowed(model, monkeypatch, expected, hard):
    """Neither raises its soft limit itself."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, hard))

    assert f"ulimit -n {expected}\n" in ADAPTER.render(model)["varnishd.sh"]
    assert f"ulimit -n {expected};" in ADAPTER.companions(varnishd(), model)[0].command[2]


def test_workers_of_hitch_are_dropped_to_nobody_only_by_root(model, monkeypatch):
    """It refuses to run them as root, and cannot change anybody else."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert 'user = "nobody"\n' in ADAPTER.render(model)["hitch.conf"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "user =" not in ADAPTER.render(model)["hitch.conf"]


def test_the_compiler_is_spared_only_where_there_are_many_routes(model):
    """A plain configuration is compiled as Debian compiles it."""
    assert "cc_command" not in ADAPTER.render(model)["varnishd.sh"]
    assert "'cc_command=%D -O0 -g0'" in ADAPTER.render(replace(model, routes=1000))["varnishd.sh"]


def test_in_an_image_hitch_is_where_its_own_path_says(model):
    """It is another image's, so nothing is looked for on this host, and the command line of varnishd listens where the host reaches it."""
    (hitch,) = ADAPTER.companions(Path("varnishd"), replace(model, listen_host="0.0.0.0"))
    assert "hitch" in hitch.command
    assert "hitch" == hitch.check[0]
    assert hitch.name in ADAPTER.container.companions
    launcher = ADAPTER.render(replace(model, listen_host="0.0.0.0"))["varnishd.sh"]
    assert f"-T 0.0.0.0:{model.ports['cli']}" in launcher


def test_roles_are_told_by_kinship_and_by_age():
    """One master, the cache, the youngest workers of hitch; whoever is older is left over."""
    daemon = ["/usr/sbin/varnishd", "-F", "-j", "none"]
    hitch = ["/usr/sbin/hitch", "--config=proxy/hitch.conf", "--workers=2", "/x/site.pem"]
    processes = [
        SeenProcess(10, 1, daemon, 1.0),
        SeenProcess(11, 10, daemon, 1.1),
        SeenProcess(12, 10, ["cc1", "-quiet"], 9.0),
        SeenProcess(20, 1, hitch, 2.0),
        SeenProcess(30, 20, hitch, 2.1),
        SeenProcess(31, 20, hitch, 2.1),
        SeenProcess(28, 20, hitch, 8.0),  # pids came round
        SeenProcess(29, 20, hitch, 8.0),
        SeenProcess(40, 1, [], 3.0),
    ]

    assert {
        10: ProcessRole.MASTER,
        11: ProcessRole.WORKER,
        30: ProcessRole.OLD_WORKER,
        31: ProcessRole.OLD_WORKER,
        28: ProcessRole.WORKER,
        29: ProcessRole.WORKER,
    } == ADAPTER.roles(processes)
    assert ProcessRole.WORKER is ADAPTER.role(" ".join(daemon))
    assert ProcessRole.OTHER is ADAPTER.role("cc1 -quiet")


@pytest.mark.parametrize(("number", "crashed"), [(6, True), (11, True), (9, None), (15, None)])
def test_how_the_child_ended_is_read_in_varnishds_words(number, crashed):
    """A panic is an abort; whoever kills is not known."""
    log = f"Child launched OK\nInfo: Child (7) said Child starts\nError: Child (7) died signal={number}\n"
    assert {7: WorkerEnd(f"died signal={number}", crashed)} == ADAPTER.worker_ends(log)
    assert {} == ADAPTER.worker_ends("Debug: Child (7) Started\n")


def test_signals_and_capabilities_are_those_of_the_manuals():
    """What is declared is what is rendered; varnishstat is a program and no endpoint, so there are no metrics."""
    assert {"reload", "cert_rotate", "marker", "h2", "websocket"} == set(ADAPTER.capabilities)
    assert (["routing", "full"], signal.SIGTERM) == (list(ADAPTER.reload_kinds), ADAPTER.stop_signal())
    assert ADAPTER.acceptances("Info: Child (8) said Child starts") is None
    assert () == tuple(ADAPTER.refusals("Debug: Child (8) Started\n"))


async def origins_say(lab: LocalLab, *path: str) -> int:
    total = 0
    for name in lab.backend_names():
        value = await lab.origin_stats(name)
        for key in path:
            value = value[key]
        total += int(value)  # type: ignore[call-overload] # a number stands at the end of each path
    return total


async def test_the_cache_obeys_what_it_is_told(started: StartLab):
    """Life, variants, revalidation, what may not be kept, and one fill for those who come together; all counted at the origins."""
    varnishd()
    lab = await started("varnish")
    for i in range(5):
        got = await fetch(lab, "/cache/k1/bytes/1000?ttl=60", tls=bool(i % 2), X_Soak_Id=f"{i}")
        assert (200, cache_body("k1", "", 1000)) == (got.status, got.body)
    assert 1 == await origins_say(lab, "cache", "plain", "full")
    for variant in ("a", "b", "a", "b"):
        got = await fetch(lab, "/cache/k/bytes/300?vary", X_Soak_Variant=variant)
        assert cache_body("k", variant, 300) == got.body
    assert 2 == await origins_say(lab, "cache", "vary", "full")
    await fetch(lab, "/cache/e/bytes/500?etag&ttl=1")
    await fetch(lab, "/cache/k2/bytes/1000?ttl=1")
    await asyncio.gather(*(fetch(lab, "/cache/n/bytes/300?no-store") for _ in range(10)))
    assert 10 == await origins_say(lab, "cache", "no-store", "full")
    together = await asyncio.gather(*(fetch(lab, "/cache/t/bytes/300?ttl=60") for _ in range(20)))
    assert {cache_body("t", "", 300)} == {one.body for one in together}
    assert 3 == await origins_say(lab, "cache", "plain", "full")
    await asyncio.sleep(1.1)  # they expire
    again = await fetch(lab, "/cache/e/bytes/500?etag&ttl=1")
    assert (200, cache_body("e", "", 500)) == (again.status, again.body)
    etag = (
        await origins_say(lab, "cache", "etag", "full"),
        await origins_say(lab, "cache", "etag", "not_modified"),
    )
    assert (1, 1) == etag
    await fetch(lab, "/cache/k2/bytes/1000?ttl=1")
    assert 4 == await origins_say(lab, "cache", "plain", "full")
    assert (await lab.apply_generation(2)).ok
    kept = await fetch(lab, "/cache/t/bytes/300?ttl=60")
    assert ("HIT", "2") == (kept.cache, kept.headers["x-soak-generation"])


async def test_a_post_is_sent_on_only_by_who_refused_it(started: StartLab):
    """A dead backend refuses to connect, so the next gets the POST; a hanging one may have read it, so nobody else does."""
    varnishd()
    lab = await started("varnish", backends=2)
    await lab.backend_stop("b1", (await lab.backend_status("b1")).identity, force=True)
    for i in range(8):
        got = await fetch(lab, "/echo", method="POST", body=b"x" * 4096, X_Soak_Id=f"p{i}")
        assert (200, "b2", b"x" * 4096) == (got.status, got.headers["x-soak-origin"], got.body)
    await lab.backend_start("b1")
    async with asyncio.timeout(30):
        while "b1" not in {(await fetch(lab, "/bytes/1")).headers.get("x-soak-origin") for _ in range(4)}:
            await asyncio.sleep(0.05)
    identity = (await lab.backend_status("b1")).identity
    await lab.backend_pause("b1", identity)
    posts = (fetch(lab, "/echo", method="POST", body=b"y" * 4096, X_Soak_Id=f"h{i}") for i in range(6))
    ended = await asyncio.gather(*posts)
    await lab.backend_resume("b1", identity)

    assert {200: 3, 503: 3} == Counter(one.status for one in ended)
    assert {"1"} == {one.headers["x-soak-generation"] for one in ended}
    assert 0 == await origins_say(lab, "duplicates")


async def test_a_new_configuration_knows_who_is_down_and_old_ones_do_not_pile_up(started: StartLab):
    """Its probes look before it is used; what is not in use is discarded, and gone once no connection and no thread holds it."""
    varnishd()
    lab = await started("varnish")
    async with Socket(lab) as held:
        holder = held.answer.headers["x-soak-origin"]
        gone, *others = [name for name in lab.backend_names() if name != holder]
        await lab.backend_stop(gone, (await lab.backend_status(gone)).identity, force=True)
        for generation in range(2, 4):
            evidence = await lab.apply_generation(generation)
            assert evidence.ok, evidence.reason
            answer = evidence.detail["answer"]
            assert sorted([holder, *others]) == answer["healthy"]
            assert {"200"} == {str((await fetch(lab, "/bytes/1")).status) for _ in range(4)}
        assert (0x81, b"held") == await held.echo(1, b"held")
        assert {"soak2 active"} == {one for one in answer["loaded"] if not one.endswith(" discarded")}
        assert "boot discarded" in answer["loaded"]


async def test_hitch_reads_only_what_changed_and_its_old_workers_are_counted(started: StartLab, run: RunDir):
    """A reload of the VCL leaves them alone; a rotation and a full reload replace them; one that a connection holds is old."""
    varnishd()
    lab = await started("varnish", backends=1)

    async def old() -> int:
        return (await lab.vitals(0))[0].old_processes

    said = run.lab / "proxy-hitch.out"
    async with Socket(lab, tls=True) as held:
        assert (await lab.apply_generation(2)).ok
        assert "SIGHUP" not in said.read_text()
        done = await lab.install_certificate(3)
        assert "accepted" == done["reload"]["answer"]["hitch"]["said"]
        assert 1 == said.read_text().count("Received SIGHUP")
        async with asyncio.timeout(30):
            while 1 != await old():  # the worker without a connection ends at once
                await asyncio.sleep(0.02)
        assert (0x81, b"held") == await held.echo(1, b"held")
        assert (await lab.apply_generation(4, kind="full")).ok
        assert 2 == said.read_text().count("Received SIGHUP")
    async with asyncio.timeout(30):
        while await old():
            await asyncio.sleep(0.05)


def weak_pair() -> Pair:
    """Return a leaf that OpenSSL 3 refuses to serve: its key is too small."""
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "soak.test")])
    day = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(day)
        .not_valid_after(day + dt.timedelta(days=9000))
        .sign(key, hashes.SHA256())
    )
    pem = Encoding.PEM
    return Pair(
        signed.public_bytes(pem), key.private_bytes(pem, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    )


async def test_a_pair_that_hitch_refuses_changes_nothing(started: StartLab, run: RunDir, monkeypatch):
    """Not by its check, and not when that is blind: certificate and VCL stay, and the next good ones are taken."""
    varnishd()
    lab = await started("varnish", backends=1)
    serial, weak = lab.serial(), weak_pair()
    blind = ADAPTER.companions
    with monkeypatch.context() as patched:
        patched.setattr(lab._proxy._authority, "leaf", lambda *_: weak)
        with pytest.raises(TargetError, match=r"(?s)not taken: refused by validation: .*key too small"):
            await lab.install_certificate(2)
        patched.setattr(
            type(ADAPTER),
            "companions",
            lambda _self, binary, model: [replace(one, check=()) for one in blind(binary, model)],
        )
        with pytest.raises(TargetError, match=r"not taken: .*Config reload failed"):
            await lab.install_certificate(2)
    assert serial == lab.serial() == serial_of((run.certs / "site.pem").read_bytes())
    got = await fetch(lab, "/bytes/1", tls=True)
    assert (200, "1") == (got.status, got.headers["x-soak-generation"])
    assert serial != (await lab.install_certificate(2))["serial"] == lab.serial()
    assert "2" == (await fetch(lab, "/bytes/1", tls=True)).headers["x-soak-generation"]


async def test_the_death_of_hitch_is_the_death_of_the_proxy(run: RunDir, started: StartLab, monkeypatch):
    """It is told with its last words, and no reload pretends to work."""
    varnishd()
    lab = await started("varnish", backends=1)
    told: list[tuple[str, object]] = []
    monkeypatch.setattr(
        lab._proxy._companions, "_on_event", lambda name, data: told.append((name, data["name"]))
    )
    (hitch,) = lab._proxy._companions.members()
    os.kill(hitch.identity["pid"], signal.SIGKILL)
    async with asyncio.timeout(30):
        while not told:
            await asyncio.sleep(0.01)
    evidence = await lab.apply_generation(2)

    assert [("proxy.died", "proxy-hitch")] == told
    assert not evidence.ok
    assert evidence.reason.startswith("the proxy has ended: hitch: SIGKILL; it said:")
    with pytest.raises(TargetError, match="the proxy has ended: hitch: SIGKILL"):
        await lab.proxy_identity()
