"""The machine in numbers, without a name."""

import platform

from benchmarks.load.machine import cpu_model, describe, memory_gib


def test_cpu_and_memory_are_read():
    """From the kernel's files; unknown stays unknown."""
    assert "AMD EPYC" == cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: other\n")
    assert "unknown" == cpu_model("")
    assert 24 == memory_gib("MemTotal:       25165824 kB\n")
    assert 0 == memory_gib("")


def test_no_host_and_no_path_is_told():
    """The result is committed."""
    text = repr(describe())
    assert platform.node() not in text
    assert "/" not in text
