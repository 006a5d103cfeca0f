"""The read-only pages, over real HTTP."""

import asyncio
import re
import socket
from html.parser import HTMLParser

import aiohttp
import pytest

from soak.errors import SoakError
from soak.web.pages import Pages, render_status
from tests.soak.web.fakes import status_of_a_run

EXPOSITION = b"# HELP soak_run_info x\n# TYPE soak_run_info gauge\nsoak_run_info 1\n"
TEXT = "text/plain; version=1.0.0; charset=utf-8"


class Health:
    """What is wrong with the run, as the test says."""

    def __init__(self):
        self.problems = []


@pytest.fixture
def health():
    return Health()


@pytest.fixture
async def pages(health):
    pages = Pages(
        port=0,
        metrics=lambda: (EXPOSITION, TEXT),
        status=status_of_a_run,
        problems=lambda: health.problems,
    )
    await pages.start()
    yield pages
    await pages.close()


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session


async def test_metrics_are_served_as_they_were_rendered(pages, http):
    """Body and content type are the exporter's own."""
    async with http.get(pages.url + "/metrics") as answer:
        assert (200, EXPOSITION, TEXT) == (answer.status, await answer.read(), answer.headers["Content-Type"])
        assert "no-store" == answer.headers["Cache-Control"]


async def test_healthy_run(pages, http):
    """200 and ok, with the run's name."""
    async with http.get(pages.url + "/healthz") as answer:
        body = await answer.json()

    assert 200 == answer.status
    assert (True, [], "2026-12-01T08-00-00-nginx", "running") == (
        body["ok"],
        body["problems"],
        body["run"],
        body["state"],
    )


async def test_run_with_a_problem_is_unhealthy_and_says_why(pages, http, health):
    """503 with the sentence, and the sentence on the page."""
    health.problems = ["b2 could not be started again: the run is dirty"]
    async with http.get(pages.url + "/healthz") as answer:
        body = await answer.json()
    async with http.get(pages.url + "/") as page:
        html = await page.text()

    assert (503, False, health.problems) == (answer.status, body["ok"], body["problems"])
    assert (200, True) == (page.status, health.problems[0] in html)


async def test_head_has_no_body(pages, http):
    """HEAD is GET without the body, for probes."""
    async with http.head(pages.url + "/healthz") as answer:
        assert (200, b"") == (answer.status, await answer.read())


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/metrics", "/inject"])
async def test_other_methods_are_refused(pages, http, method, path):
    """Read-only: nothing but GET and HEAD, whatever the path."""
    async with http.request(method, pages.url + path) as answer:
        assert (405, "GET,HEAD") == (answer.status, answer.headers["Allow"])


async def test_unknown_page(pages, http):
    """404, not the status page."""
    async with http.get(pages.url + "/inject") as answer:
        assert 404 == answer.status


async def raw_status(port: int, *headers: str) -> int:
    """Return the status of a GET with exactly these header lines."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = ("GET /metrics HTTP/1.1", *headers, "Connection: close", "", "")
    writer.write("\r\n".join(lines).encode())
    status = int((await reader.readline()).split()[1])
    await reader.read()
    writer.close()
    return status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:PORT", 200),
        ("localhost:PORT", 200),
        ("127.0.0.1", 421),
        ("127.0.0.1:1", 421),
        ("evil.example:PORT", 421),
        ("evil.example", 421),
        ("127.0.0.1:PORT.evil.example", 421),
        ("", 421),
    ],
)
async def test_host_header_is_checked(pages, host, status):
    """A name that was rebound to loopback by somebody's web page reads nothing."""
    port = int(pages.url.rpartition(":")[2])

    assert status == await raw_status(port, "Host: " + host.replace("PORT", str(port)))


async def test_missing_or_double_host_header_is_refused(pages):
    """Neither none nor two can be right."""
    port = int(pages.url.rpartition(":")[2])

    assert await raw_status(port) in (400, 421)
    assert await raw_status(port, f"Host: 127.0.0.1:{port}", "Host: evil.example") in (400, 421)


