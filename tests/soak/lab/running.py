"""An origin as a process, spoken to over real sockets."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

COMMAND = [sys.executable, "-m", "soak.lab.origin", "--name", "b1", "--port"]


@dataclass
class Running:
    """A started origin with its control pipe."""

    process: subprocess.Popen[str]
    port: int
    tls_port: int = 0

    def tell(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        reply: dict[str, Any] = json.loads(self.process.stdout.readline())
        return reply

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connection.settimeout(30)
        return connection

    def talk(self, text: str) -> bytes:
        """Send raw bytes and read until the origin closes."""
        with self.connect() as connection:
            connection.sendall(text.replace("\n", "\r\n").encode())
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    while data := connection.recv(1 << 20):
        received += data
    return received


def start(port: int = 0, *options: str) -> Running:
    process = subprocess.Popen(
        [*COMMAND, str(port), *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["ready"] is True
    return Running(process, ready["port"], ready.get("tls_port", 0))


def end(running: Running) -> None:
    running.process.terminate()
    running.process.communicate(timeout=30)
