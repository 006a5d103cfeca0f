"""What soak overwrites is put back byte by byte, whatever it was, by whoever comes later."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.lab.originals import Originals
from tests.oddfiles import ODD, make_odd


def test_files_links_and_nothing_are_put_back_as_they_were(tmp_path: Path):
    """Content, mode, a link as a link, and what was not there is not there again."""
    place = tmp_path / "etc"
    place.mkdir()
    conf, key, link, absent = (place / name for name in ("nginx.conf", "site.key", "site.pem", "routes.conf"))
    conf.write_bytes(b"mine\xff")
    key.write_text("secret")
    key.chmod(0o640)
    link.symlink_to("archive/site-7.pem")
    originals = Originals(tmp_path / "originals")

    originals.keep([conf, key, link, absent])
    for path in (conf, key, link, absent):
        path.unlink(missing_ok=True)
        path.write_text("soak's")

    assert originals.kept
    assert [] == Originals(tmp_path / "originals").put_back()
    assert b"mine\xff" == conf.read_bytes()
    assert ("secret", 0o640) == (key.read_text(), key.stat().st_mode & 0o7777)
    assert "archive/site-7.pem" == str(link.readlink())
    assert not absent.exists()


def test_copies_are_private_and_go_when_they_are_not_needed_any_more(tmp_path: Path):
    """They may be keys. Putting back twice is no harm."""
    key = tmp_path / "site.key"
    key.write_text("secret")
    originals = Originals(tmp_path / "originals")
    originals.keep([key, key])
    copies = list((tmp_path / "originals").glob("*.original"))
    assert [0o600] == [copy.stat().st_mode & 0o7777 for copy in copies]

    assert [] == originals.put_back() == originals.put_back()
    originals.forget()
    originals.forget()

    assert not originals.kept
    assert [] == list((tmp_path / "originals").iterdir())
    key.write_text("new")
    assert [] == originals.put_back()
    assert "new" == key.read_text()


def test_what_cannot_be_put_back_is_named_and_the_rest_is(tmp_path: Path):
    """A directory that somebody removed."""
    gone, stays = tmp_path / "gone" / "a.conf", tmp_path / "b.conf"
    gone.parent.mkdir()
    for path in (gone, stays):
        path.write_text("mine")
    originals = Originals(tmp_path / "originals")
    originals.keep([gone, stays])
    gone.unlink()
    gone.parent.rmdir()
    stays.write_text("soak's")

    assert [f"{gone} could not be put back: No such file or directory"] == originals.put_back()
    assert "mine" == stays.read_text()
    assert originals.kept


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_regular_file_is_named_and_nobody_waits_for_it(tmp_path: Path, kind: str):
    """Before the run as one of the proxy's own files, and afterwards as a copy or as the list of them."""
    own, kept = tmp_path / "nginx.conf", tmp_path / "kept"
    make_odd(tmp_path / "odd", kind)
    if kind != "device":  # it is a link, and a link is kept as one
        with pytest.raises(OSError, match="not a regular file"):
            Originals(kept).keep([tmp_path / "odd"])
    own.write_text("mine")
    Originals(kept).keep([own])
    make_odd(kept / "0.original", kind)
    assert [f"{own} could not be put back: not a regular file"] == Originals(kept).put_back()
    make_odd(kept / "originals.json", kind)
    with pytest.raises(OSError, match="not a regular file"):
        Originals(kept).put_back()
