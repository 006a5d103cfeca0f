"""Records of containers and networks, read from what an engine answers."""

import pytest

from soak.lab.containers import End, Limits, inspected, network_of

FOUND = {
    "Id": "c0ffee",
    "Name": "/soak-b1",
    "Config": {"Image": "soakd:1", "Labels": None},
    "State": {
        "Status": "exited",
        "StartedAt": "2026-12-01T00:00:00Z",
        "Pid": 0,
        "ExitCode": 137,
        "OOMKilled": True,
    },
    "HostConfig": {"CpuPeriod": 100_000, "CpuQuota": 50_000, "Memory": 1 << 20, "MemorySwap": None},
    "NetworkSettings": {
        "Networks": {
            "one": {
                "NetworkID": "n1",
                "IPAddress": "",
                "IPAMConfig": {"IPv4Address": "10.0.0.9"},
                "Aliases": ["c0ff", "x"],
            },
            "two": {"NetworkID": "n2", "IPAddress": "10.1.0.4", "IPAMConfig": None},
        }
    },
}


def test_a_stopped_container_still_has_its_addresses_and_limits():
    """What it was given is known whether it runs or not."""
    seen = inspected(FOUND)

    assert {"container": "c0ffee", "started": "2026-12-01T00:00:00Z"} == seen.identity
    assert ("soak-b1", 137, True, False) == (seen.name, seen.exit_code, seen.oom_killed, seen.alive)
    assert {"one": "10.0.0.9", "two": "10.1.0.4"} == seen.addresses
    assert {"one": End("n1", "10.0.0.9", True, ("x",)), "two": End("n2", "10.1.0.4", False)} == seen.ends
    assert Limits(100_000, 50_000, 1 << 20, 0) == seen.limits


@pytest.mark.parametrize(
    ("limits", "cpus", "tight"),
    [
        (Limits(100_000, 200_000, 9, 9), 2.0, Limits(100_000, 25_000, 5, 5)),
        (Limits(50_000, 50_000, 9, 18), 1.0, Limits(50_000, 12_500, 5, 5)),
        (Limits(0, 0, 0, 0), 0.0, Limits(100_000, 25_000, 5, 5)),
        (Limits(0, 0, 9, 9, 1_500_000_000), 1.5, Limits(0, 0, 5, 5, 250_000_000)),
    ],
)
def test_limits_are_tightened_in_the_way_they_were_given(limits, cpus, tight):
    """The engine refuses a quota where CPUs were given as such, and the other way round."""
    assert cpus == limits.cpus
    assert tight == limits.tightened(0.25, 5)
    assert limits == limits.tightened(0, 0)


def test_a_container_on_no_network_and_a_network_without_a_pool():
    """Engines answer null where there is nothing."""
    assert {} == inspected({**FOUND, "NetworkSettings": {"Networks": None}}).addresses
    assert "" == network_of({"Id": "n", "Name": "none", "IPAM": {"Config": None}, "Labels": None}).subnet