async def test_further_names_may_be_allowed(health):
    """Somebody who serves them under another name says so."""
    pages = Pages(
        port=0,
        metrics=lambda: (EXPOSITION, TEXT),
        status=status_of_a_run,
        problems=list,
        names=["soak.internal"],
    )
    await pages.start()
    port = int(pages.url.rpartition(":")[2])

    assert 200 == await raw_status(port, f"Host: soak.internal:{port}")
    await pages.close()
    await pages.close()


async def test_on_every_address_the_url_is_one_of_this_host(health):
    """Nobody can open http://0.0.0.0; other names are still refused."""
    pages = Pages(
        port=0, metrics=lambda: (EXPOSITION, TEXT), status=status_of_a_run, problems=list, host="0.0.0.0"
    )
    await pages.start()
    port = int(pages.url.rpartition(":")[2])
    assert f"http://127.0.0.1:{port}" == pages.url
    assert 200 == await raw_status(port, f"Host: 127.0.0.1:{port}")
    assert 421 == await raw_status(port, f"Host: evil.example:{port}")
    await pages.close()


async def test_taken_port_is_one_sentence():
    """The port and the way out are named; nothing is left listening."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        pages = Pages(port=port, metrics=lambda: (b"", TEXT), status=status_of_a_run, problems=list)
        with pytest.raises(SoakError, match=f"port {port}: .*; set http_port to a free port"):
            await pages.start()


async def test_access_is_not_logged(pages, http, caplog):
    """A scrape every few seconds for a day is no news."""
    caplog.set_level("DEBUG")
    async with http.get(pages.url + "/metrics") as answer:
        await answer.read()

    assert not [r for r in caplog.records if r.name.startswith("aiohttp.access")]


# --- the page itself -------------------------------------------------------------------------------------------------


class Text(HTMLParser):
    """Collects text and outside references."""

    def __init__(self):
        super().__init__()
        self.words, self.references = [], []

    def handle_data(self, data):
        self.words.append(data)

    def handle_starttag(self, tag, attrs):
        self.references += [value for name, value in attrs if name in ("src", "href")]


def test_page_shows_the_run_and_needs_nothing_from_outside():
    """The numbers a person looks for; links only to the neighbouring pages; it loads itself anew."""
    page = render_status(status_of_a_run(), [])
    seen = Text()
    seen.feed(page)
    text = " ".join(seen.words)

    for words in (
        "62 s of 120 s",
        "999.8 of 1,000 req/s, 99.998% held",
        "61,499 sent, 61,490 ok, 4 failed, 5 in flight",
        "p50 0.40 ms, p99 2.10 ms",
        "backend-down on b2 injected at 60.0 s",
        "reload on proxy at 80.0 s",
        "2 verified",
        "fault.injected fault=backend-down",
        "stale_reuse",
    ):
        assert words in text
    assert ["metrics", "healthz"] == seen.references
    assert re.search(r'http-equiv="refresh" content="\d+"', page)
    assert "<script" not in page


def test_page_of_a_run_that_has_not_begun():
    """No slots, no faults, no events: no division by zero and no empty tables."""
    page = render_status(
        status_of_a_run(
            scheduled=0,
            sent=0,
            active_faults=[],
            next_fault=None,
            faults_done={},
            last_events=[],
            outcomes={},
        ),
        [],
    )

    assert "- held" in page
    assert "Last events" not in page


def test_page_escapes_what_it_shows():
    """What an event or a proxy says cannot become markup."""
    evil = "<script>alert(1)</script>"
    page = render_status(
        status_of_a_run(
            run_id=evil,
            proxy_version=evil,
            last_events=[{"at_s": 1.0, "name": evil, "data": {evil: evil}}],
            active_faults=[{"id": evil, "kind": evil, "target": evil}],
        ),
        [evil],
    )

    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
