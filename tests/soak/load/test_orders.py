"""What ``soak load`` may be asked for, and the classes that this makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from certs.authority import Authority
from soak.errors import PlanError
from soak.load.orders import LAB_HOST, LoadOrder, classes_of_order, parse_traffic
from soak.proxies.base import SERVER_NAME
from soak.shapes import SHAPES

URL = "http://127.0.0.1:1/"
PLAIN, TLS = (("churn", 1.0),), (("h2", 1.0),)
BAD = [
    ("no scheme", LoadOrder("127.0.0.1:80", 1, 1), "is not a URL"),
    ("another scheme", LoadOrder("ftp://127.0.0.1/", 1, 1), "is not a URL"),
    ("no host", LoadOrder("http:///x", 1, 1), "is not a URL"),
    ("half an address", LoadOrder("http://[::1/", 1, 1), "is not a URL"),
    ("a host with a space", LoadOrder("http://a b/", 1, 1), "is not a URL"),
    ("a host that no encoding has", LoadOrder("http://" + "é" * 70 + "/", 1, 1), "is not a URL"),
    ("a port that is no number", LoadOrder("http://127.0.0.1:x/", 1, 1), "is not a URL"),
    ("a port that is too large", LoadOrder("http://127.0.0.1:70000/", 1, 1), "is not a URL"),
    ("port 0", LoadOrder("http://127.0.0.1:0/", 1, 1), "port 0"),
    ("a user name", LoadOrder("http://me:secret@127.0.0.1/", 1, 1), "user name"),
    ("rate 0", LoadOrder(URL, 0, 1), "rate is 0"),
    ("rate nan", LoadOrder(URL, float("nan"), 1), "rate is nan"),
    ("an absurd rate", LoadOrder(URL, 1e9, 1), "rate is 1e"),
    ("negative seconds", LoadOrder(URL, 1, -1), "seconds is -1"),
    ("no timeout", LoadOrder(URL, 1, 1, response_timeout_s=0), "response timeout is 0"),
    (
        "a wait that would miss slots",
        LoadOrder(URL, 1, 1, coalesce_s=0.02),
        "coalesce is 0.02 s; it must be at most 0.005 s",
    ),
    ("no workers", LoadOrder(URL, 1, 1, workers=0), "workers is 0"),
    ("fewer connections than workers", LoadOrder(URL, 1, 1, workers=2, connections=1), "connections is 1"),
    ("no host name", LoadOrder(URL, 1, 1, host="a b"), "is no host name"),
    ("a second URL", LoadOrder(URL, 1, 1, other_url="https://h"), "is a second URL"),
    ("a path beside a shape", LoadOrder(URL + "x", 1, 1, traffic=PLAIN), "leave the path out"),
    ("twice the same scheme", LoadOrder(URL, 1, 1, traffic=PLAIN, other_url="http://h"), "the same scheme"),
    ("TLS on a plain URL", LoadOrder(URL, 1, 1, traffic=TLS), "'h2' needs the proxy's https:// URL"),
    (
        "plain on a TLS URL",
        LoadOrder("https://h", 1, 1, traffic=PLAIN),
        "'churn' needs the proxy's http:// URL",
    ),
    ("another way to connect", LoadOrder(URL, 1, 1, traffic=PLAIN, new_connections=True), "says itself"),
    ("another status", LoadOrder(URL, 1, 1, traffic=PLAIN, status=404), "says itself"),
    ("no such authority", LoadOrder("https://h/", 1, 1, ca_file="/nonexistent"), "no file of PEM"),
]


@pytest.mark.parametrize(("says", "order", "words"), BAD, ids=[b[0] for b in BAD])
def test_an_order_that_cannot_be_carried_out(says, order, words):
    """One sentence with the value, before anything runs."""
    with pytest.raises(PlanError, match=words):
        classes_of_order(order)


@pytest.fixture(scope="module")
def ca(tmp_path_factory) -> Path:
    return Authority.create(tmp_path_factory.mktemp("certs")).ca_pem


def test_a_plain_url_is_get_requests_of_which_little_is_known():
    """Status and framing are checked; the authority is the URL's, brackets and port included."""
    (plain,) = classes_of_order(LoadOrder("http://[::1]:8080/ä b?q=ü", 10, 1))
    assert ("::1", 8080, "[::1]:8080", "/%C3%A4%20b?q=%C3%BC") == (
        plain.host,
        plain.port,
        plain.authority,
        plain.path,
    )
    assert (False, False, None, "reuse") == (
        plain.check_identity,
        plain.check_body,
        plain.response_bytes,
        plain.connection,
    )


