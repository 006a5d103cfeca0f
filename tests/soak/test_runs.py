"""Runs on disk: created private, locked by the kernel, found by name, told apart when dead."""

import json
import os
import socket
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from soak import runs
from soak.errors import RunStateError, StoreError
from soak.plan import Plan
from soak.rundir import RunDir
from soak.runs import (
    MIB,
    all_runs,
    check_space,
    check_writable,
    create_run,
    existing_parent,
    find_live,
    find_run,
    hold,
    leftovers,
    live_runs,
    lock_holder,
    remove_run,
    run_name,
    space_needed,
)
from soak.web.socketpath import short_path

PLAN = Plan()


class Noon:
    """A clock that stands at noon of 1 December 2026."""

    def monotonic_ns(self):
        return 0

    def wall_s(self):
        return datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()

    async def sleep(self, seconds):
        raise NotImplementedError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def make(home: Path, mtime_s: int, directory: Path | None = None) -> RunDir:
    """Create a run whose plan was written at ``mtime_s``."""
    run = create_run(PLAN, "rate: 1\n", home=home, directory=directory, clock=Noon())
    os.utime(run.plan, (mtime_s, mtime_s))
    return run


def bind(run: RunDir) -> None:
    """Leave a stale socket, as a killed daemon does."""
    with socket.socket(socket.AF_UNIX) as server, short_path(run.socket) as path:
        server.bind(path)


def test_a_new_run_is_private_and_holds_its_plan(home):
    """0700, and the plan 0600: certificates' keys will live there."""
    run = create_run(PLAN, "rate: 1\n", home=home, clock=Noon())
    assert home / "runs" / "2026-12-01T12-00-00-nginx" == run.path
    assert "rate: 1\n" == run.plan.read_text()
    assert (0o700, 0o600) == tuple(stat.S_IMODE(p.stat().st_mode) for p in (run.path, run.plan))


def test_names_are_unique_within_a_second(home):
    """A number is added."""
    ids = [create_run(PLAN, "", home=home, clock=Noon()).id for _ in range(3)]
    assert ["2026-12-01T12-00-00-nginx" + tail for tail in ("", "-2", "-3")] == ids


def test_a_name_is_safe_whatever_the_proxy_is_called():
    """No slash can get into a path."""
    plan = Plan.model_validate({"proxy": {"kind": "../My Proxy"}})
    assert "2026-12-01T12-00-00-..-my-proxy" == run_name(plan, Noon())


def test_a_chosen_directory_is_found_like_any_other(home, tmp_path):
    """Through a symlink under home."""
    run = make(home, 1, tmp_path / "mine")
    assert [run] == all_runs(home)
    assert run == find_run("mine", home) == find_run(str(tmp_path / "mine"), home) == find_run(None, home)
    assert 0o700 == stat.S_IMODE(run.path.stat().st_mode)


def test_two_chosen_directories_of_one_name_are_both_listed(home, tmp_path):
    """And a link whose run was deleted is reused."""
    first, second = (make(home, n, tmp_path / str(n) / "mine") for n in (1, 2))
    assert [first, second] == all_runs(home)
    assert second == find_run("mine-2", home)
    remove_run(second, home=home)
    assert [first] == all_runs(home)
    first.plan.unlink()
    first.path.rmdir()
    again = make(home, 3, tmp_path / "3" / "mine")
    assert [again] == all_runs(home)
    assert ["mine"] == [p.name for p in (home / "runs").iterdir()]


