"""A small, real Unix socket server that says what a test wants."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from soak.rundir import RunDir
from soak.web.socketpath import short_path

Answer = Callable[[socket.socket], None]


@contextmanager
def serving(run: RunDir, *answers: Answer) -> Iterator[list[dict[str, Any]]]:
    """Serve a connection for each of ``answers``, after its request line; yields the requests received."""
    requests: list[dict[str, Any]] = []
    done = threading.Event()
    with socket.socket(socket.AF_UNIX) as server:
        with short_path(run.socket) as path:
            server.bind(path)
        server.listen()

        def serve() -> None:
            for answer in answers:
                connection, _ = server.accept()
                with connection, connection.makefile() as reader:
                    requests.append(json.loads(reader.readline()))
                    answer(connection)
            done.set()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield requests
        finally:
            thread.join(5)
    assert done.is_set()


def lines(*values: dict[str, Any]) -> Answer:
    return lambda connection: connection.sendall(b"".join(json.dumps(v).encode() + b"\n" for v in values))