@pytest.mark.parametrize(
    ("host", "name"), [("shop.test", "shop.test"), ("shop.test:81", "shop.test"), ("[::1]:81", "::1")]
)
def test_another_host_can_be_asked_for(host, name):
    """In the Host header as it is, in TLS without its port; the connection goes where the URL says."""
    (plain,) = classes_of_order(LoadOrder("https://127.0.0.1", 10, 1, host=host))
    assert ("127.0.0.1", 443, host, name) == (plain.host, plain.port, plain.authority, plain.server_name)


def test_shapes_go_to_the_url_of_their_scheme(ca):
    """Each with its share of the rate, every check on, asking for the lab's host."""
    order = LoadOrder(
        "http://127.0.0.1:80",
        100,
        1,
        other_url="https://127.0.0.2:443/",
        traffic=(("churn", 0.25), ("h2", 0.75)),
        ca_file=str(ca),
    )
    churn, h2 = classes_of_order(order)
    assert ("churn", 25.0, "127.0.0.1", 80, False) == (
        churn.name,
        churn.rate,
        churn.host,
        churn.port,
        churn.tls,
    )
    assert ("h2", 75.0, "127.0.0.2", 443, True) == (h2.name, h2.rate, h2.host, h2.port, h2.tls)
    assert {(LAB_HOST, LAB_HOST, True, True)} == {
        (c.authority, c.server_name, c.check_identity, c.check_body) for c in (churn, h2)
    }


def test_the_labs_host_is_that_of_the_lab():
    """Both sides agree."""
    assert SERVER_NAME == LAB_HOST


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_can_be_ordered(shape, ca):
    """Alone, for another host than the lab's."""
    order: dict[str, Any] = {"traffic": ((shape, 1.0),), "host": "x.test:8443", "ca_file": str(ca)}
    urls: dict[str, Any] = {"other_url": "https://h:2", "third_url": "tls://h:3"}
    (made,) = classes_of_order(LoadOrder("http://h:1", 10, 1, **urls, **order))
    assert (shape, 10, "x.test:8443", "x.test") == (made.name, made.rate, made.authority, made.server_name)


def test_a_byte_pipe_has_a_url_of_its_own(ca):
    """Its classes go there, the others where they went; the client's TLS is with whoever is at its end."""
    order: dict[str, Any] = {"traffic": (("l4", 0.5), ("h2", 0.5)), "ca_file": str(ca)}
    pipe, h2 = classes_of_order(LoadOrder("tls://h:3", 10, 1, other_url="https://h:2", **order))
    assert ("l4", 3, True, "soak.test") == (pipe.through, pipe.port, pipe.tls, pipe.server_name)
    assert ("http", 2) == (h2.through, h2.port)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ()),
        (("h2",), (("h2", 1.0),)),
        (("h2", "post"), (("h2", 0.5), ("post", 0.5))),
        (("h2=0.5", "post", "slow"), (("h2", 0.5), ("post", 0.25), ("slow", 0.25))),
        (("h2=0.9", "post=0.1"), (("h2", 0.9), ("post", 0.1))),
    ],
)
def test_who_names_no_share_gets_a_part_of_what_is_left(words, expected):
    """In the order in which they were asked for."""
    assert expected == parse_traffic(words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["h3"], "no traffic shape 'h3'"),
        (["webscoket"], "did you mean 'websocket'"),
        (["h2", "h2=0.5"], "'h2' is asked for twice"),
        (["h2=x"], "'x' is no share"),
        (["h2="], "'' is no share"),
        (["h2=0"], "'0' is no share"),
        (["h2=nan"], "'nan' is no share"),
        (["h2=0.5", "post=0.4"], "add up to 0.9; they must"),
        (["h2=0.9", "post=0.9", "slow"], "add up to 1.8 already"),
    ],
)
def test_shares_that_make_no_sense_are_refused(words, says):
    """In one sentence."""
    with pytest.raises(PlanError, match=says):
        parse_traffic(words)
