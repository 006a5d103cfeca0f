"""What a plan may say of the lab."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from soak.labplan import LabPlan

PROXY = {"directory": "/soak/proxy", "http_port": 8080, "https_port": 8443}
PROCESS = {"host": "127.0.0.1", "port": 9001, "pid_file": "/run/b1.pid", "start": ["start-b1"]}
CONTAINERS = [{"host": "10.0.0.1", "port": 80}, {"host": "10.0.0.2", "port": 80}]


def attach(**changes: Any) -> dict[str, Any]:
    return {"kind": "attach", "attach": {"run": "mine", "proxy": PROXY, "backends": CONTAINERS, **changes}}


def test_the_default_lab_needs_nothing_set_up():
    """Processes on loopback, three origins."""
    assert ("local", 3) == (LabPlan().kind, LabPlan().backends)


def test_a_lab_without_a_backend_is_refused():
    """Nothing would be behind the proxy."""
    with pytest.raises(ValidationError, match="backends"):
        LabPlan.model_validate({"backends": 0})


def test_attached_backends_count_themselves():
    """The list of them says how many there are."""
    plan = LabPlan.model_validate(attach())

    assert 2 == plan.backends
    assert plan.attach is not None
    assert plan.attach.needs_engine


def test_processes_alone_need_no_engine():
    """A pid file each, and no label."""
    section = attach(run="", proxy={**PROXY, "pid_file": "/run/nginx.pid"}, backends=[PROCESS])
    plan = LabPlan.model_validate(section)

    assert plan.attach is not None
    assert not plan.attach.needs_engine


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"kind": "attach"}, "kind attach needs the section 'attach'"),
        ({**attach(), "kind": "local"}, "the section 'attach' is for kind attach, not for kind local"),
        ({**attach(), "backends": 3}, "backends is 3 and attach.backends lists 2"),
        (attach(run=""), "'run' is missing"),
        (
            attach(proxy={**PROXY, "pid_file": "/p.pid"}, backends=[PROCESS]),
            "run is 'mine', the label of containers, and the proxy and every backend has a pid_file; leave run out",
        ),
        (attach(proxy={**PROXY, "directory": "conf"}), "directory"),
        (
            attach(proxy={**PROXY, "tcp_port": 444}),
            "proxy.tcp_port 444 leads to the TLS of every backend, and b1 has no tls_port; give it one",
        ),
        (
            attach(backends=[CONTAINERS[0], {**CONTAINERS[1], "tls_port": 443}]),
            "tls_port 443 of b2 is where proxy.tcp_port leads to, which is not set; set it",
        ),
        (attach(backends=[{"host": "h", "port": 1, "pid_file": "/b1.pid"}]), "needs 'start'"),
        (attach(backends=[{"host": "h", "port": 1, "start": ["b1"]}]), "'start' is for a local process"),
        (attach(backends=[]), "backends"),
        (attach(proxy={**PROXY, "https_port": PROXY["http_port"]}), "https_port and http_port are both"),
        (attach(proxy={**PROXY, "ports": {"metrics": PROXY["http_port"]}}), "metrics and http_port are both"),
        (attach(proxy={**PROXY, "host": "no host"}), "host"),
        (attach(backends=[{**CONTAINERS[0], "host": "b1:80/x"}]), "host"),
    ],
)
def test_what_cannot_be_attached_is_refused_with_the_fix(section: dict[str, Any], says: str):
    """Before anything is looked for."""
    with pytest.raises(ValidationError, match=says):
        LabPlan.model_validate(section)


def test_images_come_from_the_plan_then_the_environment_then_the_defaults(monkeypatch):
    """What was taken from elsewhere is spelled out, so that a saved plan says what ran."""
    monkeypatch.delenv("SOAK_PROXY_IMAGE", raising=False)
    monkeypatch.delenv("SOAK_ORIGIN_IMAGE", raising=False)
    plain = LabPlan.model_validate({"kind": "docker"}).docker
    assert plain is not None
    assert (None, "soakd:latest", 2.0, 1 << 30) == (
        plain.proxy_image,
        plain.origin_image,
        plain.cpus,
        plain.memory,
    )
    monkeypatch.setenv("SOAK_PROXY_IMAGE", "mine/nginx:2")
    monkeypatch.setenv("SOAK_ORIGIN_IMAGE", "mine/soakd:2")
    found = LabPlan.model_validate({"kind": "docker", "docker": {"proxy_image": "ours:3", "memory": "64MiB"}})
    assert found.docker is not None
    assert ("ours:3", "mine/soakd:2", 64 << 20) == (
        found.docker.proxy_image,
        found.docker.origin_image,
        found.docker.memory,
    )
    saved = found.model_dump(mode="json")
    assert "64MiB" == saved["docker"]["memory"]
    assert found == LabPlan.model_validate(saved)


def test_a_docker_section_of_another_lab_is_refused():
    """It would be ignored."""
    with pytest.raises(ValidationError, match="the section 'docker' is for kind docker, not for kind local"):
        LabPlan.model_validate({"docker": {}})
    assert LabPlan().docker is None
