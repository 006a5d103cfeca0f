"""Where runs are: creating, locking, listing and finding run directories, and telling live from dead.

A run lives in ``HOME/runs/ID``; one that was put elsewhere with ``--dir`` has a symlink there, so that every command
finds it. A run is live while its daemon holds the flock on ``daemon.lock``: the kernel drops it however the daemon ends,
so no pid file can lie.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from soak.clock import Clock, SystemClock, iso_utc
from soak.errors import RunStateError, StoreError, nearest
from soak.lab.attachstate import still_borrowed
from soak.lab.dockerstate import still_there
from soak.lab.sweep import processes_of
from soak.plan import Plan
from soak.rundir import RunDir, soak_home

_LOCK_TRIES = 40
_LOCK_WAIT_S = 0.025

MIB = 1024 * 1024
SPACE_BASE = 24 * MIB
"""What any run needs: rendered configs, certificates, logs, the write-ahead log of the store."""
SPACE_PER_CLASS_SECOND = 700
"""Bytes of store, upper estimate, for one second of one traffic class; faults and events are small beside it."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a run: the daemon's pid and its process's start time, as written into the lock."""

    pid: int
    started: float


def runs_home(home: Path | None = None) -> Path:
    """Return the directory that holds the runs."""
    return (home or soak_home()) / "runs"


def create_run(
    plan: Plan,
    plan_text: str,
    *,
    home: Path | None = None,
    directory: Path | None = None,
    clock: Clock | None = None,
) -> RunDir:
    """Create the directory of a new run (0700) with the plan as run in it.

    ``directory`` puts it there instead of under ``home``; it must be new or empty. Raises ``RunStateError`` when it is
    taken and ``StoreError`` when it cannot be written; whatever was created is removed again.
    """
    parent = runs_home(home)
    if directory is None:
        run = RunDir(_new_directory(parent, run_name(plan, clock or SystemClock())))
    else:
        run = RunDir(_own_directory(directory.expanduser().absolute()))
    try:
        _claim(run, plan_text)
        if directory is not None:
            _register(run, parent)
    except OSError as error:
        remove_run(run, home=home)
        raise StoreError(_unwritable(run.path, error)) from error
    return run


def _claim(run: RunDir, plan_text: str) -> None:
    """Write the plan, which makes the directory this run's. Raises ``RunStateError`` when it is another's by now."""
    try:
        _write_private(run.plan, plan_text)
    except FileExistsError as error:  # then nothing in there is ours to remove
        raise RunStateError(
            f"another start took the directory {run.path} at the same moment; give --dir a new one"
        ) from error


def remove_run(run: RunDir, *, home: Path | None = None) -> None:
    """Remove a run that never began, and its symlink."""
    parent = runs_home(home)
    if parent.is_dir():
        for link in parent.iterdir():
            if link.is_symlink() and link.readlink() == run.path:
                link.unlink(missing_ok=True)
    shutil.rmtree(run.path, ignore_errors=True)


def run_name(plan: Plan, clock: Clock) -> str:
    """Return ``2026-12-01T08-00-00-nginx``: sorts by time, is a file name everywhere."""
    stamp = iso_utc(clock.wall_s()).rstrip("Z").replace(":", "-")
    return f"{stamp}-{re.sub(r'[^a-z0-9.]+', '-', plan.proxy.label.lower())}"


def _new_directory(parent: Path, name: str) -> Path:
    """Create a directory of this name; a number is added when it is taken."""
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for n in range(1, 1000):
            path = parent / (name if n == 1 else f"{name}-{n}")
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
                return path
    except OSError as error:
        raise StoreError(_unwritable(parent, error)) from error
    raise StoreError(f"{parent} holds a thousand runs named {name}; remove some")


def _own_directory(path: Path) -> Path:
    """Create or take an empty directory that the user chose."""
    run = RunDir(path)
    if holder := lock_holder(run):
        raise RunStateError(
            f"a run is live in {path} (pid {holder.pid}); 'soak stop {path}' ends it, another --dir starts a second one"
        )
    try:
        if path.is_dir() and any(path.iterdir()):
            what = "an earlier run" if run.plan.exists() or run.db.exists() else "other files"
            raise RunStateError(f"the directory {path} holds {what}; give --dir a new or an empty directory")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise StoreError(_unwritable(path, error)) from error
    return path


