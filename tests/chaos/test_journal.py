"""The journal: on disk before it returns, readable after any crash, honest about damage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.journal import Intent, Journal, JournalError, Step, open_undos, parse_journal, read_journal
from chaos.model import FaultShape, Source, Undo


def intent(number: int = 1, **state: object) -> Intent:
    undo = Undo("b1", identity={"pid": 7, "started": 1.5}, state=state)
    return Intent(number, "backend-down", FaultShape.FAULT, undo, Source.INJECT, 3.25, 10.0)


@pytest.fixture(scope="module")
def bytes_of_a_life(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A journal of two faults, the first one closed."""
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    with Journal(path, t0_ns=99) as journal:
        journal.intent(intent(1, words='é\n\u2028 \\ "'), 3.0)
        for step in (Step.INJECTING, Step.INJECTED, Step.REVERTED, Step.CLEAN):
            journal.step(1, step, 4.0)
        journal.intent(intent(2), 5.0)
        journal.step(2, Step.INJECTING, 5.5)
    return path.read_bytes()


def test_what_was_written_is_read(tmp_path: Path):
    """An intent comes back whole: kind, source, instants and its undo."""
    path = tmp_path / "journal.jsonl"
    with Journal(path, t0_ns=12) as journal:
        journal.intent(intent(1, port=80), 3.0)
    contents = read_journal(path)
    assert contents.entries[0].intent == intent(1, port=80)
    assert (contents.t0_ns, contents.torn, contents.damage) == (12, False, ())


def test_open_undos_are_those_that_no_step_closed_newest_first(tmp_path: Path):
    """Clean and healed close an intent; every other step leaves it open, dirty above all."""
    with Journal(tmp_path / "j") as journal:
        for number in range(1, 6):
            journal.intent(intent(number), 0.0)
        journal.step(2, Step.CLEAN, 1.0)
        journal.step(3, Step.HEALED, 1.0)
        journal.step(4, Step.DIRTY, 1.0)
        journal.step(5, Step.REVERTED, 1.0)
    assert [i.fault_id for i in open_undos(tmp_path / "j")] == [5, 4, 1]


def test_a_journal_that_does_not_exist_has_nothing_open(tmp_path: Path):
    """A run that died before its first fault needs no undo."""
    assert open_undos(tmp_path / "none") == ()


