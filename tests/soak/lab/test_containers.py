"""Records of containers and networks, read from what an engine answers."""

from soak.lab.containers import Limits, inspected, network_of

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
            "one": {"IPAddress": "", "IPAMConfig": {"IPv4Address": "10.0.0.9"}},
            "two": {"IPAddress": "10.1.0.4", "IPAMConfig": None},
        }
    },
}


def test_a_stopped_container_still_has_its_addresses_and_limits():
    """What it was given is known whether it runs or not."""
    seen = inspected(FOUND)

    assert {"container": "c0ffee", "started": "2026-12-01T00:00:00Z"} == seen.identity
    assert ("soak-b1", 137, True, False) == (seen.name, seen.exit_code, seen.oom_killed, seen.alive)
    assert {"one": "10.0.0.9", "two": "10.1.0.4"} == seen.addresses
    assert Limits(100_000, 50_000, 1 << 20, 0) == seen.limits


def test_a_container_on_no_network_and_a_network_without_a_pool():
    """Engines answer null where there is nothing."""
    assert {} == inspected({**FOUND, "NetworkSettings": {"Networks": None}}).addresses
    assert "" == network_of({"Id": "n", "Name": "none", "IPAM": {"Config": None}, "Labels": None}).subnet
