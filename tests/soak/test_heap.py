"""One heap for all threads."""

from __future__ import annotations

import subprocess
import sys

ASK = """
import ctypes, threading
from soak.heap import share_one_heap
shared = share_one_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
places = []
gate = threading.Barrier(4)
def ask():
    gate.wait()
    places.append(libc.malloc(100))
    gate.wait()
threads = [threading.Thread(target=ask) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
heap = next(line.split()[0].split("-") for line in open("/proc/self/maps") if line.rstrip().endswith("[heap]"))
print(shared, sum(int(heap[0], 16) <= place < int(heap[1], 16) for place in places))
"""


def test_threads_allocate_from_the_main_heap():
    """Asked in a process of its own: four threads at once, and every block lies in the one heap."""
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True, timeout=30)
    assert "True 4" == done.stdout.strip()