def test_every_append_is_on_disk_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each append is followed by an fsync of the file; creation by one of its directory."""
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    path = tmp_path / "j"
    with Journal(path) as journal:
        assert str(tmp_path) in synced
        synced.clear()
        journal.intent(intent(), 0.0)
        journal.step(1, Step.INJECTING, 0.0)
        assert synced == [str(path)] * 2


@given(data=st.data())
def test_torn_at_any_byte_it_reads_all_whole_lines(bytes_of_a_life: bytes, data: st.DataObject):
    """A crash while writing loses at most the line that was being written, and reports no damage."""
    cut = data.draw(st.integers(0, len(bytes_of_a_life)))
    whole = parse_journal(bytes_of_a_life)
    torn = parse_journal(bytes_of_a_life[:cut])
    ended_lines = bytes_of_a_life[:cut].count(b"\n")
    assert torn.damage == ()
    assert torn.entries == whole.entries[: len(torn.entries)]
    assert len(torn.entries) >= ended_lines - 1  # the first line is the run's


@given(data=st.data())
def test_torn_at_any_byte_it_can_be_written_again(
    tmp_path_factory: pytest.TempPathFactory, bytes_of_a_life: bytes, data: st.DataObject
):
    """The next writer cuts the torn line off and goes on; nothing but that line is missing then."""
    cut = data.draw(st.integers(0, len(bytes_of_a_life)))
    path = tmp_path_factory.mktemp("torn") / "j"
    path.write_bytes(bytes_of_a_life[:cut])
    before = read_journal(path).entries
    with Journal(path, t0_ns=5) as journal:
        journal.step(1, Step.HEALED, None)
    after = read_journal(path)
    assert (after.damage, after.torn) == ((), False)
    assert after.entries[:-1] == before
    assert after.entries[-1].step is Step.HEALED
    assert path.read_bytes().endswith(b"\n")


@given(tail=st.binary(max_size=200).filter(lambda b: b"\n" not in b))
def test_garbage_at_the_end_is_torn_not_damage(bytes_of_a_life: bytes, tail: bytes):
    """A tail of zeroes or noise, as a power cut leaves it, costs nothing that was acknowledged."""
    contents = parse_journal(bytes_of_a_life + tail)
    assert contents.entries == parse_journal(bytes_of_a_life).entries
    assert contents.damage == ()


def test_damage_in_the_middle_is_told_and_the_rest_is_read(bytes_of_a_life: bytes):
    """A line that cannot be read is named, and a healer still gets everything else."""
    lines = bytes_of_a_life.splitlines(keepends=True)
    lines[2] = b'{"seq":2,"entry"\n'
    contents = parse_journal(b"".join(lines))
    assert len(contents.damage) == 1
    assert contents.damage[0].startswith("journal line 3 cannot be read (JSONDecodeError")
    assert [i.fault_id for i in contents.open_intents()] == [2]


def test_a_missing_line_is_told(bytes_of_a_life: bytes):
    """Numbers show that a whole line was lost."""
    lines = bytes_of_a_life.splitlines(keepends=True)
    contents = parse_journal(b"".join(lines[:3] + lines[4:]))
    assert contents.damage == ("journal line 4 has number 4 where 3 was due",)


@pytest.mark.parametrize(
    "line", [b"[]\n", b"1\n", b"null\n", b'{"seq":"x"}\n', b'{"seq":0,"entry":"step"}\n', b"\xff\xfe\n"]
)
def test_lines_of_any_other_shape_are_damage_not_a_crash(line: bytes):
    """Whatever stands there, reading goes on."""
    good = b'{"seq":1,"entry":"step","at_s":1.0,"fault":1,"step":"clean","data":{}}\n'
    contents = parse_journal(line + good)
    assert len(contents.entries) == 1
    assert len(contents.damage) == 1


def test_a_second_writer_goes_on_counting(tmp_path: Path):
    """Numbers continue over a reopening, and the start of the run is kept."""
    for at_s in (1.0, 2.0, 3.0):
        with Journal(tmp_path / "j", t0_ns=7) as journal:
            journal.step(1, Step.REVERTING, at_s)
    contents = read_journal(tmp_path / "j")
    assert [e.seq for e in contents.entries] == [1, 2, 3]
    assert (contents.t0_ns, contents.damage) == (7, ())


def test_a_disk_that_fills_up_is_a_journal_error_and_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A write that fails half way is cut off again, so that the next one is readable."""
    real = os.write
    with Journal(tmp_path / "j") as journal:
        journal.step(1, Step.INJECTING, 0.0)
        full = False

        def write(fd: int, data: bytes) -> int:
            nonlocal full
            if full:
                raise OSError(28, "No space left on device")
            full = True
            return real(fd, data[:5])

        monkeypatch.setattr(os, "write", write)
        with pytest.raises(JournalError, match=r"cannot write the journal .*: No space left on device"):
            journal.step(1, Step.REVERTED, 1.0)
        monkeypatch.undo()
        journal.step(1, Step.CLEAN, 2.0)
    contents = read_journal(tmp_path / "j")
    assert [e.step for e in contents.entries] == [Step.INJECTING, Step.CLEAN]
    assert contents.damage == ()


def test_a_journal_that_cannot_be_created_says_where(tmp_path: Path):
    """The sentence names the path and the reason."""
    with pytest.raises(JournalError, match=r"cannot open the journal .*/no/j: No such file or directory"):
        Journal(tmp_path / "no" / "j")


def test_evidence_that_is_not_json_is_refused(tmp_path: Path):
    """An undo that could not be read back must not be written."""
    with Journal(tmp_path / "j") as journal, pytest.raises(TypeError, match="is not JSON"):
        journal.step(1, Step.CLEAN, 0.0, what=object())


def test_closing_twice_is_harmless(tmp_path: Path):
    """A second close does nothing."""
    journal = Journal(tmp_path / "j")
    journal.close()
    journal.close()


def test_the_journal_is_private(tmp_path: Path):
    """Only its owner may read it: undos may name paths and pids."""
    Journal(tmp_path / "j").close()
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o600