def _register(run: RunDir, parent: Path) -> None:
    """Leave a symlink to a run that lives elsewhere."""
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for n in range(1, 1000):
        link = parent / (run.id if n == 1 else f"{run.id}-{n}")
        try:
            link.symlink_to(run.path)
        except FileExistsError:
            if link.is_symlink() and link.readlink() == run.path:
                return
            if link.is_symlink() and not link.exists():
                link.unlink()
                link.symlink_to(run.path)
                return
        else:
            return


def _write_private(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _unwritable(path: Path, error: OSError) -> str:
    why = error.strerror or str(error)
    if error.errno == errno.ENOSPC:
        return f"the file system of {path} is full; free some space, or choose another place with SOAK_HOME or --dir"
    return f"cannot write to {path}: {why}; choose a writable place with SOAK_HOME or --dir"


# Locking


@contextmanager
def hold(run: RunDir) -> Iterator[None]:
    """Hold a run for the life of the context: the daemon's claim that it alone runs it.

    Raises ``RunStateError`` naming the holder when somebody else does.
    """
    fd = os.open(run.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(fd, run)
        me = {"pid": os.getpid(), "started": psutil.Process().create_time()}
        os.truncate(fd, 0)
        os.pwrite(fd, json.dumps(me).encode(), 0)
        os.fsync(fd)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, run: RunDir) -> None:
    """Take the flock; wait a moment for readers, who hold a shared one for an instant while they look."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            threading.Event().wait(_LOCK_WAIT_S)
        else:
            return
    holder = lock_holder(run)
    pid = f" (pid {holder.pid})" if holder else ""
    raise RunStateError(f"the run {run.id} is already live{pid}; 'soak stop {run.id}' ends it")


def lock_holder(run: RunDir) -> Holder | None:
    """Return who holds a run, or None when nobody does. Never blocks; a pid of 0 means that it is not yet written."""
    try:
        fd = os.open(run.lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read_holder(fd)
        return None
    finally:
        os.close(fd)


def _read_holder(fd: int) -> Holder:
    try:
        value: Any = json.loads(os.pread(fd, 4096, 0))
        return Holder(int(value["pid"]), float(value["started"]))
    except (ValueError, KeyError, TypeError):
        return Holder(0, 0.0)


# Listing and finding


def all_runs(home: Path | None = None) -> list[RunDir]:
    """Return every run, oldest first (by the time at which its plan was written), also one that lost its plan."""
    parent = runs_home(home)
    try:
        entries = list(parent.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(
            f"cannot list the runs in {parent}: {error.strerror}; set SOAK_HOME to a directory that you may read"
        ) from error
    dated: dict[Path, int] = {}
    for entry in entries:
        with contextlib.suppress(OSError, RuntimeError):  # no run; a circle of symlinks
            path = entry.resolve()
            dated[path] = _began_ns(RunDir(path))
    return [RunDir(path) for path in sorted(dated, key=lambda path: (dated[path], path.name))]


def _began_ns(run: RunDir) -> int:
    """Return when a run began, by the first of its files that is left. Raises ``OSError`` for a directory that is no run."""
    for path in (run.plan, run.journal):
        with contextlib.suppress(FileNotFoundError):
            return path.stat().st_mtime_ns
    return run.db.stat().st_mtime_ns


def live_runs(home: Path | None = None) -> list[RunDir]:
    """Return the runs whose daemon is alive, oldest first."""
    return [run for run in all_runs(home) if lock_holder(run)]


def find_run(name: str | None = None, home: Path | None = None) -> RunDir:
    """Return the run of an id or a path; without a name the live one, else the newest.

    Raises ``RunStateError`` when there is none, or when several are live and none was named.
    """
    if name is not None:
        return _named(name, home)
    live = live_runs(home)
    if len(live) > 1:
        raise RunStateError(_ambiguous(live))
    runs = live or all_runs(home)
    if not runs:
        raise RunStateError(f"there is no run in {runs_home(home)}; 'soak start' begins one")
    return runs[-1]


def find_live(name: str | None = None, home: Path | None = None) -> RunDir:
    """Return the live run of an id or a path; without a name, the only live one. Raises ``RunStateError``."""
    if name is not None:
        run = _named(name, home)
        if lock_holder(run) is None:
            raise RunStateError(_not_live(run))
        return run
    live = live_runs(home)
    if len(live) > 1:
        raise RunStateError(_ambiguous(live))
    if live:
        return live[0]
    if stale := [run for run in all_runs(home) if run.socket.is_socket()]:
        raise RunStateError(_not_live(stale[-1]))
    raise RunStateError(f"no run is live in {runs_home(home)}; 'soak start' begins one")


def _named(name: str, home: Path | None) -> RunDir:
    runs = all_runs(home)
    for run in runs:
        if run.id == name:
            return run
    if "/" in name or name in {".", ".."} or Path(name).is_dir():
        path = Path(name).expanduser().resolve()
        if RunDir(path).plan.exists():
            return RunDir(path)
        raise RunStateError(f"{name!r} is not the directory of a run: it has no plan.yaml")
    link = runs_home(home) / name
    if link.is_symlink() and RunDir(link.resolve()).plan.exists():
        return RunDir(link.resolve())
    if not runs:
        raise RunStateError(
            f"there is no run {name!r}: {runs_home(home)} holds none; 'soak start' begins one"
        )
    close = nearest(name, [run.id for run in runs[-8:]])
    raise RunStateError(f"there is no run {name!r}{close}; 'soak runs' lists all")


def _ambiguous(live: list[RunDir]) -> str:
    return f"{len(live)} runs are live, name one: {', '.join(run.id for run in live)}"


def _not_live(run: RunDir) -> str:
    if run.socket.is_socket():
        return (
            f"the run {run.id} is dead: its daemon is gone and left a stale socket; "
            f"'soak heal {run.id}' cleans up, 'soak report {run.id}' shows what it found"
        )
    return f"the run {run.id} is over; 'soak report {run.id}' shows it, 'soak start' begins another"


def leftovers(run: RunDir) -> list[str]:
    """Return what a dead run left behind, in words: processes, a stale socket. Empty for a live one and a clean one."""
    if lock_holder(run) is not None:
        return []
    left = still_borrowed(run) + still_there(run)
    if run.lab.is_dir() and (processes := processes_of(run)):
        left.append(f"{len(processes)} process{'es' if len(processes) > 1 else ''}")
    if run.socket.is_socket():
        left.append("a stale socket")
    return left


# Room for a run


def space_needed(plan: Plan) -> int:
    """Return an upper estimate of the bytes that a run writes."""
    return SPACE_BASE + int(plan.length * len(plan.traffic.classes) * SPACE_PER_CLASS_SECOND)


def existing_parent(path: Path) -> Path:
    """Return the path itself, or its closest parent that exists."""
    path = path.expanduser().absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def check_writable(path: Path) -> None:
    """Write, sync and remove a real file where runs are to live. Creates nothing that stays. Raises ``StoreError``."""
    place = existing_parent(path)
    probe = place / f".soak-probe-{os.getpid()}"
    try:
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, b"\0" * 65_536)
            os.fsync(fd)
        finally:
            os.close(fd)
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(_unwritable(path, error)) from error


def check_space(path: Path, needed: int, statvfs: Callable[[Path], os.statvfs_result] = os.statvfs) -> int:
    """Return the bytes free where runs are to live. Raises ``StoreError`` when they are fewer than needed."""
    stat = statvfs(existing_parent(path))
    free = stat.f_bavail * stat.f_frsize
    if free < needed:
        raise StoreError(
            f"{path} has {free / MIB:,.0f} MiB free and this plan may write {needed / MIB:,.0f} MiB; "
            "free some space, choose another place with SOAK_HOME or --dir, or shorten the run"
        )
    return free
