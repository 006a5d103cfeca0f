"""Small clients of the tests' own: one request on a fresh connection, and a websocket."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from soak.lab.base import Lab
from soak.lab.prober import trust

KEY = base64.b64encode(b"sixteen bytes...").decode()
ACCEPT = "FlYPPSB53TTF16oKOkJqU84hNz0="


@dataclass(frozen=True)
class Got:
    """An answer. Names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def cache(self) -> str:
        return self.headers.get("x-soak-cache", "")


def request_text(method: str, path: str, host: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *(f"{k}: {v}" for k, v in headers.items())]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


async def connect(
    lab: Lab, *, tls: bool = False, host: str = "soak.test", alpn: Sequence[str] = ("http/1.1",)
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection to the proxy; over TLS with the name verified."""
    address = lab.proxy_address
    if not tls:
        return await asyncio.open_connection(address.host, address.http_port)
    context = trust(lab.ca_file)
    context.set_alpn_protocols(list(alpn))
    return await asyncio.open_connection(address.host, address.https_port, ssl=context, server_hostname=host)


async def connect_pipe(lab: Lab) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection through the proxy's byte pipe; the TLS is that of an origin."""
    address = lab.proxy_address
    context = trust(lab.ca_file)
    return await asyncio.open_connection(
        address.host, address.tcp_port, ssl=context, server_hostname="soak.test"
    )


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await asyncio.wait({asyncio.ensure_future(writer.wait_closed())})


async def fetch(
    lab: Lab,
    path: str,
    *,
    tls: bool = False,
    pipe: bool = False,
    host: str = "soak.test",
    method: str = "GET",
    body: bytes = b"",
    **headers: str,
) -> Got:
    """Make one request through the proxy. ``X_Soak_Id="1"`` is a header."""
    reader, writer = await (connect_pipe(lab) if pipe else connect(lab, tls=tls, host=host))
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        writer.write(request_text(method, path, host, {**named, "Connection": "close"}, body))
        async with asyncio.timeout(30):
            return parse(await reader.read())
    finally:
        await close(writer)


def parse(answer: bytes) -> Got:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Got(int(first.split()[1]), headers, body)


def masked(opcode: int, payload: bytes, *, final: bool = True, mask: bytes = b"\x01\x80\xfe\x37") -> bytes:
    """Return a frame as clients send it, spelled independently of the code under test."""
    n = len(payload)
    if n < 126:
        length = bytes([0x80 | n])
    elif n < 65_536:
        length = bytes([0x80 | 126]) + n.to_bytes(2, "big")
    else:
        length = bytes([0x80 | 127]) + n.to_bytes(8, "big")
    hidden = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
    return bytes([(0x80 if final else 0) | opcode]) + length + mask + hidden


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one whole frame of a server: its first byte and its payload."""
    first, n = await reader.readexactly(2)
    assert n < 128, "a server does not mask"
    if n > 125:
        n = int.from_bytes(await reader.readexactly(2 if n == 126 else 8), "big")
    return first, await reader.readexactly(n)


class Socket:
    """A websocket through the proxy."""

    def __init__(self, lab: Lab, *, tls: bool = False) -> None:
        self._lab = lab
        self._tls = tls
        self.answer = Got(0, {}, b"")

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await connect(self._lab, tls=self._tls)
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": KEY,
            "X-Soak-Id": "ws-1",
        }
        self.writer.write(request_text("GET", "/ws", "soak.test", headers, b""))
        self.answer = parse(await self.reader.readuntil(b"\r\n\r\n"))
        return self

    async def __aexit__(self, *_) -> None:
        await close(self.writer)

    async def echo(self, opcode: int, payload: bytes) -> tuple[int, bytes]:
        self.writer.write(masked(opcode, payload))
        async with asyncio.timeout(30):
            return await read_frame(self.reader)


def h2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return one frame (RFC 9113 section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


async def h2_body(lab: Lab, path: str) -> bytes:
    """Return the body of one GET over HTTP/2, by hand; small bodies only, for the window is never opened further."""
    reader, writer = await connect(lab, tls=True, alpn=["h2", "http/1.1"])
    assert "h2" == writer.get_extra_info("ssl_object").selected_alpn_protocol()
    fields = b"\x82\x87"
    for index, text in ((b"\x04", path), (b"\x01", "soak.test")):
        fields += index + bytes([len(text)]) + text.encode()
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2_frame(4, 0, 0, b"") + h2_frame(1, 5, 1, fields))
    body, ended = b"", False
    while not ended:
        raw = await reader.readexactly(9)
        payload = await reader.readexactly(int.from_bytes(raw[:3], "big"))
        if int.from_bytes(raw[5:], "big") == 1:
            body += payload if raw[3] == 0 else b""
            ended = bool(raw[4] & 1) and raw[3] in (0, 1)
    await close(writer)
    return body
