"""The read-only HTTP pages of a live run: ``/metrics``, ``/healthz`` and a plain status page. Nothing here changes a run.

On 127.0.0.1 unless told otherwise. The Host header is checked, so that a web page that rebinds its name to loopback
cannot read them. No access log: soak.log is for the run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from html import escape
from typing import Any

from aiohttp import hdrs, web

from soak.errors import SoakError
from soak.status import Status

Render = Callable[[], tuple[bytes, str]]
"""Returns a metrics exposition and its content type."""
REFRESH_S = 2
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
_LOOPBACK_NAMES = ("127.0.0.1", "localhost")
_EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - told apart, not bound
_METHODS = (hdrs.METH_GET, hdrs.METH_HEAD)


class Pages:
    """Serves the pages. ``start`` binds and makes ``url`` known; ``close`` ends them gracefully.

    ``problems`` returns a sentence for each thing that is wrong now (dirty, stalled, ...); none means healthy. ``names``
    are further host names that may stand in the Host header, for a listener that is not on loopback.
    """

    def __init__(
        self,
        *,
        port: int,
        metrics: Render,
        status: Callable[[], Status],
        problems: Callable[[], Sequence[str]],
        host: str = "127.0.0.1",
        names: Sequence[str] = (),
    ) -> None:
        self._host, self._port = host, port
        self._metrics, self._status, self._problems = metrics, status, problems
        self._names = {*_LOOPBACK_NAMES, host, *names}
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Base URL, without a slash at its end. Known after ``start``. One for this host when they listen on every address."""
        return f"http://{_LOOPBACK_NAMES[0] if self._host in _EVERY_ADDRESS else self._host}:{self._port}"

    async def start(self) -> None:
        """Bind and serve; port 0 takes any free one. Raises ``SoakError`` naming the port when it is taken."""
        app = web.Application(middlewares=[self._guard], client_max_size=1024)
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/healthz", self._get_healthz)
        app.router.add_get("/", self._get_status)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handle_signals=False)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self.close()
            raise SoakError(
                f"cannot serve the pages on {self._host} port {self._port}: {error.strerror}; "
                "set http_port to a free port, or to 0 for any"
            ) from error
        self._port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop serving; answers under way get a second. Idempotent."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse other methods and other hosts before any page is asked. ``handler`` is aiohttp's name for the page."""
        if request.method not in _METHODS:
            raise web.HTTPMethodNotAllowed(request.method, _METHODS, headers=_HEADERS)
        if request.headers.getall(hdrs.HOST, []) not in [[f"{name}:{self._port}"] for name in self._names]:
            text = f"the Host header must name {self._host}:{self._port}\n"
            return web.Response(status=421, text=text, headers=_HEADERS)  # RFC 9110 section 15.5.20
        return await handler(request)

    async def _get_metrics(self, _: web.Request) -> web.Response:
        body, content_type = self._metrics()
        return web.Response(body=body, headers={**_HEADERS, hdrs.CONTENT_TYPE: content_type})

    async def _get_healthz(self, _: web.Request) -> web.Response:
        problems = list(self._problems())
        status = self._status()
        body = {
            "ok": not problems,
            "problems": problems,
            "run": status.run_id,
            "state": status.state,
            "elapsed_s": status.elapsed_s,
        }
        return web.json_response(body, status=503 if problems else 200, headers=_HEADERS)

    async def _get_status(self, _: web.Request) -> web.Response:
        page = render_status(self._status(), list(self._problems()))
        return web.Response(text=page, content_type="text/html", headers=_HEADERS)


def render_status(status: Status, problems: Sequence[str]) -> str:
    """Return the status page: plain HTML without scripts or outside assets that loads itself anew."""
    held = f"{status.sent / status.scheduled:.3%}" if status.scheduled else "-"
    rows = (
        ("state", status.state),
        ("elapsed", f"{status.elapsed_s:,.0f} s of {status.length_s:,.0f} s"),
        ("rate", f"{status.rate_now:,.1f} of {status.rate_target:,.0f} req/s, {held} held"),
        (
            "requests",
            f"{status.sent:,} sent, {status.ok:,} ok, {status.failed:,} failed, {status.in_flight:,} in flight",
        ),
        ("slots", f"{status.scheduled:,} scheduled, {status.dropped:,} dropped, {status.missed:,} missed"),
        ("latency, last 10 s", f"p50 {status.p50_ms:.2f} ms, p99 {status.p99_ms:.2f} ms"),
        ("own lag p99", f"{status.lag_p99_ms:.2f} ms"),
        ("phase", status.phase),
        ("next fault", _fault(status.next_fault) if status.next_fault else "none"),
        ("proxy", f"{status.proxy} {status.proxy_version}, {status.lab} lab, {status.proxy_url}"),
        ("seed", status.seed),
        ("started", status.started_at),
    )
    failures = [(name, f"{n:,}") for name, n in sorted(status.outcomes.items()) if name != "ok" and n]
    done = [
        (kind, ", ".join(f"{n} {outcome}" for outcome, n in sorted(by_outcome.items())))
        for kind, by_outcome in sorted(status.faults_done.items())
    ]
    active = [(fault.get("id", ""), _fault(fault)) for fault in status.active_faults]
    events = [(f"{e.get('at_s', 0):.1f} s", _event(e)) for e in status.last_events]
    alarm = "".join(f'<p class="bad">{escape(problem)}</p>' for problem in problems)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="{REFRESH_S}"><title>soak {escape(status.run_id)}</title>'
        "<style>body{font:15px/1.5 system-ui,sans-serif;margin:2em;max-width:60em;color-scheme:light dark}"
        "th{text-align:left;font-weight:normal;padding-right:2em;vertical-align:top;opacity:.7}"
        ".bad{border-left:.4em solid #c33;padding-left:.6em;font-weight:bold}</style></head>"
        f"<body><h1>{escape(status.run_id)}</h1>{alarm}{_table('', rows)}"
        f"{_table('Active faults', active)}{_table('Failures by outcome', failures)}"
        f"{_table('Finished faults', done)}{_table('Last events', events)}"
        '<p><a href="metrics">metrics</a> &middot; <a href="healthz">health</a></p></body></html>'
    )


def _table(title: str, rows: Sequence[tuple[object, object]]) -> str:
    if not rows:
        return ""
    head = f"<h2>{escape(title)}</h2>" if title else ""
    body = "".join(
        f'<tr><th scope="row">{escape(str(name))}</th><td>{escape(str(value))}</td></tr>'
        for name, value in rows
    )
    return f"{head}<table>{body}</table>"


def _fault(fault: Mapping[str, Any]) -> str:
    words = [str(fault.get("kind", "?"))]
    if fault.get("target"):
        words.append(f"on {fault['target']}")
    for name, verb in (("at_s", "at"), ("injected_s", "injected at")):
        if isinstance(at_s := fault.get(name), int | float):
            words.append(f"{verb} {at_s:,.1f} s")
    return " ".join(words)


def _event(event: Mapping[str, Any]) -> str:
    data = " ".join(f"{name}={value}" for name, value in (event.get("data") or {}).items())
    return f"{event.get('name', '?')} {data}".rstrip()
