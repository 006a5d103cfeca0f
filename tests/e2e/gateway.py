"""A small reverse proxy with defects on demand, as a program: ``gateway.py [--check] CONFIG``, or ``gateway.py --worker``.

Without defects it is a proxy like any other: TLS, kept connections, backends in turn, failover, reload and rotation at SIGHUP, and a
worker, which has nothing to do. Each defect is one that real proxies have had; the configuration names those that are planted.

- ``hang``: stands still for 1.5 s, six seconds after its start
- ``other-answer``: gives one request the answer of the one before
- ``twice``: sends every 20th POST to a second backend, too
- ``deaf``: closes its listeners for a moment at each reload
- ``stale``: a part of its connections keeps the configuration of before the reload for ever
- ``workers``: leaves a process behind at each reload
- ``dies``: its worker ends with every 100th request, and another one takes its place
- ``forgets``: never uses a backend again that failed once
"""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

DEAF_S = 0.6
HANG_AT_S, HANG_S = 6.0, 1.5
STALE_EVERY = 4
TWICE_EVERY = 20
OTHER_AT = 150
DIES_EVERY = 100


class Gateway:
    """The proxy."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config: dict[str, Any] = json.loads(path.read_text())
        self.first_generation = self.config["generation"]
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.servers: list[asyncio.Server] = []
        self.turn = self.connections = self.requests = self.posts = 0
        self.forgotten: set[int] = set()
        self.before = b""
        self.mixed_up = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.worker = _begin("--worker")

    def has(self, defect: str) -> bool:
        return defect in self.config["defects"]

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, ended.set)
        loop.add_signal_handler(signal.SIGHUP, self.hang_up)
        self.tls.load_cert_chain(self.config["certificate"], self.config["key"])
        await self.listen()
        if self.has("hang"):
            loop.call_later(HANG_AT_S, time.sleep, HANG_S)
        await ended.wait()
        self.worker.kill()

    async def listen(self) -> None:
        host = self.config["host"]
        self.servers = [
            await asyncio.start_server(self.serve, host, self.config["http"]),
            await asyncio.start_server(self.serve, host, self.config["https"], ssl=self.tls),
        ]

    def hang_up(self) -> None:
        """Read everything again; a configuration that cannot be read changes nothing."""
        try:
            config = json.loads(self.path.read_text())
            self.tls.load_cert_chain(config["certificate"], config["key"])
        except (OSError, ValueError) as error:
            sys.stderr.write(f"refused: {error}\n")
            return
        self.config = config
        if self.has("workers"):
            _begin("--old-worker")
        if self.has("deaf"):
            task = asyncio.get_running_loop().create_task(self.be_deaf())
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def be_deaf(self) -> None:
        for server in self.servers:
            server.close()
        await asyncio.sleep(DEAF_S)
        await self.listen()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        self.connections += 1
        stale = self.has("stale") and self.connections % STALE_EVERY == 0
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) and not writer.is_closing():
                body = await reader.readexactly(_length(head))
                writer.write(await self.answer(head, body, stale=stale))
                await writer.drain()
                if b"connection: close" in head.lower():
                    break
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def answer(self, head: bytes, body: bytes, *, stale: bool) -> bytes:
        """Return the whole answer to a request."""
        self.requests += 1
        post = head.startswith(b"POST")
        self.posts += post
        if self.has("dies") and self.requests % DIES_EVERY == 0:
            self.worker.kill()
            self.worker.wait()
            self.worker = _begin("--worker")
        raw = await self.ask(head, body)
        if self.has("twice") and post and self.posts % TWICE_EVERY == 0:
            await self.ask(head, body)
        if self.has("other-answer") and not self.mixed_up and self.requests >= OTHER_AT and not post:
            self.mixed_up, raw = True, self.before
        if not post:
            self.before = raw
        generation = self.first_generation if stale else self.config["generation"]
        answer_head, _, content = raw.partition(b"\r\n\r\n")
        lines = [line for line in answer_head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        lines.append(b"X-Soak-Generation: " + str(generation).encode())
        return b"\r\n".join(lines) + b"\r\n\r\n" + content

    async def ask(self, head: bytes, body: bytes) -> bytes:
        """Ask the backends in turn until one answers."""
        backends = self.config["backends"]
        kept = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith(b"connection:")]
        request = b"\r\n".join(kept) + b"\r\nConnection: close\r\n\r\n" + body
        for _ in backends:
            turn = self.turn = (self.turn + 1) % len(backends)
            if turn in self.forgotten:
                continue
            host, port = backends[turn]
            try:
                reader, writer = await asyncio.open_connection(host, port)
            except OSError:
                if self.has("forgets"):
                    self.forgotten.add(turn)
                continue
            writer.write(request)
            raw = await reader.read(-1)
            writer.close()
            return raw
        return b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"


def _begin(role: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, role])


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


if __name__ == "__main__":
    if sys.argv[1] in ("--worker", "--old-worker"):
        signal.pause()
    elif sys.argv[1] == "--check":
        json.loads(Path(sys.argv[2]).read_text())
    else:
        asyncio.run(Gateway(Path(sys.argv[1])).run())
