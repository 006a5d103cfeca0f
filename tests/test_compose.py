"""compose.yaml as it stands: valid for old and new Compose, true to what soak renders, and the socket in one place alone."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from soak.lab.attachedcontainer import NAME_LABEL, ROLE_LABEL, RUN_LABEL
from soak.lab.attachedfiles import first_model, program_of
from soak.planfile import Overrides, load_plan
from soak.proxies.catalog import adapters
from soak.proxies.varnish import ADAPTER as VARNISH

ROOT = Path(__file__).parents[1]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
PROXIES = sorted(
    name for name, service in SERVICES.items() if service.get("labels", {}).get("soak.role") == "proxy"
)
BACKENDS = ["b1", "b2", "b3"]
PLAN = load_plan(ROOT / "compose" / "soak.yaml")
OF_VARNISH = load_plan(ROOT / "compose" / "varnish.yaml", overrides=Overrides(proxy="varnish"))


def config(require: Callable[[str], str], file: str = "compose.yaml", **environment: str) -> dict[str, Any]:
    """Return what Debian's Compose makes of a file; it is strict about names that it does not know."""
    done = subprocess.run(
        [require("docker-compose"), "-f", str(ROOT / file), "config"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    value: dict[str, Any] = yaml.safe_load(done.stdout)
    return value


@pytest.mark.parametrize("proxy", PROXIES)
def test_old_compose_takes_every_profile(require: Callable[[str], str], proxy: str):
    """One variable chooses the service, what is rendered, and what soak expects."""
    services = config(require, COMPOSE_PROFILES=proxy)["services"]
    assert {"soak", "render", "prometheus", "grafana", *BACKENDS, proxy} <= set(services)
    assert [proxy] == services[proxy]["profiles"]
    for name in ("render", "soak"):
        assert f"--proxy {proxy}" in services[name]["command"]


def test_nginx_is_the_default_and_images_are_variables(require: Callable[[str], str]):
    """Whoever has a registry of his own names his images."""
    services = config(require, SOAK_IMAGE="mine:1", NGINX_IMAGE="mine:2", PROMETHEUS_IMAGE="mine:3")[
        "services"
    ]
    assert "--proxy nginx" in services["soak"]["command"]
    assert {"mine:1"} == {services[name]["image"] for name in ("soak", "render", *BACKENDS)}
    assert ["mine:2", "mine:3"] == [services[name]["image"] for name in ("nginx", "prometheus")]
    pinned = {name: service["image"] for name, service in SERVICES.items()}
    assert [] == [
        n for n, image in pinned.items() if not re.fullmatch(r"\$\{[A-Z]+_IMAGE:-[\w./-]+:[\w.-]+\}", image)
    ]


def test_monitoring_alone_is_valid_too(require: Callable[[str], str]):
    """For a soak outside containers."""
    assert {"prometheus", "grafana"} == set(config(require, "compose/monitoring.yaml")["services"])


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_proxy_is_started_as_soak_render_says(proxy: str):
    """The same command in the same directory, from the official image of the adapter's version."""
    adapter = adapters()[proxy]
    service = SERVICES[proxy]
    expected = " ".join(adapter.start_command(program_of(adapter, None), Path("/soak/proxy")))
    entrypoint = service["entrypoint"]
    if entrypoint[0] == "sh":
        expected = f"exec {expected} >>/soak/proxy.out 2>&1"
        assert adapter.error_log(Path("/soak/proxy")) == Path("/soak/proxy.out")
    assert expected == (entrypoint[-1] if entrypoint[0] == "sh" else " ".join(entrypoint))
    assert "/soak" == service["working_dir"]
    facts: Any = adapter
    assert service["image"].partition(":-")[2].rstrip("}") == facts.container.image


def test_what_stands_beside_varnish_is_started_as_soak_render_says():
    """In the network of its proxy, as one that the plan of Varnish knows; for the rest that plan is the same."""
    where = OF_VARNISH.lab.attach
    assert where is not None
    (hitch,) = VARNISH.companions(Path("varnishd"), first_model(OF_VARNISH, where))
    service = SERVICES["hitch"]
    limit, *words = hitch.command[2].split("; exec ")[0], "hitch", *hitch.command[4:]
    assert f"{limit}; exec {' '.join(words)} >>/soak/proxy-hitch.out 2>&1" == re.sub(
        r"^ulimit -n \d+", limit, service["entrypoint"][-1]
    )
    assert "service:varnish" == service["network_mode"]
    assert {RUN_LABEL: where.run, ROLE_LABEL: "companion", NAME_LABEL: "hitch"} == service["labels"]
    assert VARNISH.container.companions["hitch"] == service["image"].partition(":-")[2].rstrip("}")
    assert (2, "1g") == (service["cpu_quota"] / service["cpu_period"], service["mem_limit"])
    assert {"hitch"} == set(where.proxy.companions)
    plain = {**OF_VARNISH.model_dump(mode="json"), "proxy": PLAN.model_dump(mode="json")["proxy"]}
    plain["lab"]["attach"]["proxy"] |= {"ports": {}, "companions": {}}
    assert PLAN.model_dump(mode="json") == plain


def test_the_plan_is_that_of_the_services():
    """Addresses, ports, labels and files are the same on both sides."""
    where = PLAN.lab.attach
    assert where is not None
    for proxy in PROXIES:
        assert {RUN_LABEL: where.run, ROLE_LABEL: "proxy"} == SERVICES[proxy]["labels"]
        assert [where.proxy.host] == SERVICES[proxy]["networks"]["soak"]["aliases"]
    for number, (name, one) in enumerate(zip(BACKENDS, where.backends, strict=True)):
        service = SERVICES[name]
        assert {RUN_LABEL: where.run, ROLE_LABEL: "backend", NAME_LABEL: name} == service["labels"]
        assert one.host == service["networks"]["soak"]["ipv4_address"]
        assert ["--name", name, "--row", str(number)] == service["command"]
        assert ["--port", str(one.port), "--stay", "--shared", where.shared] == service["entrypoint"][-5:]
    assert f"127.0.0.1:${{SOAK_PORT:-{PLAN.http_port}}}:{PLAN.http_port}" in SERVICES["soak"]["ports"]
    assert "soak" in PLAN.http_names


def test_the_socket_is_in_soak_alone_and_everything_is_published_on_loopback():
    """Whoever may write to the socket is root on the host."""
    with_socket = [n for n, s in SERVICES.items() if any("docker.sock" in v for v in s.get("volumes", []))]
    assert ["soak"] == with_socket
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert [] == [port for port in published if not port.startswith("127.0.0.1:")]
    assert [] == [name for name, service in SERVICES.items() if service.get("privileged")]


def test_the_proxy_has_the_limits_of_the_job():
    """Two CPUs by period and quota, for one given as 'cpus' could not be changed by a fault; 1 GiB."""
    for name in PROXIES:
        service = SERVICES[name]
        assert (2, "1g") == (service["cpu_quota"] / service["cpu_period"], service["mem_limit"])
        assert "cpus" not in service
    for name, service in SERVICES.items():
        assert "mem_limit" in service or name == "render"
        assert "healthcheck" in service or name == "render"


@pytest.mark.parametrize("file", ["compose.yaml", "compose/monitoring.yaml"])
def test_files_that_are_mounted_exist(file: str):
    """Every file that a service mounts from here is here, and there is no top-level name (old Compose refuses it)."""
    compose = yaml.safe_load((ROOT / file).read_text())
    mounts = [
        re.sub(r"\$\{\w+:-(.*?)\}", r"\1", m).split(":")[0]
        for service in compose["services"].values()
        for m in service.get("volumes", [])
    ]
    ours = [(ROOT / file).parent / m for m in mounts if m.startswith(".")]

    assert "name" not in compose
    assert ours
    assert [] == [str(path) for path in ours if not path.is_file()]