def test_a_taken_directory_is_refused_and_untouched(home, tmp_path):
    """An earlier run, other files, and a live run are three sentences."""
    run = make(home, 1, tmp_path / "mine")
    with pytest.raises(RunStateError, match="holds an earlier run"):
        make(home, 1, run.path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("x")
    with pytest.raises(RunStateError, match="holds other files"):
        make(home, 1, other)
    with hold(run), pytest.raises(RunStateError, match=rf"a run is live in {run.path} \(pid {os.getpid()}\)"):
        make(home, 1, run.path)
    assert ["thesis.txt"] == [p.name for p in other.iterdir()]


@pytest.mark.parametrize("place", ["/dev/null/soak", "/proc/soak"])
def test_a_place_that_cannot_be_written_is_named_and_nothing_is_left(place):
    """With the way out."""
    for attempt in (lambda: make(Path(place), 1), lambda: make(Path("/nonexistent"), 1, Path(place))):
        with pytest.raises(StoreError, match=f"cannot write to {place}.*SOAK_HOME or --dir"):
            attempt()
    assert not Path("/nonexistent").exists()


def test_of_two_starts_at_the_same_moment_one_gets_the_directory_and_keeps_it(home, tmp_path, monkeypatch):
    """Both found it empty; the slower one must not clean up what is the other's."""
    place = tmp_path / "mine"
    look = runs._own_directory

    def overtaken(path: Path) -> Path:
        found = look(path)
        (path / "plan.yaml").write_text("theirs")
        (path / "run.db").write_text("theirs, too")
        return found

    monkeypatch.setattr(runs, "_own_directory", overtaken)
    with pytest.raises(
        RunStateError, match=r"another start took the directory .*/mine at the same moment; give"
    ):
        create_run(PLAN, "rate: 1\n", home=home, directory=place)
    assert ["theirs", "theirs, too"] == [(place / name).read_text() for name in ("plan.yaml", "run.db")]


def test_a_run_is_removed_when_its_plan_cannot_be_kept(home, tmp_path, monkeypatch):
    """A full disk at the very start leaves no empty directory behind."""

    def full(_path, _text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("soak.runs._write_private", full)
    with pytest.raises(StoreError, match="is full; free some space"):
        make(home, 1, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()
    assert [] == all_runs(home)


def test_the_lock_says_who_holds_it_and_falls_with_its_holder(home):
    """Pid and start time, readable by anybody, gone with the file descriptor."""
    run = make(home, 1)
    assert lock_holder(run) is None
    with hold(run):
        holder = lock_holder(run)
        assert holder is not None
        assert (os.getpid(), psutil.Process().create_time()) == (holder.pid, holder.started)
        assert [run] == live_runs(home)
        with pytest.raises(RunStateError, match=rf"already live \(pid {os.getpid()}\)"), hold(run):
            pass
    assert lock_holder(run) is None
    assert os.getpid() == json.loads(run.lock.read_text())["pid"]


def test_a_reader_that_looks_does_not_keep_the_daemon_out(home):
    """A shared lock held for an instant is waited for."""
    import fcntl
    import threading

    run = make(home, 1)
    run.lock.touch()
    with run.lock.open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        threading.Timer(0.1, lambda: fcntl.flock(reader, fcntl.LOCK_UN)).start()
        with hold(run):
            assert lock_holder(run) is not None


def test_a_killed_holder_holds_nothing(home):
    """The kernel drops the lock, whatever the file says."""
    run = make(home, 1)
    code = (
        "import sys; from pathlib import Path; from soak.rundir import RunDir; from soak.runs import hold\n"
        "with hold(RunDir(Path(sys.argv[1]))):\n  print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert b"held\n" == child.stdout.readline()
        holder = lock_holder(run)
        assert holder is not None
        assert child.pid == holder.pid
        child.kill()
        child.wait()
    assert lock_holder(run) is None


def test_a_lock_whose_content_is_not_yet_written_is_still_held(home):
    """Between the flock and the JSON."""
    run = make(home, 1)
    with hold(run):
        os.truncate(run.lock, 0)
        holder = lock_holder(run)
        assert holder is not None
        assert 0 == holder.pid


def test_without_a_name_the_live_run_is_meant_else_the_newest(home):
    """By the time at which its plan was written."""
    old, new = make(home, 1), make(home, 2)
    assert new == find_run(None, home)
    with hold(old):
        assert old == find_run(None, home) == find_live(None, home)
        with hold(new):
            for find in (find_run, find_live):
                with pytest.raises(RunStateError, match=f"2 runs are live, name one: {old.id}, {new.id}"):
                    find(None, home)
            assert new == find_live(new.id, home)


def test_no_run_at_all_says_how_to_begin_one(home):
    """For each way of asking."""
    for ask in (lambda: find_run(None, home), lambda: find_live(None, home), lambda: find_run("x", home)):
        with pytest.raises(RunStateError, match="'soak start' begins one"):
            ask()
    assert [] == all_runs(home)


def test_a_wrong_name_is_answered_with_the_nearest(home):
    """One letter off is enough."""
    run = make(home, 1)
    with pytest.raises(RunStateError, match=f"did you mean '{run.id}'"):
        find_run(run.id[:-1], home)


@pytest.mark.parametrize("name", [".", "/tmp", "./x"])
def test_a_path_without_a_run_is_told_so(home, name, tmp_path, monkeypatch):
    """Not confused with an id."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunStateError, match="is not the directory of a run"):
        find_run(name, home)


def test_an_ended_and_a_killed_run_are_told_apart(home):
    """A socket that nobody listens on is the mark of a kill."""
    run = make(home, 1)
    with pytest.raises(RunStateError, match=f"the run {run.id} is over; 'soak report"):
        find_live(run.id, home)
    with pytest.raises(RunStateError, match="no run is live in"):
        find_live(None, home)
    bind(run)
    for name in (run.id, None):
        with pytest.raises(RunStateError, match=f"is dead: .* stale socket; 'soak heal {run.id}'"):
            find_live(name, home)
    assert ["a stale socket"] == leftovers(run)
    with hold(run):
        assert [] == leftovers(run)


def test_processes_of_a_dead_run_are_leftovers(home):
    """Known by their directory and their environment."""
    run = make(home, 1)
    run.lab.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        cwd=run.lab,
        env={**os.environ, "SOAK_RUN": run.id},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        assert ["1 process"] == leftovers(run)
        child.kill()
    assert [] == leftovers(run)


def test_a_run_that_lost_its_plan_is_still_one(home):
    """Its store can be reported and what it left behind must be found; a directory with nothing in it is no run."""
    one, two, three = (make(home, n) for n in (1, 2, 3))
    one.db.write_text("")
    two.journal.write_text("")
    for run in (one, two, three):
        run.plan.unlink()
    assert {one.id, two.id} == {run.id for run in all_runs(home)}
    assert one.path == find_run(one.id, home).path


def test_what_else_lies_among_the_runs_is_passed_over(home):
    """A circle of symlinks, a link to nowhere, a file."""
    run = make(home, 1)
    among = run.path.parent
    (among / "circle").symlink_to("circle")
    (among / "nowhere").symlink_to("gone")
    (among / "file").write_text("x")
    assert [run.id] == [found.id for found in all_runs(home)]


def test_listing_says_why_it_cannot(tmp_path):
    """A file where the directory should be."""
    (tmp_path / "runs").write_text("x")
    with pytest.raises(StoreError, match=r"cannot list the runs in .*: Not a directory; set SOAK_HOME to"):
        all_runs(tmp_path)


def test_what_a_day_needs_is_within_its_promise():
    """Under 200 MB of disk for 24 h, and more for longer."""
    assert 100 * MIB < space_needed(PLAN) < 200 * 1_000_000 + 24 * MIB
    assert space_needed(Plan(length=60.0)) < 25 * MIB


def test_too_little_space_names_both_numbers(tmp_path):
    """And the ways out."""

    def nearly_full(_path):
        return os.statvfs_result((4096, 4096, 1000, 256, 256, 0, 0, 0, 0, 255))

    with pytest.raises(StoreError, match="has 1 MiB free and this plan may write 5 MiB; free some space"):
        check_space(tmp_path / "new", 5 * MIB, nearly_full)
    assert MIB == check_space(tmp_path / "new", MIB, nearly_full)


def test_the_write_test_writes_for_real_and_leaves_nothing(tmp_path):
    """In the closest directory that exists."""
    check_writable(tmp_path / "a" / "b")
    assert [] == list(tmp_path.iterdir())
    assert tmp_path == existing_parent(tmp_path / "a" / "b")
    with pytest.raises(StoreError, match="cannot write to /proc/soak/runs"):
        check_writable(Path("/proc/soak/runs"))
