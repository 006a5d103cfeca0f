"""What a lab would silently leave undone is refused, with the value and the way out."""

from __future__ import annotations

from typing import Any

import pytest

from soak.labrules import broken_lab_rules
from soak.plan import Plan
from soak.planfile import load_plan
from soak.proxies.catalog import adapters

PROCESS = {"directory": "/p", "http_port": 80, "https_port": 443, "pid_file": "/p/proxy.pid"}
CONTAINER = {key: value for key, value in PROCESS.items() if key != "pid_file"}


def attached(proxy: dict[str, Any], where: dict[str, Any] = CONTAINER) -> Plan:
    backends = [{"host": "10.0.0.1", "port": 80}]
    lab = {"kind": "attach", "attach": {"run": "mine", "proxy": where, "backends": backends}}
    return Plan.model_validate({"proxy": proxy, "lab": lab})


def command(**changes: Any) -> dict[str, Any]:
    """The worked example of a proxy by commands, without what is nothing to an attached one."""
    proxy = load_plan(preset="command").proxy.model_dump(mode="json", by_alias=True)
    return {**proxy, "command": {**proxy["command"], "pid_file": None, "stop": {}, **changes}}


def problems(plan: Plan) -> list[str]:
    return [text for _, text in broken_lab_rules(plan)]


@pytest.mark.parametrize(
    ("proxy", "says"),
    [
        (
            command(version={"command": ["gateway", "-v"]}),
            (
                "proxy.command.version: 'gateway' would be asked on this host and not in the container, and the attached "
                "proxy is one; begin the command with '@{binary}', which is run inside"
            ),
        ),
        (
            command(pid_file="gateway.pid"),
            (
                "proxy.command.pid_file: lab attach signals who lab.attach.proxy names (its pid_file, or its labels), not "
                "'gateway.pid'; remove it"
            ),
        ),
        (
            command(stop={"signal": "QUIT"}),
            "proxy.command.stop: lab attach never ends a proxy, so SIGQUIT would never be sent; remove it",
        ),
        (
            {"kind": "varnish"},
            (
                "lab.attach.proxy.companions: varnish is not whole without hitch; say where that runs: {hitch: {pid_file: "
                "/run/hitch.pid}}, or {hitch: {}} for the container with the labels soak.role=companion and soak.name=hitch"
            ),
        ),
    ],
)
def test_what_an_attached_container_would_never_see_is_refused(proxy: dict[str, Any], says: str):
    """One sentence each."""
    ports = {"ports": {"cli": 1, "proxy": 2}} if proxy["kind"] == "varnish" else {}
    assert [says] == problems(attached(proxy, {**CONTAINER, **ports}))


def test_an_attached_varnish_says_where_its_hitch_runs():
    """By label or by pid file; a name that it does not have is refused, and so is one of a proxy that has none."""
    ports = {"ports": {"cli": 1, "proxy": 2}}

    def said(kind: str, companions: Any) -> list[str]:
        more = ports if kind == "varnish" else {}
        return problems(attached({"kind": kind}, {**CONTAINER, **more, "companions": companions}))

    assert [] == said("varnish", {"hitch": {}})
    assert [] == said("varnish", {"hitch": {"pid_file": "/run/hitch.pid"}})
    assert [
        "lab.attach.proxy.companions: nginx has no companion 'hitch'; it has none, remove companions"
    ] == said("nginx", {"hitch": {}})
    first, second = said("varnish", {"hich": {}})
    assert first == "lab.attach.proxy.companions: varnish has no companion 'hich'; did you mean 'hitch'?"
    assert "is not whole without hitch" in second


def test_a_reload_command_is_for_containers_too():
    """It is run inside."""
    assert [] == problems(attached(command(reload={"command": ["gateway", "reload"]})))


def test_a_process_of_this_host_may_be_reloaded_and_asked_by_any_command():
    """They run where it runs."""
    proxy = command(reload={"command": ["gateway", "reload"]}, version={"command": ["gateway", "-v"]})
    assert [] == problems(attached(proxy, PROCESS))


def test_a_proxy_that_cannot_reload_cannot_be_taken_over():
    """Whatever it was started with, it would go on with."""
    bouine = load_plan(preset="bouine").proxy.model_dump(mode="json", by_alias=True)
    bouine["command"] |= {"pid_file": None, "stop": {}}
    (text,) = problems(attached(bouine, {**PROCESS, "ports": {"admin": 9}}))
    assert text.startswith("proxy.kind: bouine cannot reload, and lab attach takes a proxy over by a reload")


