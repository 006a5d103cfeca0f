"""How this process asks for memory: from one heap, so that a day of short-lived threads does not leave one behind each."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8
"""<malloc.h> of glibc; see mallopt(3)."""


def share_one_heap() -> bool:
    """Let all threads allocate from the main heap; must be called before they start. Returns False where libc cannot.

    glibc gives each new thread a heap of its own, up to eight a processor, and memory freed in one is of no use to the others:
    in a daemon whose threads look at the process table every few seconds, that is growth without a leak.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another libc, with a heap of another kind
        return False
    return bool(mallopt(_M_ARENA_MAX, 1))
