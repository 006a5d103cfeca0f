"""Ports that are free and stay usable while an origin is down."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from soak.errors import LabError
from soak.lab import topology
from soak.lab.topology import choose_topology, ephemeral_range, free_ports


def test_ports_differ_and_can_be_bound():
    """Each of them is free right now."""
    ports = free_ports(20)

    assert 20 == len(set(ports))
    for port in ports:
        with socket.socket() as s:
            s.bind(("127.0.0.1", port))


def test_no_port_can_be_taken_by_an_outgoing_connection():
    """A client's source port must never block the restart of an origin."""
    low, high = ephemeral_range()

    assert [] == [port for port in free_ports(50) if low <= port <= high]


def test_when_all_ports_are_ephemeral_any_free_one_must_do():
    """Some machines widen the range to everything."""
    assert 3 == len(set(free_ports(3, ephemeral=(1024, 65_535))))


def test_a_port_in_use_is_not_chosen(monkeypatch):
    """What somebody listens on is passed over; too few left is a clear error."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(topology, "_LOWEST_PORT", port)
        monkeypatch.setattr(topology, "_HIGHEST_PORT", port)
        with pytest.raises(LabError, match=r"only 0 of 1 ports are free on 127\.0\.0\.1"):
            free_ports(1)


CLAIM = """
import sys
from soak.lab.topology import free_ports, own_stretch
print(own_stretch().start, *free_ports(200), flush=True)
sys.stdin.read()
"""


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_no_two_processes_draw_from_the_same_stretch(monkeypatch):
    """An origin that is down does not lose its port to another run; a process that ends gives its stretch back."""
    own = topology.own_stretch()
    assert set(free_ports(200)) <= set(own)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [[int(word) for word in _line(process).split()] for process in processes]
    for process in processes:
        process.communicate(timeout=20)
    starts = {own.start, *(start for start, *_ in said)}

    assert 3 == len(starts)
    assert 600 == len({*free_ports(200), *(port for _, *ports in said for port in ports)})
    monkeypatch.setattr(topology, "_LOWEST_PORT", said[0][0])
    monkeypatch.setattr(topology, "_HIGHEST_PORT", said[0][0] + 1_024)
    topology.own_stretch.cache_clear()
    assert said[0][0] == topology.own_stretch().start, "it is free again"


def test_without_a_stretch_any_free_port_must_do(monkeypatch):
    """More runs than stretches is no reason to refuse one."""
    monkeypatch.setattr(topology, "own_stretch", lambda: range(0))

    assert 20 == len(set(free_ports(20)))


def test_a_lab_has_names_in_order_and_no_shared_port():
    """b1, b2, ... and two ports of the proxy, all different, all on loopback."""
    lab = choose_topology(3)
    ports = {lab.proxy.http_port, lab.proxy.https_port, *(b.port for b in lab.backends)}

    assert ["b1", "b2", "b3"] == [b.name for b in lab.backends]
    assert 5 == len(ports)
    assert {"127.0.0.1"} == {lab.proxy.host, *(b.host for b in lab.backends)}


def test_further_ports_are_asked_for_by_name():
    """An admin page gets a port of its own that nobody else has."""
    lab = choose_topology(2, ("admin", "metrics"))
    ports = [lab.proxy.http_port, lab.proxy.https_port, *(b.port for b in lab.backends), *lab.ports.values()]

    assert ["admin", "metrics"] == list(lab.ports)
    assert 6 == len(set(ports))


def test_a_byte_pipe_has_a_port_at_both_ends():
    """One of the proxy, one of each origin's TLS; without a pipe there are none."""
    lab = choose_topology(2, ("metrics",), tcp=True)
    ports = [lab.proxy.tcp_port, *(b.tls_port for b in lab.backends)]
    others = [
        lab.proxy.http_port,
        lab.proxy.https_port,
        *(b.port for b in lab.backends),
        lab.ports["metrics"],
    ]

    assert 8 == len({*ports, *others})
    assert 0 not in ports
    plain = choose_topology(1)
    assert (0, 0) == (plain.proxy.tcp_port, plain.backends[0].tls_port)