@pytest.mark.parametrize(
    ("proxy", "ports", "says"),
    [
        ({"kind": "nginx"}, {"metrcs": 1}, "nginx listens on no port 'metrcs'; did you mean 'metrics'?"),
        ({"kind": "rocky"}, {"metrics": 1}, "rocky listens on no port 'metrics'; it has none, remove ports"),
        (command(ports=["admin"]), {}, "command listens on more ports, which must stand there: admin"),
    ],
)
def test_ports_are_those_that_the_proxy_listens_on(proxy: dict[str, Any], ports: dict[str, int], says: str):
    """One that it does not know would never be rendered; one that is missing could not be."""
    assert [f"lab.attach.proxy.ports: {says}"] == problems(attached(proxy, {**CONTAINER, "ports": ports}))


def test_a_byte_pipe_is_where_the_plan_says_and_only_where_the_proxy_has_one():
    """Traffic that goes nowhere, and a port on which nobody would listen."""
    l4 = {"traffic": {"classes": [{"shape": "l4", "share": 1}]}}
    nginx = attached({"kind": "nginx"}).model_dump(mode="json", by_alias=True)
    (text,) = problems(Plan.model_validate(nginx | l4))
    assert text == (
        "traffic.classes[0]: l4 goes through l4, and lab.attach does not say where that is; "
        "set proxy.tcp_port, and tls_port of every backend"
    )
    nginx["lab"]["attach"]["proxy"]["tcp_port"] = nginx["lab"]["attach"]["backends"][0]["tls_port"] = 444
    assert [] == problems(Plan.model_validate(nginx | l4))
    assert ["lab.attach.proxy.tcp_port: rocky has no byte pipe to listen on 444; remove it"] == problems(
        Plan.model_validate({**nginx, "proxy": {"kind": "rocky"}})
    )


@pytest.mark.parametrize("kind", sorted(adapters()))
def test_a_docker_lab_is_for_proxies_with_an_image(kind: str, monkeypatch: pytest.MonkeyPatch):
    """Said by the plan, and not only once it has begun."""
    proxy, lab = {"kind": kind}, {"kind": "docker", "docker": {}}
    if kind == "command":
        proxy, lab["docker"] = command(), {"proxy_image": "mine:1"}
    plan = Plan.model_validate({"proxy": proxy, "lab": lab})
    assert [] == problems(plan)
    if kind != "command":
        monkeypatch.delattr(type(adapters()[kind]), "container")
        (text,) = problems(plan)
        assert text.startswith(f"proxy.kind: {kind} has no image that soak knows, which lab docker needs")
    assert [] == problems(Plan.model_validate({"proxy": proxy}))


def test_only_a_companion_that_the_proxy_has_gets_an_image():
    """A wrong name would be an image that nobody uses."""

    def said(proxy: str, name: str) -> list[str]:
        lab = {"kind": "docker", "docker": {"companion_images": {name: "mine:1"}}}
        return problems(Plan.model_validate({"proxy": {"kind": proxy}, "lab": lab}))

    assert [] == said("varnish", "hitch")
    assert ["lab.docker.companion_images: varnish has no companion 'hich'; did you mean 'hitch'?"] == said(
        "varnish", "hich"
    )
    assert [
        "lab.docker.companion_images: nginx has no companion 'hitch'; it has none, remove companion_images"
    ] == said("nginx", "hitch")


def test_a_proxy_by_commands_needs_an_image():
    """Nobody but the plan knows it; its version is asked inside, or not at all."""
    proxy = command(version={"command": ["gateway", "-v"]})
    assert [
        "lab.docker.proxy_image is missing: soak knows no image of command; name the one that has it (or --proxy-image)",
        (
            "proxy.command.version: 'gateway' would be asked on this host and not in the container, and lab docker has the "
            "proxy in one; begin the command with '@{binary}', which is run inside"
        ),
    ] == problems(Plan.model_validate({"proxy": proxy, "lab": {"kind": "docker"}}))


@pytest.mark.parametrize(
    "kind", ["nginx", "haproxy", "caddy", "traefik", "envoy", "node", "rocky", "node-tcp"]
)
def test_every_other_proxy_can_be_attached_to(kind: str):
    """As it is, with the page of its metrics or without."""
    assert [] == problems(attached({"kind": kind}))
