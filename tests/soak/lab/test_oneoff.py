"""A program of an image, run as if it were one of this host."""

from __future__ import annotations

import json
import subprocess

import pytest

from soak.lab.oneoff import main, stand_in
from soak.proxies.catalog import adapter

pytestmark = pytest.mark.xdist_group("docker")
LABELS = {"soak.run": "oneoff-test"}


async def test_an_adapter_asks_the_binary_of_an_image(tmp_path, dockerd, images, engine):
    """Its version, all of a long answer, and nothing is left."""
    path = stand_in(
        tmp_path / "it's nginx",
        engine=dockerd.host,
        image=images.proxy("nginx"),
        program="nginx",
        name="soak-ask",
        labels=LABELS,
    )
    assert adapter("nginx").version(path).count(".") == 2
    done = subprocess.run([path, "-x"], capture_output=True, text=True, check=False)
    assert (1, True) == (done.returncode, "invalid option" in done.stdout)
    assert [] == list(await engine.list(LABELS))


async def test_it_sees_what_it_is_to_read_and_cannot_write_there(tmp_path, dockerd, images):
    """Under the path of this host."""
    (tmp_path / "words").write_text("seen")
    path = stand_in(
        tmp_path / "sh",
        engine=dockerd.host,
        image=images.proxy("nginx"),
        program="sh",
        name="soak-ask",
        labels=LABELS,
        reads=[tmp_path],
    )
    shows = subprocess.run(
        [path, "-c", f"cat {tmp_path}/words; echo >{tmp_path}/more"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "seen" in shows.stdout
    assert "Read-only file system" in shows.stdout
    assert not (tmp_path / "more").exists()


def test_an_engine_that_is_away_is_one_sentence_and_a_code_of_its_own(capsys):
    """No traceback."""
    what = {
        "engine": "unix:///nowhere.sock",
        "image": "x",
        "program": "y",
        "name": "n",
        "labels": {},
        "reads": [],
    }
    assert 125 == main([json.dumps(what), "-v"])
    assert "no container engine answers" in capsys.readouterr().err
