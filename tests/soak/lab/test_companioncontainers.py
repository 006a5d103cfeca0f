"""Companions in containers beside the proxy's, with a real hitch: whole with it, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chaos.target import TargetError
from soak.errors import LabError
from soak.proxies.varnish import VarnishAdapter
from tests.soak.lab.client import fetch

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.timeout(240)]
COMPANIONS = VarnishAdapter.companions


def instead(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Let hitch be another one."""

    def companions(*arguments: Any) -> list[Any]:
        return [replace(one, **fields) for one in COMPANIONS(*arguments)]

    monkeypatch.setattr(VarnishAdapter, "companions", companions)


async def test_it_counts_with_the_proxy_and_may_use_as_much(lab_of, engine):
    """Its processes and its memory are the proxy's, and so is what is taken from it."""
    async with lab_of("varnish") as lab:
        (hitch,) = lab._proxy.companions().values()
        identity = await lab.proxy_identity()
        [vital, *_] = await lab.vitals(1.0)
        assert {"proxy-hitch"} == set(lab._proxy.companions())
        assert 1 == vital.detail["roles"]["master"]
        assert vital.detail["roles"]["worker"] >= 2  # the cache, and one of hitch's
        limits = await lab.proxy_limits()
        held_s = await lab.proxy_held_back_s()
        await lab.proxy_tighten(identity, cpus=0.5, memory_bytes=512 << 20)
        seen = [(await engine.inspect(one)).limits for one in (identity["container"], hitch)]
        assert [(0.5, 512 << 20)] * 2 == [(one.cpus, one.memory) for one in seen]
        await lab.proxy_loosen(identity, limits)
        seen = [(await engine.inspect(one)).limits for one in (identity["container"], hitch)]
        assert [(2.0, 1 << 30)] * 2 == [(one.cpus, one.memory) for one in seen]
        assert (await lab.proxy_held_back_s()) >= held_s >= 0


async def test_a_full_reload_replaces_its_workers_and_another_one_leaves_them(lab_of):
    """It is told by a signal to its container."""
    async with lab_of("varnish") as lab:
        routing = await lab.apply_generation(2, kind="routing")
        full = await lab.apply_generation(3, kind="full")
        assert "hitch" not in routing.detail["answer"]
        assert "accepted" == full.detail["answer"]["hitch"]["said"]


async def test_its_end_is_the_end_of_the_proxy(lab_of, engine):
    """It is told with its last words, and no reload pretends to work."""
    events: list[Any] = []
    async with lab_of("varnish", events) as lab:
        (hitch,) = lab._proxy.companions().values()
        await engine.kill(hitch)
        await lab._watch.look()
        ((name, data),) = events
        evidence = await lab.apply_generation(2)

        assert ("proxy.died", "proxy-hitch", "SIGKILL") == (name, data["name"], data["how"])
        assert not evidence.ok
        with pytest.raises(TargetError, match="the proxy has ended: hitch: SIGKILL; it said:"):
            await lab.proxy_identity()


async def test_what_it_refuses_is_refused_before_it_goes_live(lab_of, monkeypatch):
    """Its own check runs where it runs: in a container of its image first, in its own from then on."""
    refuses = ["sh", "-c", "echo no such pair; exit 1"]
    async with lab_of("varnish") as lab:
        instead(monkeypatch, check=refuses)
        evidence = await lab.apply_generation(2)
        assert "refused by validation: no such pair" == evidence.reason
        assert "1" == (await fetch(lab, "/bytes/1", tls=True)).headers["x-soak-generation"]
    with pytest.raises(LabError, match=r"varnish refuses its configuration:\nno such pair"):
        async with lab_of("varnish"):
            pass


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"command": ["sh", "-c", "echo no; exit 3"]},
            r"hitch did not come up: it ended: exit status 3; it said:\nno",
        ),
        ({"first": True}, "hitch must run before varnish, in whose network it would run; use lab local"),
        ({"name": "stunnel"}, "soak knows no image of stunnel, without which this proxy is not whole"),
    ],
    ids=["ends", "first", "no image"],
)
async def test_one_that_does_not_come_up_says_why(lab_of, monkeypatch, fields, says):
    """In one sentence, and nothing is left (the fixture looks)."""
    instead(monkeypatch, check=(), **fields)
    with pytest.raises(LabError, match=says):
        async with lab_of("varnish"):
            pass


async def test_a_proxy_that_ends_first_is_the_one_that_is_told(lab_of, monkeypatch):
    """Nothing can come up in the network of a container that has ended."""
    monkeypatch.setattr(VarnishAdapter, "validate_command", lambda *_args: None)
    monkeypatch.setattr(VarnishAdapter, "start_command", lambda *_args: ["sh", "-c", "echo alas; exit 4"])
    with pytest.raises(LabError, match=r"varnish did not come up: it ended: exit status 4; it said:\s+alas"):
        async with lab_of("varnish"):
            pass


async def test_its_image_is_asked_for_before_anything_is_made(lab_of):
    """With the command that gets it."""
    with pytest.raises(LabError, match=r"docker pull nowhere/hitch:1"):
        async with lab_of("varnish", docker={"companion_images": {"hitch": "nowhere/hitch:1"}}):
            pass
