"""One connection of an origin: parses requests as they come, sends answers in order, speaks in frames once asked to.

``soak.lab.answers`` decides what is answered; here is when and how it leaves: at its time, in pieces, whole, cut or reset,
never faster than the peer reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from typing import cast

import httptools

from soak.lab.answers import KEPT_HEADERS, MAX_BODY_BYTES, MAX_HEADER_BYTES, Answer, Origin, Request
from soak.lab.drip import Drip
from soak.lab.repeats import Repeats
from soak.lab.shared import MESSAGES, WEBSOCKETS
from soak.lab.websocket import EchoSocket
from soak.proxies.base import ID_HEADER

_MAX_PIPELINED = 64
_ONE_WRITE_BYTES = 16_384
"""Up to here copying a body behind its head is cheaper than a second buffer."""
_LINGER_S = 1.0
_ID = ID_HEADER.lower().encode()


class OriginProtocol(asyncio.Protocol):
    """One connection: requests are parsed as they come, answers leave in order (RFC 9112 section 9.3.2)."""

    def __init__(self, origin: Origin, repeats: Repeats, loop: asyncio.AbstractEventLoop) -> None:
        self._origin = origin
        self._repeats = repeats
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._request = Request()
        self._answers: deque[Answer] = deque()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable = True
        self._reading = True
        self._deaf = False
        """No further request is answered: the connection closes after the answers that are due."""
        self._between = True
        """No request is half read."""
        self._last = self._request
        """The last whole request."""
        self._drip: tuple[Drip, Answer] | None = None
        """The answer whose body is on its way."""
        self._early: bytes | None = None
        """What came behind a request for a websocket that is not answered yet."""
        self._socket: EchoSocket | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._origin.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        """Forget what was not sent."""
        self._origin.connections -= 1
        self._transport = None
        self._drip = None
        self._answers.clear()
        if self._socket is not None:
            self._origin.websockets -= 1
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse, then send what is due."""
        if self._socket is not None or self._early is not None:
            self._take_frames(data)
            return
        if self._deaf:
            return
        quiet = self._between and not self._answers and self._drip is None and self._writable
        if quiet and (repeated := self._repeats.answer(data)) is not None and self._transport is not None:
            _write_whole(self._transport, *repeated)
            return
        try:
            self._feed(data)
        except httptools.HttpParserError:
            if not self._deaf:
                self._refuse(400)
        if quiet and self._between and len(self._answers) == 1:
            self._repeats.learn(data, self._last, self._answers[0])
        self._send()

    def pause_writing(self) -> None:
        """Stop answering: the peer does not read."""
        self._writable = False
        if self._socket is not None:
            self._read(on=False)

    def resume_writing(self) -> None:
        """Go on answering."""
        self._writable = True
        if self._socket is not None:
            self._read(on=True)
        else:
            self._send()

    def _read(self, *, on: bool) -> None:
        if self._transport is None or self._reading is on:
            return
        self._reading = on
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                if self._answers and self._answers[-1].switches:
                    self._early = data
                    self._read(on=False)  # until the answers before it are sent
                    return
                # The upgrade is declined by answering in HTTP/1.1 (RFC 9110 section 7.8); the rest is the next request.
                self._parser = httptools.HttpRequestParser(self)
            else:
                return

    # httptools callbacks

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._between = False
        self._request = Request()

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        self._request.url += url
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header."""
        self._count_header(len(name) + len(value))
        lower = name.lower()
        if lower == _ID:
            self._request.request_id = value
        elif lower == b"host":
            self._request.has_host = True
        elif lower == b"expect":
            self._request.expects_continue = value.lower() == b"100-continue"
        elif lower == b"content-length" and value.isdigit() and int(value) > MAX_BODY_BYTES:
            self._request.refused = 413
        elif lower in KEPT_HEADERS:
            self._request.headers[lower] = value

    def on_headers_complete(self) -> None:
        """Refuse early, or ask for the body."""
        request = self._request
        request.method = self._parser.get_method()
        request.http_1_0 = self._parser.get_http_version() == "1.0"
        if request.refused and not self._deaf:
            self._refuse(request.refused)
        elif request.expects_continue and not self._answers and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        request = self._request
        if self._deaf:
            return
        request.body_bytes += len(body)
        if request.body_bytes > MAX_BODY_BYTES:
            self._refuse(413)
        elif request.url.endswith(b"/echo"):
            request.body = request.body or []
            request.body.append(body)

    def on_message_complete(self) -> None:
        """Answer the request."""
        if self._deaf:
            return
        self._request.keep_alive = self._parser.should_keep_alive()
        self._queue(self._request)
        self._between = True
        self._last = self._request
        self._request = Request()  # so that a parse error after it does not carry its id

    # answers

    def _count_header(self, n: int) -> None:
        self._request.header_bytes += n
        if self._request.header_bytes > MAX_HEADER_BYTES and not self._deaf:
            self._refuse(431)

    def _refuse(self, status: int) -> None:
        self._request.refused = status
        self._queue(self._request)

    def _queue(self, request: Request) -> None:
        answer = self._origin.answer(request, self._loop.time())
        self._deaf = answer.close
        self._answers.append(answer)
        if len(self._answers) > _MAX_PIPELINED:
            self._read(on=False)

    def _send(self) -> None:
        """Send all answers that are due, in order, as long as the socket takes them."""
        while self._answers and self._writable and self._transport is not None and self._drip is None:
            answer = self._answers[0]
            wait_s = answer.due - self._loop.time()
            if wait_s > 0:
                if self._timer is None or self._timer.cancelled():
                    self._timer = self._loop.call_later(wait_s, self._wake)
                return
            self._answers.popleft()
            self._write(self._transport, answer)
        if self._early is None and len(self._answers) <= _MAX_PIPELINED // 2:
            self._read(on=True)

    def _wake(self) -> None:
        self._timer = None
        self._send()

    def _write(self, transport: asyncio.Transport, answer: Answer) -> None:
        if answer.reset:
            _reset(transport)
            self._answers.clear()
            return
        body = () if answer.omit_body else answer.body
        if answer.cut and not answer.omit_body and answer.length:
            whole = b"".join(body)
            body, answer.close = (whole[: len(whole) // 2],), True
        head = self._origin.head(answer)
        if answer.drip_s and answer.length and not answer.omit_body:
            transport.write(head)
            self._drip = (Drip(b"".join(body), answer.drip_s, self._loop.time()), answer)
            self._pour()
        elif answer.switches:
            transport.write(head)
            self._switch()
        else:
            _write_whole(transport, head, body[0] if len(body) == 1 else b"".join(body))
            self._after(transport, answer)

    def _after(self, transport: asyncio.Transport, answer: Answer) -> None:
        """End the connection when this was its last answer."""
        if answer.close:
            self._deaf = True
            self._answers.clear()
            self._close(transport, refused=answer.refused)

    def _pour(self) -> None:
        """Send what is due of the body that is on its way, and come back for the rest."""
        self._timer = None
        if self._drip is None or self._transport is None:
            return
        drip, answer = self._drip
        now = self._loop.time()
        if self._writable and (piece := drip.due(now)):
            self._transport.write(piece)
        if not drip.done:
            self._timer = self._loop.call_at(drip.next_s(now), self._pour)
            return
        self._drip = None
        self._after(self._transport, answer)
        self._send()

    # websockets

    def _switch(self) -> None:
        """Speak in frames from now on."""
        self._socket = EchoSocket()
        self._origin.websockets += 1
        self._origin.counters[WEBSOCKETS] += 1
        early, self._early = self._early, None
        if early:
            self._take_frames(early)
        self._read(on=self._writable)

    def _take_frames(self, data: bytes) -> None:
        socket_, transport = self._socket, self._transport
        if socket_ is None:
            self._early = (self._early or b"") + data
            return
        if transport is None or socket_.closed:
            return
        before = socket_.messages
        echo = socket_.feed(data)
        self._origin.counters[MESSAGES] += socket_.messages - before
        if echo:
            transport.write(echo)
        if socket_.closed:
            self._close(transport, refused=socket_.broken)

    def _close(self, transport: asyncio.Transport, *, refused: bool) -> None:
        """Close; after a refusal swallow what is still coming, or the reset would eat the answer (RFC 9112 9.6)."""
        if not refused:
            transport.close()
            return
        if transport.can_write_eof():  # TLS cannot
            transport.write_eof()
        self._timer = self._loop.call_later(_LINGER_S, transport.close)


def _write_whole(transport: asyncio.Transport, head: bytes, body: bytes | memoryview) -> None:
    if len(body) <= _ONE_WRITE_BYTES:
        transport.write(b"".join((head, body)))
    else:
        transport.writelines((head, body))


def _reset(transport: asyncio.Transport) -> None:
    """Close with RST instead of FIN: lingering for zero seconds."""
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
