"""A store is opened for reading whatever a run left behind, and nothing is left behind by reading."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from soak.errors import StoreError
from soak.store import StoreReader, StoreWriter, opening
from tests.soak.synthetic import report, window


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


def test_reads_a_killed_run_up_to_its_last_commit(path):
    """SIGKILL leaves the write-ahead log behind; what was committed is all there."""
    kill_after_commit(path)
    assert path.with_name("run.db-wal").stat().st_size > 0
    with StoreReader(path) as r:
        assert [0, 1, 2] == [w.second for w in r.windows()]
        latency, service, lag, _ = r.histograms()["get"]
        assert 300 == latency.count == service.count == lag.count
        assert "" == r.fallback


@pytest.mark.parametrize("name", ["a?b#c%d", "\udcff", "ä b", "a\nb"])
def test_reads_whatever_the_directory_is_called(tmp_path, name):
    """A run that was renamed to bytes that are no text must not hide the others; SQLite is given a URI."""
    home = tmp_path / name
    home.mkdir()
    with StoreWriter(home / "run.db"):
        pass
    with StoreReader(home / "run.db") as r:
        assert [] == list(r.windows())


@pytest.mark.parametrize("killed", [True, False])
def test_reads_from_a_read_only_directory(killed):
    """A killed run is copied with its log, a finished one opened as immutable; both knowingly."""
    base = Path(tempfile.mkdtemp(prefix="soak-test-"))
    try:
        path = base / "run.db"
        if killed:
            kill_after_commit(path)
            path.with_name("run.db-shm").unlink()
        else:
            with StoreWriter(path) as w:
                for s in range(3):
                    w.add_report(report(s, window(s)))
            make_wal_again(path)
        for p in base.iterdir():
            p.chmod(0o444)
        base.chmod(0o555)
        seconds, fallback = read_as_nobody(path)
        assert "0 1 2" == seconds
        assert (
            "read from a copy with its write-ahead log" if killed else "read as an immutable file"
        ) in fallback
    finally:
        base.chmod(0o755)
        shutil.rmtree(base)


@pytest.mark.parametrize("fails", ["copyfile", "connect"])
def test_a_copy_that_fails_is_removed_at_once(path, tmp_path, monkeypatch, fails):
    """A full /tmp is one sentence with both reasons, and the half copy is not left for the garbage collector."""
    kill_after_commit(path)
    places = tmp_path / "tmp"
    places.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(places))
    real = opening._connect

    def connect(uri: str) -> sqlite3.Connection:
        if fails == "copyfile" or str(places) not in uri:
            raise sqlite3.OperationalError("attempt to write a readonly database")
        raise sqlite3.OperationalError("disk I/O error")

    def copyfile(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(opening, "_connect", connect)
    if fails == "copyfile":
        monkeypatch.setattr(shutil, "copyfile", copyfile)
    with pytest.raises(
        StoreError, match=r"attempt to write a readonly.*nor as a copy: .*(No space|disk I/O)"
    ):
        StoreReader(path)

    assert [] == list(places.iterdir())
    monkeypatch.setattr(opening, "_connect", real)
    with StoreReader(path) as reader:
        assert 2 == reader.last_second()


def test_a_file_of_which_the_version_cannot_be_read_is_closed_again(path, monkeypatch):
    """Whatever goes wrong after the file was opened."""
    StoreWriter(path).close()
    closed = []

    def broken(*_: object) -> int:
        raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr("soak.store.schema.check", broken)
    monkeypatch.setattr(opening.Opened, "close", lambda opened: closed.append(opened.db.close()))
    with pytest.raises(sqlite3.DatabaseError, match="malformed"):
        StoreReader(path)

    assert [None] == closed


KILLED = """
import os, signal, sys
from pathlib import Path
from soak.model import Phase, Scope
from soak.store import StoreWriter
from tests.soak.synthetic import report, window
w = StoreWriter(Path(sys.argv[1]))
w.add_scope(Scope(0, Phase.STEADY))
for s in range(3):
    w.add_report(report(s, window(s)))
w.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""

READ = """
import os, sys
from pathlib import Path
from soak.store import StoreReader
if os.geteuid() == 0:
    os.setuid(65534)
with StoreReader(Path(sys.argv[1])) as r:
    print(*[w.second for w in r.windows()])
    print(r.fallback)
"""


def kill_after_commit(path: Path) -> None:
    """Let a real process write a store and be killed."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)], cwd=Path(__file__).parents[3], check=False
    )
    assert -signal.SIGKILL == done.returncode


def make_wal_again(path: Path) -> None:
    """Make sure that the header says WAL, as an older soak or another tool may have left it."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.close()


def read_as_nobody(path: Path) -> tuple[str, str]:
    """Read the store in a process that may not write beside it (root may write anywhere, so it steps down)."""
    env = {**os.environ, "TMPDIR": "/tmp"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(READ), str(path)],
        cwd=Path(__file__).parents[3],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = done.stdout.splitlines()
    return first, second
