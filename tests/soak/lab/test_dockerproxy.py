"""The proxy of a docker lab: what it says when it does not come up, and when it is asked in vain."""

from __future__ import annotations

import pytest

from chaos.target import TargetError
from soak.errors import LabError
from soak.proxies.nginx import NginxAdapter

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.timeout(240)]


async def test_a_proxy_that_does_not_come_up_says_why_and_leaves_nothing(lab_of):
    """Its own validator's words; nothing is left (the fixture looks)."""
    with pytest.raises(
        LabError, match=r"nginx refuses its configuration[\s\S]*unknown directive \"soak_nonsense\""
    ):
        async with lab_of("nginx", extra="soak_nonsense on;"):
            pass


async def test_a_proxy_that_ends_at_once_says_how(lab_of, monkeypatch):
    """Its exit status and its words are in the sentence."""
    monkeypatch.setattr(NginxAdapter, "validate_command", lambda *_args: None)
    monkeypatch.setattr(
        NginxAdapter, "start_command", lambda *_args: ["sh", "-c", "echo no such luck; exit 4"]
    )
    says = r"nginx did not come up: it ended: exit status 4; it said:\s+no such luck"
    with pytest.raises(LabError, match=says):
        async with lab_of("nginx"):
            pass


async def test_a_container_that_was_removed_is_not_mistaken(lab_of, engine):
    """A validation and a reload say that it is gone; what is in place and what is remembered stay the same."""
    async with lab_of("nginx") as lab:
        before = (lab.generation(), lab.serial())
        await engine.remove((await lab.proxy_identity())["container"])
        applied = await lab.apply_generation(2)
        assert not applied.ok
        assert "refused by validation" in applied.reason
        assert "somebody removed it" in applied.reason
        with pytest.raises(TargetError, match=r"the proxy has ended: .*somebody removed it"):
            await lab.proxy_identity()
        with pytest.raises(TargetError, match="somebody removed it"):
            await lab.proxy_limits()
        assert before == (lab.generation(), lab.serial())
