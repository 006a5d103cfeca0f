"""Parts of one subject added up."""

from __future__ import annotations

from dataclasses import replace

from soak.lab.together import together
from soak.model import Member, Vital

VARNISHD = Vital(
    3.0, "proxy", 4096, 1.5, 7, 2, 0, {"container": "c", "roles": {"master": 1, "worker": 1}, "oom_kills": 2}
)
HITCH = Vital(
    3.0,
    "proxy-hitch",
    1024,
    0.5,
    3,
    3,
    1,
    {"container": "d", "roles": {"worker": 1, "old_worker": 1, "other": 1}, "oom_kills": 1},
)


def test_one_part_is_itself():
    """Most proxies have no other."""
    assert VARNISHD is together([VARNISHD])


def test_all_of_it_is_the_sum():
    """Under the first one's name."""
    one, other = Member(7, 1.0, "master"), Member(8, 1.0, "worker")
    whole = together([replace(VARNISHD, members=[one]), replace(HITCH, members=[other])])
    assert [one, other] == list(whole.members)
    assert (3.0, "proxy", 5120, 2.0, 10, 5, 1) == (
        whole.at_s,
        whole.subject,
        whole.rss_bytes,
        whole.cpu_s,
        whole.fds,
        whole.processes,
        whole.old_processes,
    )
    assert {"master": 1, "worker": 2, "old_worker": 1, "other": 1} == whole.detail["roles"]
    assert ("c", 3) == (whole.detail["container"], whole.detail["oom_kills"])


def test_what_cannot_be_read_of_one_is_said():
    """A sum without it would look small."""
    whole = together([VARNISHD, replace(HITCH, detail={**HITCH.detail, "fds": "not readable"})])
    assert "not readable" == whole.detail["fds"]


def test_without_one_of_them_it_is_not_whole():
    """All zeroes, as for what does not run."""
    whole = together([VARNISHD, replace(HITCH, processes=0)])
    assert (0, 0, 0.0, 0) == (whole.processes, whole.rss_bytes, whole.cpu_s, whole.fds)
    assert (
        "oom_kills"
        not in together([replace(VARNISHD, detail={"pid": 1}), replace(HITCH, detail={"pid": 2})]).detail
    )
