"""Which workers are missed: by identity and not by count, with what explains it, and what never does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from chaos.model import FaultRecord, Source
from soak.model import Member, Vital, WorkerEnd
from soak.workerwatch import WorkerWatch, told_of

DRAIN_S = 100.0
MASTER = Member(1, 1.0, "master")


def fault(number: int = 1, kind: str = "reload", target: str = "proxy") -> FaultRecord:
    return FaultRecord(number, kind, target, Source.SCHEDULE, 0.0, injected_s=0.0)


class Proxy:
    """A master with workers, looked at every five seconds. Each process starts a second after the one before."""

    def __init__(self, workers: int = 2, **watch: Any) -> None:
        self.watch = WorkerWatch(DRAIN_S, **watch)
        self.at_s = -5.0
        self.pid = 1
        self.master = MASTER
        self.workers: list[Member] = []
        self.fork(workers)

    def fork(self, n: int = 1) -> Sequence[Member]:
        born = [Member(self.pid + 1 + i, self.pid + 1.0 + i, "worker") for i in range(n)]
        self.pid += n
        self.workers += born
        return born

    def crash(self, *pids: int) -> None:
        """End workers; the master replaces each at once."""
        self.workers = [worker for worker in self.workers if worker.pid not in pids]
        self.fork(len(pids))

    def reload(self, role: str | None = "old_worker") -> Sequence[Member]:
        """Replace all workers; the old ones stay as ``role``, None: they end at once. Returns the old ones."""
        old, self.workers = self.workers, []
        self.fork(len(old))
        left = [Member(one.pid, one.started, role) for one in old] if role else []
        self.workers += left
        return left

    def end(self, members: Sequence[Member]) -> None:
        self.workers = [worker for worker in self.workers if worker not in members]

    def look(
        self, *faults: FaultRecord, after_s: float = 5.0, ends: Mapping[int, WorkerEnd] | None = None
    ) -> Sequence[int]:
        """Look again; returns the pids that are told."""
        self.at_s += after_s
        told = self.told(*faults, ends=ends)
        return [] if told is None else told["pids"]

    def told(
        self, *faults: FaultRecord, ends: Mapping[int, WorkerEnd] | None = None
    ) -> Mapping[str, Any] | None:
        vital = Vital(self.at_s, "proxy", 1, 1.0, 1, 3, members=[self.master, *self.workers])
        missing = self.watch.look(vital, faults)
        return None if missing is None else told_of(missing, ends or {})

    def calm(self) -> None:
        """Let all that a disturbance explains be over."""
        for _ in range(25):
            assert [] == self.look()


@pytest.fixture
def proxy() -> Proxy:
    proxy = Proxy()
    assert [] == proxy.look()
    return proxy


class TestMissed:
    def test_a_worker_that_was_replaced_between_two_looks_is_told(self, proxy):
        """There are as many as before; the identities say it."""
        proxy.crash(2)
        proxy.at_s += 5
        told = proxy.told()
        assert {"workers": 1, "pids": [2], "from_s": 0.0, "to_s": 5.0, "replaced": 1} == told
        assert [] == proxy.look()

    def test_one_that_nobody_replaces_is_told_as_such(self, proxy):
        """Another objective may miss it as well; here it is named."""
        proxy.end([proxy.workers[0]])
        proxy.at_s += 5
        told = proxy.told()
        assert told is not None
        assert (1, 0) == (told["workers"], told["replaced"])

    def test_more_new_ones_than_are_missing_replace_no_more(self, proxy):
        """Somebody wanted more workers, too."""
        proxy.crash(2)
        proxy.fork()
        proxy.at_s += 5
        told = proxy.told()
        assert told is not None
        assert 1 == told["replaced"]

    def test_several_are_told_at_once_and_again(self, proxy):
        """A worker that goes on crashing is told at each look."""
        proxy.crash(2, 3)
        assert [2, 3] == proxy.look()
        proxy.crash(5)
        assert [5] == proxy.look()

    def test_a_pid_that_was_given_to_another_is_another_worker(self, proxy):
        """Its start proves it."""
        proxy.workers[0] = Member(2, 77.0, "worker")
        assert [2] == proxy.look()

    def test_many_are_counted_and_not_all_named(self):
        """An event stays small, whatever happens."""
        proxy = Proxy(workers=40)
        proxy.look()
        proxy.crash(*range(2, 42))
        proxy.at_s += 5
        told = proxy.told(ends={pid: WorkerEnd("exited", None) for pid in range(2, 42)})
        assert told is not None
        assert (40, 16, 16) == (told["workers"], len(told["pids"]), len(told["how"]))

    def test_looks_that_did_not_come_take_nothing_away(self, proxy):
        """The daemon was starved for 40 s, or the engine away: the next look still compares."""
        proxy.at_s += 5
        assert None is proxy.watch.look(Vital(proxy.at_s, "proxy", 0, 0.0, 0, 0), ())
        proxy.crash(3)
        assert [3] == proxy.look(after_s=40)

    def test_a_worker_that_is_in_no_role_for_a_moment_is_there(self, proxy):
        """Its title could not be read, or it is about to end: that it lives is known."""
        (one, other) = proxy.workers
        proxy.workers = [Member(one.pid, one.started, "other"), other]
        assert [] == proxy.look()
        proxy.end(proxy.workers[:1])
        assert [2] == proxy.look()

    @pytest.mark.parametrize("target", ["b1", "b2"])
    def test_a_fault_of_a_backend_explains_nothing(self, proxy, target):
        """A proxy that crashes when a backend goes has that defect."""
        proxy.crash(2)
        assert [2] == proxy.look(fault(target=target))

    def test_no_more_is_remembered_than_lives(self, proxy):
        """A day of reloads leaves nothing behind."""
        for number in range(300):
            proxy.reload(None)
            proxy.look(fault(number))
        assert (2, 1) == (len(proxy.watch._known), len(proxy.watch._faults))


class TestNotKnown:
    def test_a_proxy_without_workers_is_never_known(self):
        """One process, as Envoy; helpers of nginx that are in no role come and go."""
        proxy = Proxy(workers=0)
        proxy.workers = [Member(5, 5.0, "other")]
        proxy.look()
        proxy.workers = []
        assert [] == proxy.look()
        assert not proxy.watch.known

    def test_one_with_workers_is(self, proxy):
        """From the first look that sees one."""
        assert proxy.watch.known
        proxy.end(proxy.workers)
        assert [2, 3] == proxy.look()
        assert proxy.watch.known

    def test_processes_that_could_not_be_identified_are_not_known(self):
        """In a container whose processes cannot be seen from here."""
        watch = WorkerWatch(DRAIN_S)
        assert None is watch.look(Vital(0.0, "proxy", 1, 1.0, 1, 3, detail={"roles": {"worker": 2}}), ())
        assert not watch.known

    def test_another_master_is_another_beginning(self, proxy):
        """That the first one ended is for another objective."""
        proxy.master = Member(90, 90.0, "master")
        proxy.reload(None)
        assert [] == proxy.look()
        proxy.crash(4)
        assert [4] == proxy.look()

    def test_a_master_that_could_not_be_read_is_not_forgotten(self, proxy):
        """For one look it was in no role; the next one tells whether it is the same."""
        proxy.master = Member(1, 1.0, "other")
        assert [] == proxy.look()
        proxy.master = Member(90, 90.0, "master")
        proxy.reload(None)
        assert [] == proxy.look()

    def test_a_worker_with_the_title_of_its_master_is_no_other_master(self, proxy):
        """A fork carries it until it gets its own."""
        proxy.crash(2)
        proxy.workers[-1] = Member(4, 4.0, "master")
        assert [2] == proxy.look()
        proxy.workers[-1] = Member(4, 4.0, "worker")
        assert [] == proxy.look()

    def test_a_proxy_whose_master_is_not_told_is_watched_all_the_same(self):
        """By a plan that names its workers alone."""
        proxy = Proxy()
        proxy.master = Member(1, 1.0, "other")
        proxy.look()
        proxy.crash(2)
        assert [2] == proxy.look()


class TestReload:
    def test_old_workers_end_when_they_like(self, proxy):
        """Seen as old once, they may go long after the reload, together or one by one."""
        old = proxy.reload()
        assert [] == proxy.look(fault())
        proxy.calm()
        proxy.end(old[:1])
        assert [] == proxy.look()
        proxy.end(old[1:])
        assert [] == proxy.look()

    def test_one_that_was_old_stays_old(self, proxy):
        """Who tells by age sees the oldest as new again while a young one is missing."""
        old = proxy.reload()
        proxy.look(fault())
        proxy.calm()
        proxy.workers = [Member(w.pid, w.started, "worker") for w in proxy.workers]
        assert [] == proxy.look()
        proxy.end([w for w in proxy.workers if w.pid in {one.pid for one in old}])
        assert [] == proxy.look()

    def test_old_workers_that_are_gone_at_once_are_explained(self, proxy):
        """Between two looks, with the reload under way or just over."""
        proxy.reload(None)
        assert [] == proxy.look(fault())

    def test_a_reload_in_looks_that_did_not_come_is_explained(self, proxy):
        """It began and was over while the daemon was starved."""
        proxy.reload(None)
        assert [] == proxy.look(fault(), after_s=60)

    def test_workers_that_are_replaced_one_after_the_other_are_explained(self, proxy):
        """The last ones when traffic has long seen the new configuration."""
        proxy.crash(2)
        assert [] == proxy.look(fault())
        proxy.crash(3)
        assert [] == proxy.look()

    def test_new_ones_that_the_next_reload_finds_are_explained_in_the_same_way(self, proxy):
        """It waited for the one before, and then replaced what that had just started."""
        proxy.crash(2)
        proxy.look(fault(1))
        proxy.crash(3)
        assert [] == proxy.look(fault(2))
        proxy.crash(4)
        assert [] == proxy.look(fault(2))
        proxy.crash(5)
        assert [] == proxy.look()

    def test_old_workers_whose_title_is_that_of_new_ones_are_explained_for_as_long_as_they_may_take(
        self, proxy
    ):
        """A proxy of the plan's own, of which nobody said how its old workers look; then it is no reload any more."""
        old = proxy.reload("worker")
        assert [] == proxy.look(fault())
        for _ in range(18):
            assert [] == proxy.look()
        proxy.end(old[:1])
        assert [] == proxy.look()
        for _ in range(2):
            assert [] == proxy.look()
        proxy.end(old[1:])
        assert [3] == proxy.look()

    def test_a_new_worker_that_ends_after_a_reload_is_told(self, proxy):
        """Two looks later nothing of the reload explains it."""
        proxy.reload(None)
        proxy.look(fault())
        assert [] == proxy.look()
        proxy.crash(4)
        assert [4] == proxy.look()

    def test_workers_that_a_reload_leaves_alone_are_watched_again_soon(self, proxy):
        """It replaced no process, so none of them is an old one."""
        proxy.look(fault())
        assert [] == proxy.look()
        proxy.crash(2)
        assert [2] == proxy.look()

        proxy.reload(None)
        proxy.look(fault(2))
        proxy.calm()
        proxy.look(fault(3))
        assert [] == proxy.look()
        proxy.crash(5)
        assert [5] == proxy.look()

    def test_a_reload_that_takes_its_time_has_not_left_them_alone(self, proxy):
        """New ones come two looks after it began, and the old ones look like them."""
        proxy.look(fault())
        proxy.look(fault())
        old = proxy.reload("worker")
        proxy.look(fault())
        for _ in range(5):
            assert [] == proxy.look()
        proxy.end(old)
        assert [] == proxy.look()

    def test_a_proxy_that_was_taken_over_may_have_old_workers_from_before(self):
        """They look like new ones, and end within their time."""
        proxy = Proxy(taken_over=True)
        proxy.look()
        for _ in range(10):
            assert [] == proxy.look()
        proxy.end(proxy.workers[:1])
        assert [] == proxy.look()
        proxy.calm()
        proxy.end(proxy.workers[:1])
        assert [3] == proxy.look()

    def test_memory_that_soak_took_away_explains_who_is_killed_for_want_of_it(self, proxy):
        """For as long as it is taken, and no longer."""
        throttle = fault(kind="proxy-throttle")
        for pid in (2, 3, 4):
            proxy.crash(pid)
            assert [] == proxy.look(throttle)
        proxy.look()
        proxy.crash(proxy.workers[-1].pid)
        assert [6] == proxy.look()


class TestWords:
    CRASHED = WorkerEnd("exited on signal 11 (core dumped)", crashed=True)
    IN_ORDER = WorkerEnd("exited with code 0", crashed=False)
    KILLED = WorkerEnd("exited on signal 9", crashed=None)

    def test_the_log_says_how(self, proxy):
        """In its own words, by pid."""
        proxy.crash(2)
        proxy.at_s += 5
        told = proxy.told(ends={2: self.KILLED, 3: self.CRASHED})
        assert told is not None
        assert {"2": "exited on signal 9"} == told["how"]

    def test_a_crash_is_one_whatever_was_going_on(self, proxy):
        """No reload makes a worker write to where it may not."""
        proxy.crash(2, 3)
        assert [2] == proxy.look(fault(), ends={2: self.CRASHED, 3: self.KILLED})

    def test_an_end_in_order_is_none(self, proxy):
        """Somebody else asked the proxy for a reload."""
        proxy.crash(2, 3)
        assert [3] == proxy.look(ends={2: self.IN_ORDER})
