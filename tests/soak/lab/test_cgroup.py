"""Counters of control groups as the kernel writes them: v1, v2, hybrid, and groups that are not the container's."""

import pytest

from soak.lab.cgroup import Counters, read_counters

ID = "c0ffee" * 8
ROW = "31 23 0:28 {root} {where} rw,relatime shared:5 - {kind} {kind} rw,{options}\n"


@pytest.fixture
def host(tmp_path):
    """A /proc and a /sys/fs/cgroup of a machine, in a directory."""
    return Host(tmp_path)


class Host:
    def __init__(self, path):
        self.proc, self.sys = path / "proc", path / "sys"
        for name in ("self", "7"):
            (self.proc / name).mkdir(parents=True)
        self.write(self.proc / "self" / "mountinfo", "")
        self.write(self.proc / "7" / "cgroup", "")

    def write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(text)

    def v1(self, number, controllers, group, files, root="/"):
        where = self.sys / controllers
        row = ROW.format(root=root, where=where, kind="cgroup", options=controllers)
        self.write(self.proc / "self" / "mountinfo", row)
        self.write(self.proc / "7" / "cgroup", f"{number}:{controllers}:{group}\n")
        self.fill(where / group.removeprefix(root).lstrip("/"), files)

    def v2(self, group, files):
        row = ROW.format(root="/", where=self.sys / "unified", kind="cgroup2", options="nsdelegate")
        self.write(self.proc / "self" / "mountinfo", row)
        self.write(self.proc / "7" / "cgroup", f"0::{group}\n")
        self.fill(self.sys / "unified" / group.lstrip("/"), files)

    def fill(self, directory, files):
        for name, text in files.items():
            self.write(directory / name, text)

    def read(self, container=ID):
        return read_counters(7, container, self.proc)


V2 = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 1\nthrottled_usec 400000\n",
    "memory.stat": "anon 4096\nfile 8192\n",
    "memory.events": "low 0\noom 2\noom_kill 1\n",
    "cgroup.procs": "7\n8\n",
}
CPU = {"cpuacct.usage": "1500000000\n", "cpu.stat": "nr_throttled 4\nthrottled_time 600000000\n"}
MEMORY = {
    "memory.stat": "rss 1\ntotal_rss 12288\ntotal_cache 5\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    "cgroup.procs": "7\n",
}


def test_version_2_has_all_in_one_group(host):
    """As systemd's driver names it: docker-ID.scope."""
    host.v2(f"/system.slice/docker-{ID}.scope", V2)

    assert Counters(2.5, 4096, 1, 0.4, (7, 8)) == host.read()


def test_version_1_has_a_group_for_each_controller(host):
    """CPU in nanoseconds, memory with its children's, kills beside the switch."""
    host.v1(3, "cpu,cpuacct", f"/docker/{ID}", CPU)
    host.v1(4, "memory", f"/docker/{ID}", MEMORY)

    assert Counters(1.5, 12288, 3, 0.6, (7,)) == host.read()


def test_hybrid_is_read_where_the_controllers_are(host):
    """An empty unified hierarchy beside version 1 does not hide the numbers; nor do groups that are mounted from below."""
    host.v1(3, "cpuacct", f"/outer/docker/{ID}", CPU, root="/outer")
    host.v1(4, "memory", f"/outer/docker/{ID}", MEMORY, root="/outer")
    host.v2(f"/docker/{ID}", {"cgroup.procs": "7\n"})

    assert Counters(1.5, 12288, 3, 0.0, (7,)) == host.read()


def test_hybrid_with_the_memory_in_version_1_and_the_cpu_in_version_2(host):
    """Each counter comes from whichever hierarchy has it."""
    host.v1(4, "memory", f"/docker/{ID}", MEMORY)
    host.v2(f"/docker/{ID}", {"cpu.stat": "usage_usec 700000\n"})

    assert Counters(0.7, 12288, 3, 0.0, (7,)) == host.read()


def test_what_is_not_the_containers_is_not_counted(host):
    """A process of that number in another group is another machine's or namespace's; nor is one that has ended counted."""
    host.v2("/user.slice", V2)

    assert host.read() is None
    assert read_counters(99, ID, host.proc) is None


@pytest.mark.parametrize("lost", ["cpu.stat", "memory.stat"])
def test_a_group_without_a_counter_is_no_reading(host, lost):
    """Half a reading would look like a drop to zero."""
    host.v2(f"/docker/{ID}", {name: text for name, text in V2.items() if name != lost})

    assert host.read() is None


def test_a_hierarchy_that_is_not_mounted_here_is_no_reading(host):
    """As in a container that sees only its own part of the tree."""
    host.v1(3, "cpuacct", f"/docker/{ID}", CPU, root="/elsewhere")

    assert host.read() is None
