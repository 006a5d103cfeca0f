"""Reading on from a mark in a file that somebody else writes and that is cut now and then."""

from __future__ import annotations

from soak.lab.errorlog import ErrorLog


def test_only_what_came_after_the_mark_is_read(tmp_path):
    """Old complaints are not taken for new ones."""
    log = ErrorLog(tmp_path / "error.log")
    log.path.write_text("old\n")
    mark = log.mark()
    with log.path.open("a") as file:
        file.write("new\n")

    assert "new\n" == log.since(mark)


def test_a_missing_file_says_nothing(tmp_path):
    """Before the proxy has opened it there is nothing to read or to cut."""
    log = ErrorLog(tmp_path / "error.log")

    assert (0, "", 0) == (log.mark(), log.since(0), log.trim())


def test_a_cut_file_is_read_from_its_begin(tmp_path):
    """A mark past the end means that the file was cut meanwhile."""
    log = ErrorLog(tmp_path / "error.log")
    log.path.write_text("x" * 1000)
    mark = log.mark()
    log.path.write_text("new\n")

    assert "new\n" == log.since(mark)


def test_a_flood_is_read_from_its_end(tmp_path):
    """A reader never takes more than its bound, and sees the last line."""
    log = ErrorLog(tmp_path / "error.log")
    log.path.write_text("x" * 400_000 + "last\n")

    assert 256 * 1024 == len(log.since(0))
    assert log.since(0).endswith("last\n")


def test_a_long_file_is_cut_while_its_writer_goes_on(tmp_path):
    """The end is kept beside it, and an appending writer continues in the emptied file."""
    log = ErrorLog(tmp_path / "error.log")
    with log.path.open("ab", buffering=0) as writer:
        writer.write(b"a" * 100 + b"tail")
        cut = log.trim(above_bytes=50)
        writer.write(b"on")

    assert 104 == cut
    assert b"on" == log.path.read_bytes()
    assert (tmp_path / "error.log.1").read_bytes().endswith(b"tail")
    assert 0 == log.trim(above_bytes=50)


def test_a_full_disk_is_no_reason_to_keep_everything(tmp_path, monkeypatch):
    """The end that is kept beside it is a courtesy; what must not happen is that the file goes on growing."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    log = ErrorLog(tmp_path / "error.log")
    log.path.write_bytes(b"a" * 100)
    monkeypatch.setattr("pathlib.Path.write_bytes", full)

    assert 100 == log.trim(above_bytes=50)
    assert 0 == log.path.stat().st_size


def test_a_file_that_is_taken_away_during_the_cut_is_nothing_to_cut(tmp_path, monkeypatch):
    """The proxy's own log rotation may do that."""
    log = ErrorLog(tmp_path / "error.log")
    monkeypatch.setattr(log, "mark", lambda: 1000)

    assert 0 == log.trim(above_bytes=50)
