"""What a plan may say of the proxy."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from soak.proxyplan import ProxyPlan

COMMAND = {"start": ["@{binary}"], "files": {"a": "@{https_port} @{bundle}"}}


def test_the_default_proxy_is_the_one_that_soak_brings():
    """nginx, from its package."""
    assert ("nginx", None) == (ProxyPlan().kind, ProxyPlan().binary)


def test_an_unknown_key_is_refused():
    """A typing error is never silently a default."""
    with pytest.raises(ValidationError, match="bnary"):
        ProxyPlan.model_validate({"bnary": "/usr/sbin/nginx"})


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("kind 'command' is a proxy that only the plan knows", {"kind": "command", "binary": "x"}),
        ("needs the key 'binary'", {"kind": "command", "command": COMMAND}),
        ("kind is 'nginx'; remove one of them", {"command": COMMAND}),
    ],
)
def test_a_proxy_by_commands_is_whole_or_refused(words, given):
    """And its commands describe no other."""
    with pytest.raises(ValidationError, match=words):
        ProxyPlan.model_validate(given)


def test_people_call_a_proxy_by_its_kind_or_by_the_name_that_the_plan_gives():
    """In reports and in the name of a run."""
    given = {"kind": "command", "binary": "x", "command": COMMAND}
    named = {**given, "command": {**COMMAND, "name": "raddex"}}
    labels = [ProxyPlan.model_validate(p).label for p in ({}, given, named)]
    assert ["nginx", "command", "raddex"] == labels
