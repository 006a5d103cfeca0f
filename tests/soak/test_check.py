"""The looks at a host: each is fine, a warning, or a blocker that names the value and the fix."""

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from soak import check
from soak.check import Finding, Level, preflight, refuse_blockers
from soak.errors import PlanError
from soak.plan import Plan
from soak.proxies.base import Capability
from soak.proxies.nginx import NginxAdapter
from soak.runs import create_run
from soak.web.socketpath import short_path

GIB = 1024**3


def plan(**fields) -> Plan:
    return Plan.model_validate(fields)


def test_this_host_can_carry_a_short_run(tmp_path):
    """The real looks, in a fixed order, none of them blocking."""
    findings = preflight(plan(length="1m", rate=100), home=tmp_path)
    names = ["platform", "nginx", "abilities", "open files", "ports", "disk", "memory", "processors", "clock"]
    names += ["leftovers"]
    assert names == [f.name for f in findings]
    assert [] == [f for f in findings if f.level is Level.BLOCK]
    refuse_blockers(findings)
    assert [] == list(tmp_path.iterdir())


def test_every_blocker_is_a_line():
    """Warnings are not refusals."""
    findings = [Finding(str(n), level, f"{n} is bad") for n, level in enumerate(Level)]
    findings.append(Finding("x", Level.BLOCK, "x too"))
    with pytest.raises(PlanError, match=r"^2 is bad\nx too$"):
        refuse_blockers(findings)


def test_another_platform_is_refused():
    """Named, with what it lacks."""
    found = check.platform("darwin")
    assert Level.BLOCK is found.level
    assert "this is darwin: it needs timerfd" in found.text


@pytest.mark.parametrize("binary", ["/nonexistent/nginx", "/dev/null"])
def test_a_missing_proxy_is_refused_in_the_adapters_words(binary):
    """The value, and how to get one."""
    found = check.proxy(plan(proxy={"binary": binary}))
    assert Level.BLOCK is found.level
    assert binary in found.text


@pytest.mark.parametrize(
    ("fields", "needed"),
    [
        ({"rate": 1000}, 2256),
        ({"rate": 10}, 276),
        ({"traffic": {"max_in_flight": 5000}}, 10_256),
        ({"rate": 1000, "traffic": {"response_timeout": "200ms"}}, 656),
        ({"rate": 10, "traffic": {"classes": [{"shape": "websocket", "share": 1}]}}, 476),
        ({"rate": 10, "traffic": {"classes": [{"shape": "stream", "share": 1}]}}, 876),
    ],
)
def test_open_files_are_two_for_each_request_that_may_hang(fields, needed):
    """A second of them, unless the plan bounds them; sockets and downloads that last are there besides."""
    p = plan(**fields)
    assert needed == check.files_needed(p)
    low = check.open_files(p, lambda: (needed - 1, needed - 1))
    assert Level.BLOCK is low.level
    assert f"is {needed - 1:,} and this plan needs {needed:,}; raise it ('ulimit -Hn {needed}'" in low.text
    assert Level.OK is check.open_files(p, lambda: (needed, needed)).level


def test_no_limit_is_enough():
    """Infinity is a negative number in Python."""
    found = check.open_files(plan(), lambda: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert Level.OK is found.level
    assert "unlimited" in found.text


def test_the_soft_limit_is_raised_to_the_hard_one():
    """In a process of its own, or this one would keep it."""
    code = (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (300, 400))\n"
        "from soak.check import raise_open_files\nprint(raise_open_files())"
    )
    assert (
        "(400, 400)\n"
        == subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    )


def test_a_taken_port_is_named():
    """Only a fixed one can be taken."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        (found,) = check.ports(plan(http_port=port))
    assert Level.BLOCK is found.level
    assert f"http_port {port}: Address already in use; use another one, or 0" in found.text
    (found,) = check.ports(plan(http_port=port))
    assert Level.OK is found.level


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (
            "192.0.2.1",
            "192.0.2.1, http_port 0: Cannot assign requested address; let http_host be an address of this host",
        ),
        (
            "no host",
            "no host, http_port 0: Name or service not known; let http_host be an address of this host",
        ),
        ("a" * 300, "http_port 0: it is no name of a host; let http_host be an address of this host"),
    ],
)
def test_an_address_that_is_not_of_this_host_is_a_blocker(host, words):
    """Also when any port will do: the run would fail after its lab was up."""
    (found,) = check.ports(plan(http_host=host))
    assert Level.BLOCK is found.level
    assert found.text.endswith(words)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_the_pages_may_listen_on_either_kind_of_address(host):
    """IPv6 has a port of its own to try."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
    (found,) = check.ports(plan(http_host=host, http_port=port))
    assert Level.OK is found.level, found.text


def test_no_loopback_is_a_blocker(monkeypatch):
    """Nothing of the lab could listen."""

    def dead(_host, _port):
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(check, "_bind", dead)
    (found,) = check.ports(plan())
    assert Level.BLOCK is found.level
    assert "is loopback up" in found.text


@pytest.mark.parametrize(
    ("rate", "reuse", "level"),
    [(1000, 0, Level.OK), (10_000, 0, Level.BLOCK), (10_000, 2, Level.OK)],
)
def test_new_connections_are_compared_with_the_ports_there_are(tmp_path, rate, reuse, level):
    """A closed connection keeps its port for a minute, unless the kernel reuses it."""
    (tmp_path / "ip_local_port_range").write_text("32768\t60999\n")
    (tmp_path / "tcp_tw_reuse").write_text(f"{reuse}\n")
    (found,) = check.ports(plan(rate=rate), tmp_path)
    assert level is found.level
    if level is Level.BLOCK:
        assert "667 new connections a second need 40,000 ports" in found.text
        assert "has 28,232" in found.text


