"""An independent client: once a second a fresh, non-resumed handshake verified against the run's CA, then one request.

Traffic keeps connections and resumes sessions, so it may not meet a new certificate for a while; the prober always does.
Its sightings decide when a rotation took effect and when the old certificate was last served.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httptools

from certs.install import serial_of
from soak.clock import RunClock
from soak.lab.topology import ProxyAddress
from soak.load.traffic import pattern
from soak.model import Sighting, SightKind, SightVia
from soak.proxies.base import GENERATION_HEADER, ID_HEADER, ORIGIN_HEADER

_BODY_BYTES = 64
_PATH = f"/bytes/{_BODY_BYTES}"
_CONNECT_TIMEOUT_S = 3.0
_ANSWER_TIMEOUT_S = 5.0
_PERIOD_S = 1.0
_HURRY_PERIOD_S = 0.2


class ProbeError(Exception):
    """A probe that did not end as promised. ``stage`` is ``connect``, ``handshake``, ``certificate`` or ``answer``."""

    def __init__(self, stage: str, reason: str, detail: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{stage}: {reason}")
        self.stage = stage
        self.reason = reason
        self.detail = dict(detail or {})


@dataclass(slots=True)
class Answer:
    """What came back."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    """By lower-case name."""
    body: bytes = b""
    complete: bool = False

    @property
    def generation(self) -> str:
        """The proxy's config generation; empty when it did not say."""
        return self.headers.get(GENERATION_HEADER.lower(), "")

    @property
    def origin(self) -> str:
        """The origin that answered; empty when none did."""
        return self.headers.get(ORIGIN_HEADER.lower(), "")


def trust(ca_file: Path) -> ssl.SSLContext:
    """Return a client context that trusts this root alone and checks the name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=ca_file)
    return context


def _distrust() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@dataclass(slots=True)
class Probe:
    """One fresh connection. ``handshake`` gives the serial, then ``ask`` sends one request; ``close`` ends it."""

    address: ProxyAddress
    server_name: str
    context: ssl.SSLContext
    connect_timeout_s: float = _CONNECT_TIMEOUT_S
    answer_timeout_s: float = _ANSWER_TIMEOUT_S
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def handshake(self) -> str:
        """Connect and return the serial that was shown, in its canonical spelling. Raises ``ProbeError``."""
        host, port = self.address.host, self.address.https_port
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                reader, writer = await asyncio.open_connection(
                    host, port, ssl=self.context, server_hostname=self.server_name
                )
        except ssl.SSLCertVerificationError as error:
            shown = await self._shown_serial()
            raise ProbeError("certificate", error.verify_message, {"serial": shown}) from error
        except ssl.SSLError as error:
            raise ProbeError("handshake", str(error)) from error
        except TimeoutError as error:
            raise ProbeError("handshake", f"no TLS connection within {self.connect_timeout_s:g} s") from error
        except ConnectionRefusedError as error:
            raise ProbeError("connect", f"{host}:{port} refused the connection") from error
        except OSError as error:
            raise ProbeError("handshake", error.strerror or str(error)) from error
        self._streams = (reader, writer)
        return _serial(writer)

    async def ask(self) -> Answer:
        """Send one request and return the answer once its status, identity, length and content hold. Raises ``ProbeError``."""
        if self._streams is None:
            raise ProbeError("answer", "there is no connection")
        reader, writer = self._streams
        request_id = f"probe-{id(self):x}"
        try:
            async with asyncio.timeout(self.answer_timeout_s):
                writer.write(
                    f"GET {_PATH} HTTP/1.1\r\nHost: {self.server_name}\r\n{ID_HEADER}: {request_id}\r\n"
                    "User-Agent: soak-prober\r\nConnection: close\r\n\r\n".encode()
                )
                await writer.drain()
                answer = await _read_answer(reader)
        except TimeoutError as error:
            raise ProbeError("answer", f"no whole answer within {self.answer_timeout_s:g} s") from error
        except httptools.HttpParserError as error:
            raise ProbeError("answer", f"not HTTP: {error}") from error
        except OSError as error:  # ssl.SSLError is one
            raise ProbeError("answer", error.strerror or str(error)) from error
        _require(answer, request_id)
        return answer

    def close(self) -> None:
        """Drop the connection at once."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _shown_serial(self) -> str:
        """Return the serial of a certificate that could not be verified; empty when it cannot be seen again."""
        probe = Probe(self.address, self.server_name, _distrust(), self.connect_timeout_s)
        try:
            return await probe.handshake()
        except ProbeError:
            return ""
        finally:
            probe.close()


