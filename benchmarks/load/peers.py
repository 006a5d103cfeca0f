"""The other load generators: how each is told to do the same as soak, and how many answers it says it got.

Open model: sends at a rate of its own, as soak does. Closed model: each connection sends when its answer came, as fast as
it goes; such a generator cannot pace, so its cost per request is that of a busy loop and not comparable one to one.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.cost import RunFailed
from benchmarks.load.target import Target

CONNECTIONS = 50
ID = "X-Soak-Id: 0.0.123456"
OPEN, CLOSED = "open", "closed"


@dataclass(frozen=True, slots=True)
class Task:
    """What everybody is asked to do, for a number of seconds."""

    target: Target
    seconds: int
    rate: int
    scratch: Path
    tls: bool = False
    keep: bool = True
    http2: bool = False
    connections: int = CONNECTIONS
    streams: int = 1

    @property
    def url(self) -> str:
        """Where to."""
        return self.target.tls_url if self.tls else self.target.url


@dataclass(frozen=True, slots=True)
class Peer:
    """A generator: ``argv`` says how it is told, ``count`` finds in its output how many good answers it got."""

    name: str
    binary: str
    model: str
    comes_from: str
    argv: Callable[[Task], Sequence[str]]
    count: Callable[[str], int]
    note: str = ""

    def path(self) -> str | None:
        """Where it is installed, or None."""
        return shutil.which(self.binary)


def _first(pattern: str) -> Callable[[str], int]:
    """Return a reader of the first number that matches."""

    def find(output: str) -> int:
        match = re.search(pattern, output)
        if match is None:
            raise RunFailed(f"no number of requests in: {output.strip()[-200:]!r}")
        return int(match[1])

    return find


def _total(pattern: str) -> Callable[[str], int]:
    """Return a reader of the sum of all numbers that match."""

    def add(output: str) -> int:
        return sum(int(n) for n in re.findall(pattern, output))

    return add


def _of_autocannon(output: str) -> int:
    return int(json.loads(output)["2xx"])


def _wrk(task: Task) -> list[str]:
    close = [] if task.keep else ["-H", "Connection: close"]
    return ["wrk", "-t1", f"-c{task.connections}", f"-d{task.seconds}s", "-H", ID, *close, task.url]


def _ab(task: Task) -> list[str]:
    keep = ["-k"] if task.keep else []
    few = ["-q", "-c", str(task.connections), "-t", str(task.seconds), "-n", "100000000"]
    return ["ab", *keep, *few, "-H", ID, task.url]


def _hey(task: Task) -> list[str]:
    each = task.rate / task.connections
    how = (["-h2"] if task.http2 else []) + ([] if task.keep else ["-disable-keepalive"])
    return [
        "hey",
        *how,
        *("-z", f"{task.seconds}s", "-c", str(task.connections), "-q", f"{each:g}"),
        *("-H", ID, task.url),
    ]


def _h2load(task: Task) -> list[str]:
    one = [] if task.http2 else ["--h1"]
    if not task.keep:  # a client a request, clients made at the rate
        n = str(task.rate * task.seconds)
        return ["h2load", *one, "-n", n, "-c", n, "-r", str(task.rate), "-t1", "-H", ID, task.url]
    each = f"{task.rate / task.connections:g}"
    return [
        "h2load",
        *one,
        *("-c", str(task.connections), "-m", str(task.streams), "-t1", "-D", str(task.seconds)),
        *("--rps", each, "-H", ID, task.url),
    ]


def _autocannon(task: Task) -> list[str]:
    return [
        "autocannon",
        *(
            "-c",
            str(task.connections),
            "-d",
            str(task.seconds),
            "-R",
            str(task.rate),
            "-H",
            ID.replace(": ", "="),
        ),
        *("--json", "--no-progress", task.url),
    ]


def _oha(task: Task) -> list[str]:
    how = (["--http2"] if task.http2 else []) + ([] if task.keep else ["--disable-keepalive"])
    return [
        "oha",
        *how,
        *("--no-tui", "-z", f"{task.seconds}s", "-c", str(task.connections), "-q", str(task.rate)),
        *("--insecure", "-H", ID, task.url),
    ]


_K6 = """\
import http from 'k6/http';
export const options = {{
  discardResponseBodies: true,
  insecureSkipTLSVerify: true,
  noConnectionReuse: {fresh},
  summaryTrendStats: ['med'],
  scenarios: {{ s: {{ executor: 'constant-arrival-rate', rate: {rate}, timeUnit: '1s', duration: '{seconds}s',
                      preAllocatedVUs: {users}, maxVUs: {users} }} }},
}};
export default function () {{ http.get('{url}', {{ headers: {{ '{name}': '{value}' }} }}); }}
export function handleSummary(data) {{ return {{ stdout: 'good ' + ({good}) + '\\n' }}; }}
"""
_K6_GOOD = "data.metrics.http_reqs.values.count - (data.metrics.http_req_failed ? data.metrics.http_req_failed.values.passes : 0)"


def k6_script(task: Task) -> str:
    """Return the script that makes k6 do the task."""
    name, value = ID.split(": ")
    return _K6.format(
        fresh="false" if task.keep else "true",
        rate=task.rate,
        seconds=task.seconds,
        users=task.connections * task.streams,
        url=task.url,
        name=name,
        value=value,
        good=_K6_GOOD,
    )


def _k6(task: Task) -> list[str]:
    script = task.scratch / "script.js"
    script.write_text(k6_script(task))
    return ["k6", "run", "--quiet", "--no-usage-report", "--no-color", str(script)]


WRK = Peer("wrk", "wrk", CLOSED, "Debian wrk", _wrk, _first(r"(\d+) requests in"))
AB = Peer("ab", "ab", CLOSED, "Debian apache2-utils", _ab, _first(r"Complete requests:\s+(\d+)"), "HTTP/1.0")
HEY = Peer("hey", "hey", OPEN, "Debian hey", _hey, _total(r"\[200\]\s+(\d+) responses"))
H2LOAD = Peer("h2load", "h2load", OPEN, "Debian nghttp2-client", _h2load, _first(r"status codes: (\d+) 2xx"))
AUTOCANNON = Peer("autocannon", "autocannon", OPEN, "npm autocannon", _autocannon, _of_autocannon)
K6 = Peer("k6", "k6", OPEN, "PATH only", _k6, _first(r"good (\d+)"))
OHA = Peer("oha", "oha", OPEN, "PATH only", _oha, _total(r"\[200\]\s+(\d+) responses"))

PEERS: Mapping[str, Peer] = {p.name: p for p in (WRK, AB, HEY, H2LOAD, AUTOCANNON, K6, OHA)}
