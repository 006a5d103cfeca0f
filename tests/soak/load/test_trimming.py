"""When memory is given back: after a burst, once, and only if it left something behind."""

from __future__ import annotations

import ctypes
import subprocess
import sys

from soak.load.trimming import Trimmer, return_free_memory

MIB = 1024 * 1024


class Worker:
    """A worker's memory: each burst adds to it, giving back takes it away."""

    def __init__(self) -> None:
        self.rss_bytes = 50 * MIB
        self.times = 0
        self.trimmer = Trimmer(self.act)

    def act(self) -> float:
        self.times += 1
        self.rss_bytes = 52 * MIB
        return 0.03

    def live(self, busy: int, seconds: int = 1) -> list[dict[str, float]]:
        told = [self.trimmer.second(busy, self.rss_bytes, lambda: self.rss_bytes) for _ in range(seconds)]
        return [one for one in told if one is not None]


def test_an_ordinary_day_is_left_alone():
    """Kept connections by the dozen, memory that wanders a little."""
    worker = Worker()
    assert [] == worker.live(40, 1000)
    worker.rss_bytes += 30 * MIB
    assert [] == worker.live(40, 1000)


def test_a_burst_is_given_back_once_it_has_been_over_for_ten_seconds():
    """And told, with what it took; the next calm hours cost nothing."""
    worker = Worker()
    worker.live(40, 5)
    worker.live(3000)
    worker.rss_bytes = 180 * MIB
    assert [] == worker.live(2000, 60)
    assert [] == worker.live(50, 9)
    assert [{"bytes": 128 * MIB, "took_s": 0.03}] == worker.live(50)
    assert [] == worker.live(50, 1000)
    assert 1 == worker.times


def test_a_burst_that_comes_back_starts_the_wait_anew():
    """Giving back in the middle of it would be for nothing."""
    worker = Worker()
    worker.live(40, 5)
    worker.live(3000)
    worker.rss_bytes = 180 * MIB
    worker.live(50, 9)
    worker.live(2900)
    assert [] == worker.live(50, 9)
    assert 0 == worker.times


def test_a_burst_that_left_little_is_forgotten():
    """A pause in sending must be worth it."""
    worker = Worker()
    worker.live(40, 5)
    worker.live(400)
    worker.rss_bytes += 10 * MIB
    assert [] == worker.live(50, 100)
    assert 0 == worker.times


def test_memory_really_goes_back_to_the_kernel():
    """Many blocks of a size that the C library keeps, freed but for one in a hundred: the heap cannot shrink from its end."""
    ask = """
import ctypes
from soak.load.trimming import return_free_memory
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = (ctypes.c_void_p,)
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
blocks = [libc.malloc(20_000) for _ in range(2_000)]
for block in blocks:
    ctypes.memset(block, 1, 20_000)
for i, block in enumerate(blocks):
    if i % 100 != 99:
        libc.free(block)
before = rss()
took_s = return_free_memory()
print(before - rss() > 20_000_000, took_s > 0)
"""
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, timeout=30)
    assert "True True" == done.stdout.strip()


def test_a_libc_that_cannot_is_no_error(monkeypatch):
    """Memory then stays what it is."""
    monkeypatch.setattr(ctypes, "PyDLL", lambda _: object())
    assert 0 <= return_free_memory() < 1