def _serial(writer: asyncio.StreamWriter) -> str:
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    certificate = tls.getpeercert(binary_form=True)
    if certificate is None or tls.session_reused:
        raise ProbeError("handshake", "the handshake was not a full one")
    return serial_of(certificate)


async def _read_answer(reader: asyncio.StreamReader) -> Answer:
    collected = _Collector()
    parser = httptools.HttpResponseParser(collected)
    collected.parser = parser
    while not collected.answer.complete:
        data = await reader.read(65_536)
        if not data:
            raise ProbeError("answer", "the connection was closed before the answer was whole")
        parser.feed_data(data)
    return collected.answer


class _Collector:
    """Callbacks of llhttp for one answer."""

    def __init__(self) -> None:
        self.answer = Answer()
        self.parser: Any = None

    def on_header(self, name: bytes, value: bytes) -> None:
        self.answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.answer.status = self.parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self.answer.body += data

    def on_message_complete(self) -> None:
        self.answer.complete = True


def _require(answer: Answer, request_id: str) -> None:
    seen = {"status": answer.status, "origin": answer.origin, "generation": answer.generation}
    if answer.status != 200:
        raise ProbeError("answer", f"status {answer.status} instead of 200", seen)
    if (echoed := answer.headers.get(ID_HEADER.lower(), "")) != request_id:
        raise ProbeError("answer", f"the answer carries the id {echoed!r} instead of {request_id!r}", seen)
    if answer.body != pattern(_BODY_BYTES):
        raise ProbeError(
            "answer", f"the body of {len(answer.body)} bytes is not the promised one of {_BODY_BYTES}", seen
        )


class Prober:
    """Probes on a steady beat and reports what each probe saw.

    ``on_sighting`` gets one ``Sighting`` for each thing seen by each probe (``first_s == last_s``, ``count == 1``), for the
    receiver to fold; ``on_failure`` gets a JSON object: at_s, stage, reason, and what was seen.
    """

    def __init__(  # noqa: PLR0917 - wired once, in the order in which it reads
        self,
        address: ProxyAddress,
        ca_file: Path,
        server_name: str,
        clock: RunClock,
        on_sighting: Callable[[Sighting], None],
        on_failure: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._address = address
        self._context = trust(ca_file)
        self._server_name = server_name
        self._clock = clock
        self._on_sighting = on_sighting
        self._on_failure = on_failure
        self._hurry_until_s = float("-inf")
        self._hurried = asyncio.Event()

    def hurry(self, seconds: float) -> None:
        """Probe five times a second for a while: a rotation is under way."""
        self._hurry_until_s = max(self._hurry_until_s, self._clock.now() + seconds)
        self._hurried.set()

    async def run(self) -> None:
        """Probe until cancelled. A probe that takes longer than the beat delays the next one, never doubles it."""
        next_s = self._clock.now()
        while True:
            await self.probe()
            now_s = self._clock.now()
            period_s = _HURRY_PERIOD_S if now_s < self._hurry_until_s else _PERIOD_S
            next_s = max(next_s + period_s, now_s)
            await self._pause(next_s - now_s)
            next_s = min(next_s, self._clock.now())

    async def probe(self) -> None:
        """Probe once and report."""
        probe = Probe(self._address, self._server_name, self._context)
        try:
            serial = await probe.handshake()
            self._saw(SightKind.SERIAL, serial)
            answer = await probe.ask()
            if answer.generation:
                self._saw(SightKind.GENERATION, answer.generation)
        except ProbeError as error:
            self._on_failure(
                {"at_s": self._clock.now(), "stage": error.stage, "reason": error.reason, **error.detail}
            )
        finally:
            probe.close()

    def _saw(self, kind: SightKind, value: str) -> None:
        now_s = self._clock.now()
        self._on_sighting(Sighting(kind, value, SightVia.PROBE, now_s, now_s, 1))

    async def _pause(self, seconds: float) -> None:
        """Wait for the next beat, or until told to hurry."""
        self._hurried.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._hurried.wait()
        except TimeoutError:
            return
