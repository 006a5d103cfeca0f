"""What an origin answers and gets wrong, without a socket."""

from __future__ import annotations

import pytest

from soak.lab.answers import MAX_BODY_BYTES, Answer, KnownBytes, Misbehaviour, Origin, Request
from soak.load.traffic import pattern


def ask(origin: Origin, url: str, **fields) -> Answer:
    return origin.answer(Request(url=url.encode(), has_host=True, request_id=b"r1", **fields), 100.0)


def body(answer: Answer) -> bytes:
    return b"".join(answer.body)


@pytest.mark.parametrize("n", [0, 1, 1024, 65_536, 65_537, 300_001])
def test_bytes_are_a_prefix_of_the_known_pattern(n):
    """Each length gives exactly the pattern that clients expect."""
    answer = ask(Origin("b1"), f"/bytes/{n}")

    assert (200, n, pattern(n)) == (answer.status, answer.length, body(answer))


def test_the_pattern_is_kept_once():
    """A shorter body shares the memory of a longer one."""
    known = KnownBytes()
    long = known.prefix(200_000)

    assert long.obj is known.prefix(10).obj


@pytest.mark.parametrize(
    ("status", "url"),
    [
        (404, "/nothing"),
        (404, "/bytes/x"),
        (404, "/bytes/-1"),
        (404, "/bytes/1/2"),
        (404, "/status/99"),
        (404, "/status/600"),
        (413, f"/bytes/{MAX_BODY_BYTES + 1}"),
        (503, "/status/503"),
        (299, "/status/299"),
        (204, "/status/204"),
        (200, "/bytes/3?query=1"),
        (200, "/"),
        (200, "/delay/5/bytes/3"),
        (404, "/delay/5"),
        (200, "/drip/5/bytes/3"),
        (404, "/drip/5/echo"),
        (413, f"/drip/5/bytes/{MAX_BODY_BYTES + 1}"),
        (200, "/cache/k/bytes/3?ttl=1"),
        (404, "/cache/k/bytes/3?ttl=x"),
        (404, "/cache//bytes/3"),
        (404, "/cache/k/bytes/x"),
        (404, f"/cache/k/bytes/{MAX_BODY_BYTES + 1}"),
        (404, "/cache/k"),
        (426, "/ws"),
    ],
)
def test_each_path_has_its_status(status, url):
    """Known paths answer, everything else is 404."""
    assert status == ask(Origin("b1"), url).status


def test_a_delay_moves_the_instant_not_the_content():
    """The answer is the same, due later."""
    answer = ask(Origin("b1"), "/delay/250/bytes/3")

    assert (100.25, pattern(3)) == (answer.due, body(answer))


def test_no_content_has_neither_body_nor_length():
    """RFC 9110 section 8.6."""
    origin = Origin("b1")
    answer = ask(origin, "/status/204")

    assert b"Content-Length" not in origin.head(answer)
    assert answer.omit_body


def test_the_head_names_origin_and_request():
    """Both identities are in every answer."""
    origin = Origin("b7")
    head = origin.head(ask(origin, "/bytes/3"))

    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nX-Soak-Origin: b7\r\nX-Soak-Id: r1\r\n" in head
    assert b"\r\nContent-Length: 3\r\n" in head


def test_a_tunnel_is_refused():
    """CONNECT is not for an origin."""
    assert 405 == ask(Origin("b1"), "x:1", method=b"CONNECT").status


def test_a_request_without_host_is_bad():
    """RFC 9112 section 3.2; HTTP/1.0 had none."""
    origin = Origin("b1")

    assert 400 == origin.answer(Request(url=b"/"), 0.0).status
    assert 200 == origin.answer(Request(url=b"/", http_1_0=True), 0.0).status


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"latency": 1}, "unknown field 'latency'; known: cut_ratio"),
        ({"latency_ms": -1}, "must be a number of zero or more"),
        ({"latency_ms": True}, "must be a number"),
        ({"latency_ms": "5"}, "must be a number"),
        ({"reset_ratio": 1.5}, "a ratio is between 0 and 1"),
        ({"status": 99}, "must be between 200 and 599"),
    ],
)
def test_a_wrong_wish_is_refused_with_its_rule(wish, words):
    """The reply says the value and the rule."""
    assert words in Origin("b1").command(wish)["error"]
    with pytest.raises(ValueError, match=r"\w"):
        Misbehaviour.from_json(wish)


def test_a_command_must_be_an_object():
    """A list is no command."""
    assert {"error": "a command is a JSON object"} == Origin("b1").command([1])


def test_misbehaviour_spoils_what_was_asked_and_ends_when_told():
    """Id, body, status and delay can each be wrong; an empty wish is good behaviour again."""
    origin = Origin("b1")
    origin.command(
        {"wrong_id_ratio": 1, "wrong_body_ratio": 1, "latency_ms": 500, "cut_ratio": 1, "reset_ratio": 1}
    )
    spoilt = ask(origin, "/bytes/100")

    assert b"not-r1" == spoilt.request_id
    assert 1 == sum(a != b for a, b in zip(body(spoilt), pattern(100), strict=True))
    assert 100.5 == spoilt.due
    assert spoilt.cut
    assert spoilt.reset

    origin.command({"status_ratio": 1, "status": 500})
    assert 500 == ask(origin, "/bytes/100").status
    assert {"ok": True} == origin.command({})
    assert (200, pattern(100)) == (ask(origin, "/bytes/100").status, body(ask(origin, "/bytes/100")))


def test_a_ratio_is_seeded():
    """The same seed spoils the same requests, about the asked share."""

    def statuses(seed: int) -> list[int]:
        origin = Origin("b1")
        origin.command({"status_ratio": 0.25, "seed": seed})
        return [ask(origin, "/bytes/1").status for _ in range(400)]

    assert statuses(3) == statuses(3)
    assert statuses(3) != statuses(4)
    assert 60 < statuses(3).count(503) < 140


def test_stats_count_requests():
    """The origin's own count is independent of what clients saw."""
    origin = Origin("b1")
    ask(origin, "/bytes/1")

    assert {"requests": 1, "connections": 0}.items() <= origin.command({"stats": True}).items()


def test_a_cacheable_answer_names_the_origin_and_no_request():
    """It may be given to others."""
    origin = Origin("b1")
    head = origin.head(ask(origin, "/cache/k/bytes/3"))

    assert b"X-Soak-Origin: b1\r\nCache-Control: max-age=60\r\n" in head
    assert b"X-Soak-Id" not in head


def test_only_what_is_not_idempotent_is_delivered_at_most_once():
    """GET and PUT may be repeated; a refused request was not delivered; one without an id cannot be told."""
    origin = Origin("b1")
    for method in (b"GET", b"PUT", b"HEAD", b"DELETE"):
        assert b"" == ask(origin, "/echo", method=method).headers
        assert b"" == ask(origin, "/echo", method=method).headers
    assert b"" == ask(origin, "/echo", method=b"POST", refused=413).headers
    assert b"" == ask(origin, "/echo", method=b"POST").headers
    assert b"\r\nX-Soak-Duplicate: 1" == ask(origin, "/echo", method=b"PATCH").headers
    origin.answer(Request(method=b"POST", url=b"/echo", has_host=True), 0)
    origin.answer(Request(method=b"POST", url=b"/echo", has_host=True), 0)
    stats = origin.command({"stats": True})
    assert (4, 1) == (stats["non_idempotent"], stats["duplicates"])
