"""How an engine is reached, and what is said of one that cannot be; no engine is needed. What can be called: test_engine.py."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
import requests
from docker.errors import APIError, DockerException

from soak.lab.enginecalls import DEFAULT_HOST, EngineCalls, engine_host
from soak.lab.enginewords import EngineAwayError, EngineError, NameTakenError


@pytest.mark.parametrize("kind", ["absent", "refused", "denied", "silent"])
async def test_an_engine_that_cannot_be_reached_is_one_sentence(tmp_path, kind, monkeypatch):
    """No socket, nobody behind it, no permission, no answer."""
    path = tmp_path / "s"
    listener = socket.socket(socket.AF_UNIX)
    says = {
        "absent": "no container engine answers at unix://.*/s; start it",
        "refused": "no container engine answers",
        "denied": "no permission for the engine's socket .*/s; join the group",
        "silent": "did not answer 'connect' within 0.2 s",
    }[kind]
    if kind != "absent":
        listener.bind(str(path))
    if kind == "silent":
        listener.listen()
    if kind == "denied":
        monkeypatch.setattr(socket.socket, "connect", _denied)
    with pytest.raises(EngineError, match=says) as caught:
        await EngineCalls.connect(str(path), timeout_s=0.2)
    assert isinstance(caught.value, EngineAwayError) is (kind != "denied")
    listener.close()


def _denied(*_args: object) -> None:
    raise PermissionError(13, "Permission denied")


async def test_an_engine_that_is_too_old_is_refused(tmp_path):
    """The sentence names its version and the oldest that will do."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        server = threading.Thread(target=_answer_as_old, args=(listener,), daemon=True)
        server.start()
        with pytest.raises(EngineError, match=r"is 19\.03\.15 with API 1\.40; soak needs API 1\.41"):
            await EngineCalls.connect(str(tmp_path / "s"))
        server.join(5)


def _answer_as_old(listener: socket.socket) -> None:
    body = b'{"Version":"19.03.15","ApiVersion":"1.40"}'
    while True:
        connection, _ = listener.accept()
        with connection:
            if connection.recv(65536):
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)
                return


def test_the_engine_is_where_the_plan_or_the_environment_says(monkeypatch):
    """The plan first, then DOCKER_HOST, then the usual socket; a path is a socket."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    assert DEFAULT_HOST == engine_host(None)
    assert "unix:///run/other.sock" == engine_host("/run/other.sock")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2375")
    assert "tcp://127.0.0.1:2375" == engine_host(None)
    assert f"unix://{Path.cwd()}/x.sock" == engine_host("x.sock")


async def test_an_engine_that_was_never_connected_says_so():
    """Not an attribute error."""
    engine = EngineCalls(f"unix:///nowhere-{os.getpid()}")
    with pytest.raises(EngineError, match="not connected"):
        engine._client.ping()
    engine.close()


async def test_a_call_that_takes_too_long_is_given_up_and_one_that_fails_is_put_in_words():
    """The deadline of the call; what the SDK raises; what it wraps."""
    engine = EngineCalls("unix:///nowhere", timeout_s=0.01)
    response = requests.Response()
    response.status_code = 409
    ends = threading.Event()

    def taken() -> None:
        raise APIError("x", response, "name is already in use")

    def late() -> None:
        raise OSError("read timed out")

    def away() -> None:
        raise DockerException(ConnectionRefusedError(111, "refused"))

    def odd() -> None:
        raise ValueError("no number")

    for act, kind, says in (
        (late, EngineAwayError, "did not answer 'list' within 0.01 s"),
        (away, EngineAwayError, "no container engine answers at unix:///nowhere"),
        (taken, NameTakenError, "that name is taken"),
        (odd, EngineError, "list: the engine at unix:///nowhere could not be asked: no number"),
        (lambda: ends.wait(10), EngineAwayError, "did not answer 'list' within 0.01 s"),
    ):
        with pytest.raises(kind, match=says):
            await engine._call("list", act)
    ends.set()
    assert 7 == await engine._call("list", lambda: 7, timeout_s=5)
    engine.close()
