"""lab.json: on disk before it is relied upon, and never trusted further than it can be."""

from __future__ import annotations

import json

import pytest

from soak.lab import state
from soak.lab.state import LabState, RecordedLab, read_state
from tests.oddfiles import ODD, make_odd


def test_the_intent_is_on_disk_before_the_process_exists(run):
    """A daemon that dies between the two leaves the command, without a pid."""
    LabState(run).intend("b1", ["origin", "--name", "b1"])
    (entry,) = json.loads(run.lab_state.read_bytes())["processes"]

    assert ("b1", None, ["origin", "--name", "b1"]) == (entry["name"], entry["pid"], entry["argv"])
    assert RecordedLab() == read_state(run)


def test_identities_and_the_proxy_binary_are_read_back(run):
    """Exactly as recorded, so that they compare equal."""
    lab = LabState(run)
    lab.intend("b1", ["a"])
    lab.started("b1", {"pid": 12, "started": 1936.21})
    lab.intend("proxy", ["b"])
    lab.started("proxy", {"pid": 13, "started": 1937.0}, ["/bin/nginx"])
    entries = json.loads(run.lab_state.read_bytes())["processes"]

    expected = {"b1": {"pid": 12, "started": 1936.21}, "proxy": {"pid": 13, "started": 1937.0}}
    assert RecordedLab(expected, frozenset({"/bin/nginx"})) == read_state(run)
    assert [12, 13] == [entry["session"] for entry in entries]


@pytest.mark.parametrize(
    "content",
    [None, "", "{", '{"schema": 1, "processes": [', "[]", "{}", '{"boot_id": "x"}', "\xff\xfe"],
    ids=["missing", "empty", "torn", "torn later", "list", "object", "no processes", "binary"],
)
def test_a_bad_file_is_no_knowledge(run, content):
    """Healing must go on without it."""
    if content is not None:
        run.lab_state.write_text(content, encoding="latin-1")

    assert RecordedLab() == read_state(run)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_file_is_no_knowledge_either(run, kind):
    """And nobody waits for it."""
    make_odd(run.lab_state, kind)

    assert RecordedLab() == read_state(run)


def test_start_times_of_another_boot_prove_nothing(run, monkeypatch):
    """After a reboot the same pid and start time may be anybody's."""
    lab = LabState(run)
    lab.intend("b1", ["a"])
    lab.started("b1", {"pid": 12, "started": 1.0})
    monkeypatch.setattr(state, "boot_id", lambda: "another")

    assert RecordedLab() == read_state(run)
