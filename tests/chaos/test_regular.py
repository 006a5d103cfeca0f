"""A file is read whole; what is none is refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.regular import read_regular
from tests.oddfiles import ODD, make_odd


def test_a_file_is_read_whole(tmp_path: Path):
    """Through a link, too; one that is missing is missing."""
    (tmp_path / "file").write_bytes(b"\0all of it\n")
    (tmp_path / "link").symlink_to("file")
    assert b"\0all of it\n" == read_regular(tmp_path / "file") == read_regular(tmp_path / "link")
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "nothing")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_regular_file_is_refused(tmp_path: Path, kind: str):
    """With its name, and without waiting for somebody to write."""
    make_odd(tmp_path / "odd", kind)
    with pytest.raises(OSError, match="not a regular file") as refused:
        read_regular(tmp_path / "odd")
    assert str(tmp_path / "odd") == refused.value.filename
