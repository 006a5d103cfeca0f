"""What a plan may say of a proxy of its own: everything that can be refused before it runs is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from soak.commandplan import ABILITIES, IN_COMMANDS, IN_FILES, CommandPlan
from soak.planfile import load_plan
from soak.proxies.base import Capability

FILE = "listen @{https_port} @{certificate} @{generation}\n"


def made(**fields: Any) -> CommandPlan:
    return CommandPlan.model_validate({"start": ["@{binary}"], "files": {"a.conf": FILE}, **fields})


def test_a_plan_that_says_little_can_little():
    """No reload, no rotation, no marker; the process that was started gets the signals."""
    plan = made()
    assert ((), None, None, "SIGTERM") == (plan.can, plan.reload, plan.pid_file, plan.stop.signal)


def test_abilities_are_those_of_adapters():
    """The words are the same; metrics need more than a word."""
    assert set(ABILITIES) == set(map(str, Capability)) - {"metrics"}


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("line 1: there is no placeholder @{htps_port}", {"files": {"a.conf": "@{htps_port}"}}),
        ("/etc/x' must be a path inside the proxy's own directory", {"files": {"/etc/x": FILE}}),
        ("'../x' must be a path inside", {"pid_file": "../x"}),
        ("start: @{http_port} is not known there; known: binary, config, directory.", {"start": ["x", "@{http_port}"]}),
        ("start: @{pid} is not known there", {"start": ["x", "@{pid}"]}),
        ("validate: @{port.admin} is not known there", {"validate": ["x", "@{port.admin}"], "ports": ["admin"]}),
        ("@{port.admin} is used, but ports does not list 'admin'", {"files": {"a": FILE + "@{port.admin}"}}),
        ("reload: @{port.admin} is not known there; known: binary, config, directory, pid.", {"can": ["reload"], "reload": {"command": ["x", "@{port.admin}"]}}),
        ("reload stands in 'can' but not in 'reload'", {"can": ["reload"]}),
        ("reload stands in 'reload' but not in 'can'", {"reload": {"signal": "HUP"}}),
        ("can: cert_rotate needs reload", {"can": ["cert_rotate"]}),
        ("give exactly one of command, signal and watch", {"can": ["reload"], "reload": {"signal": "HUP", "watch": True}}),
        ("give exactly one of command, signal and watch", {"can": ["reload"], "reload": {}}),
        ("'HUPP' is no signal; write one like HUP", {"can": ["reload"], "reload": {"signal": "HUPP"}}),
        ("no program can act on SIGKILL", {"can": ["reload"], "reload": {"signal": "KILL"}}),
        ("can: marker needs @{generation}", {"can": ["marker"], "files": {"a": "@{https_port} @{bundle}"}}),
        ("nothing tells the proxy its HTTPS port", {"files": {"a": "@{certificate}"}}),
        ("nothing tells the proxy its certificate", {"files": {"a": "@{https_port}"}}),
        ("ports: 'metrics' is a name of soak's own", {"ports": ["metrics"]}),
        ("limits: 'relaod' is no ability", {"limits": {"relaod": "no"}}),
        ("'[' is no regular expression", {"refused": "["}),
        ("has no group; put the version between parentheses", {"version": {"command": ["x"], "pattern": "v1"}}),
        ("start", {"start": []}),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(words, fields):
    """With the value, the rule and the way out."""
    with pytest.raises(ValidationError) as refused:
        made(**fields)
    assert words in str(refused.value)


def test_signals_are_taken_in_either_spelling():
    """As kill(1) does."""
    for spelled in ("usr1", "SIGUSR1", "USR1"):
        assert "SIGUSR1" == made(stop={"signal": spelled}).stop.signal


def test_a_refusal_names_file_and_line_of_the_plan(tmp_path):
    """And the line inside the template."""
    plan = tmp_path / "mine.yaml"
    plan.write_text(
        "proxy:\n  kind: command\n  binary: x\n  command:\n    start: ['@{binary}']\n"
        "    files:\n      a.conf: |\n        one\n        listen @{htps_port};\n"
    )
    with pytest.raises(
        Exception, match=r"mine.yaml:7: proxy.command.files.a.conf: line 2: there is no placeholder"
    ):
        load_plan(plan)


def test_what_the_readme_shows_is_a_plan(tmp_path):
    """Whoever copies it begins with something that is accepted."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (shown,) = [
        block for block in re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL) if "kind: command" in block
    ]
    (tmp_path / "gateway.yaml").write_text(shown)
    command = load_plan(tmp_path / "gateway.yaml").proxy.command
    assert command is not None
    assert {"reload", "cert_rotate", "marker", "h2"} == set(command.can)


def test_the_document_names_every_key_and_every_placeholder():
    """A key that nobody can look up is a riddle."""
    text = (Path(__file__).parents[2] / "docs" / "ADDING_A_PROXY.md").read_text()
    section = text.partition("## A proxy by its plan alone")[2].partition("\n## ")[0]
    keys = {field.alias or name for name, field in CommandPlan.model_fields.items()}
    assert set() == {key for key in keys if f"`{key}`" not in section}
    assert set() == {name for name in IN_FILES | IN_COMMANDS if f"`{name}`" not in section}
