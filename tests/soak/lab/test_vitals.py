"""The census: sums over real processes, and tolerance for those that vanish."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import nullcontext

import psutil
import pytest

from soak.lab import vitals
from soak.lab.process import row_of
from soak.lab.vitals import Subject, executables_of, look, look_at, pids_of
from soak.proxies.base import ProcessRole

from .conftest import until


def myself(**fields) -> Subject:
    row = row_of(os.getpid())
    assert row is not None
    return Subject("daemon", row.identity, **fields)


def test_one_process_is_what_psutil_says_of_it():
    """Memory, CPU and files of ourselves."""
    vital = look(myself(), 12.5)
    process = psutil.Process()

    assert (12.5, "daemon", 1, 0) == (vital.at_s, vital.subject, vital.processes, vital.old_processes)
    assert process.memory_info().rss == pytest.approx(vital.rss_bytes, rel=0.1)
    assert process.num_fds() == pytest.approx(vital.fds, abs=2)
    assert 0 < vital.cpu_s <= sum(process.cpu_times()[:2]) + 1


async def test_time_of_workers_that_have_ended_stays_with_their_tree():
    """A reload that replaces workers must not look like CPU given back; one process alone answers for itself."""
    burn = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.3: pass'"
    process = subprocess.Popen(["/bin/sh", "-c", f"{burn}; exec sleep 60"], start_new_session=True)
    try:
        row = row_of(process.pid)
        assert row is not None
        await until(lambda: psutil.Process(process.pid).cmdline() == ["sleep", "60"])
        assert 0.2 < look(Subject("proxy", row.identity, tree=True), 1.0).cpu_s
        assert 0.2 > look(Subject("origin", row.identity), 1.0).cpu_s
    finally:
        process.kill()
        process.wait()


async def test_a_tree_is_summed_and_old_workers_are_counted():
    """Each process of the session counts; roles come from the command line."""
    process = subprocess.Popen(["/bin/sh", "-c", "sleep 61 & sleep 62 & wait"], start_new_session=True)
    try:
        row = row_of(process.pid)
        assert row is not None

        def role(cmdline: str) -> ProcessRole:
            return {"sleep 61": ProcessRole.WORKER, "sleep 62": ProcessRole.OLD_WORKER}.get(
                cmdline, ProcessRole.MASTER
            )

        subject = Subject("proxy", row.identity, tree=True, role=role)
        await until(lambda: look(subject, 0).old_processes == 1)
        (vital,) = await look_at([subject], 1.0)

        assert (3, 1) == (vital.processes, vital.old_processes)
        assert {"pid": process.pid, "roles": {"master": 1, "worker": 1, "old_worker": 1}} == vital.detail
        assert vital.rss_bytes > look(Subject("main", row.identity), 0).rss_bytes
        assert {os.path.realpath(psutil.Process(process.pid).exe())} <= set(executables_of(subject))
        assert [] == executables_of(Subject("proxy", row.identity, tree=True))
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def test_a_dead_subject_is_all_zeroes():
    """Not an error: the event of its death says more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    row = row_of(process.pid)
    assert row is not None
    process.wait()
    vital = look(Subject("b1", row.identity, tree=True), 1.0)

    assert (0, 0, 0, 0) == (vital.rss_bytes, vital.cpu_s, vital.fds, vital.processes)


def test_a_process_that_vanishes_while_it_is_looked_at_does_not_count(monkeypatch):
    """Each reload ends workers; the census goes on without them."""
    monkeypatch.setattr(vitals, "pids_of", lambda _: [os.getpid(), 2**22 + 1])
    subject = myself(role=lambda _: ProcessRole.WORKER)

    assert 1 == look(subject, 0).processes
    assert [os.path.realpath(sys.executable)] == executables_of(subject)


def test_a_process_that_has_given_its_memory_back_is_as_good_as_ended(monkeypatch):
    """The kernel frees memory before it shows a zombie; a look in between must not call that memory use of zero."""

    class Ending(psutil.Process):
        def oneshot(self):
            return nullcontext()

        def memory_info(self):
            return super().memory_info()._replace(rss=0)

    monkeypatch.setattr(psutil, "Process", Ending)
    assert 0 == look(myself(), 0).processes


async def test_the_census_runs_off_the_event_loop(monkeypatch):
    """Reading /proc may not delay anything else."""
    threads: list[threading.Thread] = []

    def note(_subject: Subject, _at_s: float) -> None:
        threads.append(threading.current_thread())

    monkeypatch.setattr(vitals, "look", note)
    await look_at([myself()], 0)

    assert threading.main_thread() not in threads
    assert 1 == len(threads)


async def test_look_at_nothing_is_nothing():
    """No subjects, no vitals."""
    assert [] == await asyncio.wait_for(look_at([], 0), 30)
    assert [] == pids_of(Subject("b1", {}))


def test_roles_may_be_told_from_all_processes_together():
    """For proxies whose processes look alike; one that is left out is of no role."""
    seen = []

    def roles(processes):
        seen.extend(processes)
        return {os.getpid(): ProcessRole.OLD_WORKER}

    vital = look(myself(roles=roles), 0)

    assert (1, {"old_worker": 1}) == (vital.old_processes, vital.detail["roles"])
    assert (os.getpid(), os.getppid()) == (seen[0].pid, seen[0].ppid)
    assert executables_of(myself(roles=roles)) == [psutil.Process().exe()]
    assert [] == executables_of(myself(roles=lambda _: {}))


async def test_who_is_told_in_roles_is_named_by_identity():
    """One that could not be read is there without a role; a subject without roles names nobody."""
    process = subprocess.Popen(["/bin/sh", "-c", "sleep 63 & wait"], start_new_session=True)
    try:
        row = row_of(process.pid)
        assert row is not None
        subject = Subject(
            "proxy",
            row.identity,
            tree=True,
            role=lambda line: ProcessRole.WORKER if line == "sleep 63" else ProcessRole.MASTER,
        )
        await until(lambda: look(subject, 0).detail["roles"] == {"master": 1, "worker": 1})
        vital = look(subject, 0)
        (worker,) = [member for member in vital.members if member.role == "worker"]

        assert {(process.pid, row.started, "master"), (worker.pid, worker.started, "worker")} == {
            (member.pid, member.started, member.role) for member in vital.members
        }
        assert worker.started >= row.started
        assert () == look(Subject("b1", row.identity, tree=True), 0).members
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def test_a_process_that_cannot_be_read_is_a_member_without_a_role(monkeypatch):
    """It is about to end, or somebody else's: that it lives is known."""

    class Foreign(psutil.Process):
        def num_fds(self):
            raise psutil.AccessDenied(self.pid)

    monkeypatch.setattr(psutil, "Process", Foreign)
    vital = look(myself(role=lambda _: ProcessRole.WORKER), 0)

    assert 0 == vital.processes
    assert [(os.getpid(), "other")] == [(member.pid, member.role) for member in vital.members]
