"""``soak render``: what it writes is tested in tests/soak/lab/test_rendering.py; here is how it is asked and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from click.testing import CliRunner

from soak.cli import cli
from tests.soak.lab.strangers import Strangers


def ask(tmp_path: Path, *flags: str) -> tuple[int, str]:
    lab = Strangers(tmp_path).lab
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"lab": lab}))
    done = CliRunner().invoke(cli, ["render", str(tmp_path / "mine.yaml"), *flags], prog_name="soak")
    return done.exit_code, done.output


def test_it_says_how_to_start_everything(tmp_path: Path):
    """The proxy's command and its directory, and each origin's."""
    code, said = ask(tmp_path)
    assert 0 == code
    assert f"start the proxy in {tmp_path} with\n  nginx -p {tmp_path}/proxy/" in said
    assert 2 == said.count("python3 -m soak.lab.origin --name b")


def test_the_same_as_json(tmp_path: Path):
    """For scripts."""
    code, said = ask(tmp_path, "--json")
    facts = json.loads(said)
    assert (0, str(tmp_path), None) == (code, facts["working_directory"], facts["output"])
    assert "nginx.conf" in facts["files"]