def test_a_place_that_cannot_be_written_is_a_blocker():
    """In the words of the write test."""
    found = check.disk(plan(), Path("/proc/soak"))
    assert Level.BLOCK is found.level
    assert "cannot write to /proc/soak" in found.text


def test_a_run_that_cannot_fit_is_a_blocker(tmp_path, monkeypatch):
    """Both numbers."""
    monkeypatch.setattr(check, "space_needed", lambda _plan: 2**60)
    found = check.disk(plan(), tmp_path)
    assert Level.BLOCK is found.level
    assert "this plan may write 1,099,511,627,776 MiB" in found.text


@pytest.mark.parametrize(("free", "level"), [(GIB, Level.OK), (GIB // 8, Level.WARN)])
def test_scarce_memory_is_a_warning(free, level):
    """The kernel decides, not we."""
    assert level is check.memory(lambda: free).level


@pytest.mark.parametrize(
    ("cores", "load", "level"), [(4, 1.0, Level.OK), (1, 0.0, Level.WARN), (4, 4.5, Level.WARN)]
)
def test_a_busy_or_a_single_core_is_a_warning(cores, load, level):
    """Latency would be ours, not the proxy's."""
    assert level is check.processors(plan(), lambda: cores, lambda: load).level


class Wall:
    """A clock that says what it is told."""

    def __init__(self, wall_s):
        self._wall_s = wall_s

    def monotonic_ns(self):
        return 0

    def wall_s(self):
        return self._wall_s

    async def sleep(self, seconds):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("wall_s", "tick_s", "words"),
    [
        (1.8e9, 1e-9, None),
        (1.8e9, 0.004, "ticks every 4 ms"),
        (86_400.0, 1e-9, "the wall clock says 1970-01-02T00:00:00Z; set it"),
    ],
)
def test_a_clock_that_is_coarse_or_wrong_is_a_blocker(wall_s, tick_s, words):
    """Pacing needs the one, certificates the other."""
    (found,) = check.clocks(Wall(wall_s), lambda _clock: tick_s)
    assert (Level.OK if words is None else Level.BLOCK) is found.level
    assert words is None or words in found.text


def test_what_dead_runs_left_is_a_warning_with_the_cure(tmp_path):
    """Each of them."""
    run = create_run(plan(), "", home=tmp_path)
    (found,) = check.dead_runs(tmp_path)
    assert (Level.OK, "none") == (found.level, found.text)
    with socket.socket(socket.AF_UNIX) as server, short_path(run.socket) as path:
        server.bind(path)
    (found,) = check.dead_runs(tmp_path)
    assert Level.WARN is found.level
    assert f"the killed run {run.id} left a stale socket; 'soak heal {run.id}' cleans up" == found.text


def test_runs_that_cannot_be_listed_are_a_warning(tmp_path):
    """They are not in the way of a new one in another place."""
    (tmp_path / "runs").write_text("x")
    (found,) = check.dead_runs(tmp_path)
    assert Level.WARN is found.level
    assert os.fspath(tmp_path) in found.text


def test_what_the_proxy_can_is_shown():
    """Version, binary, capabilities."""
    assert Level.OK is check.proxy(plan()).level
    (found,) = check.able(plan())
    assert Level.OK is found.level
    assert found.text.startswith("nginx can cert_rotate, h2, marker, ")


def test_what_is_to_be_attached_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One that does not run yet is a warning, for a run waits; an engine that is away is in the way."""
    proxy = {"directory": str(tmp_path), "http_port": 1, "https_port": 2, "pid_file": "/no/such.pid"}
    backend = {"host": "127.0.0.1", "port": 3, "pid_file": "/no/b1.pid", "start": ["b1"]}
    section = {"kind": "attach", "attach": {"proxy": proxy, "backends": [backend]}}
    wanted = Plan.model_validate({"lab": section})
    assert wanted.lab.attach is not None
    found = list(check.attached(wanted, wanted.lab.attach))
    assert [Level.WARN] * 2 == [one.level for one in found]
    assert "proxy does not run: the pid file /no/such.pid" in found[0].text
    assert found[1].text.endswith("a run waits 15s for it")
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    containers = {"run": "x", "proxy": proxy | {"pid_file": None}, "backends": [{"host": "h", "port": 1}]}
    wanted = Plan.model_validate({"lab": {"kind": "attach", "attach": containers}})
    assert wanted.lab.attach is not None
    (away,) = check.attached(wanted, wanted.lab.attach)
    assert (Level.BLOCK, True) == (away.level, "no container engine answers" in away.text)


def test_traffic_that_this_very_binary_cannot_carry_blocks(monkeypatch):
    """It was built without what the adapter declares; the adapter asked it."""
    monkeypatch.setattr(NginxAdapter, "abilities", lambda self, _: self.capabilities - {Capability.TCP})
    *_, last = check.able(plan(traffic={"classes": [{"shape": "l4", "share": 1}]}))
    assert (Level.BLOCK, "nginx") == (last.level, last.name)
    assert last.text == "l4 needs tcp, without which this nginx was built; use another binary"
    assert Level.BLOCK not in {found.level for found in check.able(plan())}


def test_a_docker_plan_is_checked_at_its_engine_and_not_on_this_host(tmp_path):
    """Engine away: one blocker with the fix, and no word about a binary."""
    plan = Plan.model_validate({"lab": {"kind": "docker", "docker": {"host": str(tmp_path / "no.sock")}}})
    found = {finding.name: finding for finding in preflight(plan, home=tmp_path)}
    assert Level.BLOCK is found["engine"].level
    assert "no container engine answers" in found["engine"].text
    assert "nginx" not in found
    assert "the docker lab can backend_partition" in found["abilities"].text
