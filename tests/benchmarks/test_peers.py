"""What the other generators are told, and what is read from what they print. The outputs are theirs, shortened."""

from pathlib import Path

import pytest

from benchmarks.load.cost import RunFailed
from benchmarks.load.peers import PEERS, Task, k6_script
from benchmarks.load.target import Target

OUTPUTS = {
    "wrk": "  162784 requests in 4.00s, 195.00MB read\nRequests/sec:  54016.88\n",
    "ab": "Complete requests:      177557\nFailed requests:        0\n",
    "hey": "Status code distribution:\n  [200]\t39877 responses\n",
    "h2load": "requests: 40000 total, 40000 done, 40000 succeeded\nstatus codes: 40000 2xx, 0 3xx, 0 4xx, 0 5xx\n",
    "autocannon": '{"url":"http://127.0.0.1:1","2xx":40021,"non2xx":3,"requests":{"total":40024}}',
    "k6": "good 35166\n",
    "oha": "Status code distribution:\n  [200] 40000 responses\n",
}
COUNTS = {
    "wrk": 162784,
    "ab": 177557,
    "hey": 39877,
    "h2load": 40000,
    "autocannon": 40021,
    "k6": 35166,
    "oha": 40000,
}


@pytest.fixture
def target():
    return Target(8080, 8443, Path("ca.pem"), 1, Path(), lambda _: None)


@pytest.fixture
def task(target, tmp_path):
    return Task(target, 4, 10_000, tmp_path)


@pytest.mark.parametrize("name", PEERS)
def test_good_answers_are_counted(name):
    """From the generator's own words."""
    assert COUNTS[name] == PEERS[name].count(OUTPUTS[name])


@pytest.mark.parametrize("name", ["wrk", "ab", "h2load", "k6"])
def test_output_without_a_number_is_a_failure(name):
    """Never a silent zero."""
    with pytest.raises(RunFailed, match="no number of requests"):
        PEERS[name].count("something else")


@pytest.mark.parametrize("name", PEERS)
def test_everybody_is_told_the_same(name, task):
    """Where, with which id, on how many connections, for how long, and (who can) how fast."""
    told = " ".join(PEERS[name].argv(task))
    if name == "k6":
        told = k6_script(task)
        assert "rate: 10000" in told
        assert "preAllocatedVUs: 50" in told
        assert "noConnectionReuse: false" in told
    elif name in ("hey", "h2load"):
        assert " 200 " in told  # a fiftieth of the rate on each of 50 connections
    elif PEERS[name].model == "open":
        assert "10000" in told
    assert "http://127.0.0.1:8080/" in told
    assert "X-Soak-Id" in told
    assert "0.0.123456" in told
    assert "50" in told
    assert "4" in told


@pytest.mark.parametrize(
    ("name", "says"),
    [("wrk", "Connection: close"), ("hey", "-disable-keepalive"), ("h2load", "-n 40000 -c 40000 -r 10000")],
)
def test_new_connections_are_asked_for(name, says, target, tmp_path):
    """Each request on a connection of its own, over TLS."""
    told = " ".join(PEERS[name].argv(Task(target, 4, 10_000, tmp_path, tls=True, keep=False)))
    assert says in told
    assert "https://127.0.0.1:8443/" in told


def test_ab_keeps_connections_only_when_told(target, tmp_path):
    """Its -k."""
    assert "-k" in PEERS["ab"].argv(Task(target, 4, 10, tmp_path))
    assert "-k" not in PEERS["ab"].argv(Task(target, 4, 10, tmp_path, keep=False))


def test_http2_streams_share_the_rate(target, tmp_path):
    """16 connections with 16 streams each: 250 a second on each connection."""
    task = Task(target, 4, 4000, tmp_path, tls=True, http2=True, connections=16, streams=16)
    told = " ".join(PEERS["h2load"].argv(task))
    assert "-c 16 -m 16" in told
    assert "--rps 250" in told
    assert "--h1" not in told
    assert "-h2" in PEERS["hey"].argv(task)
