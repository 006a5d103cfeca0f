"""The control socket, over real sockets, with a fake daemon behind it."""

import asyncio
import json
import os
import socket
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaos.model import FaultOutcome, FaultRecord, Source
from chaos.target import TargetError
from soak.errors import EXIT_DIRTY, ControlError, RunStateError
from soak.rundir import RunDir
from soak.status import Status
from soak.web import control
from soak.web.client import ControlClient
from soak.web.control import ControlServer, InjectRequest, InjectUpdates, bind_private
from soak.web.socketpath import short_path
from tests.soak.web.fakes import status_of_a_run

RECORD = FaultRecord(id=7, kind="backend-down", target="b2", source=Source.INJECT, planned_s=1.0)
DONE = replace(RECORD, injected_s=1.1, reverted_s=6.1, outcome=FaultOutcome.VERIFIED)


class FakeBackend:
    """A daemon whose faults end when the test says so."""

    def __init__(self) -> None:
        self.requests: list[InjectRequest] = []
        self.stops: list[bool] = []
        self.go = asyncio.Event()
        self.finished = asyncio.Event()
        self.refusal: Exception | None = None

    def status(self) -> Status:
        return status_of_a_run()

    async def inject(self, request: InjectRequest, updates: InjectUpdates) -> FaultRecord:
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        updates.waiting("another fault is under way")
        updates.record(RECORD)
        await self.go.wait()
        updates.record(DONE)
        self.finished.set()
        return DONE

    async def stop(self, *, wait: bool) -> int | None:
        self.stops.append(wait)
        return 0 if wait else None


@pytest.fixture
async def backend():
    return FakeBackend()


@pytest.fixture
async def server(tmp_path, backend):
    server = ControlServer(tmp_path / "control.sock", backend)
    await server.start()
    yield server
    await server.close()


async def connect(path):
    with short_path(path) as short:
        return await asyncio.open_unix_connection(short)


async def exchange(path, line: bytes) -> list[dict[str, Any]]:
    """Send a raw line; return every answer line."""
    reader, writer = await connect(path)
    writer.write(line)
    answers = [json.loads(answer) async for answer in reader]
    writer.close()
    return answers


async def ask(path, **request) -> list[dict[str, Any]]:
    return await exchange(path, json.dumps(request).encode() + b"\n")


async def test_ping_and_status(tmp_path, server):
    """Both are answered in one line; the status is the whole record."""
    path = tmp_path / "control.sock"

    assert [{"ok": True}] == await ask(path, cmd="ping")
    (answer,) = await ask(path, cmd="status")
    assert status_of_a_run() == Status.from_json(answer["status"])


async def test_inject_tells_each_step_and_ends_with_the_record(tmp_path, server, backend):
    """The waiting reason, each record, then the last one with ok."""
    backend.go.set()
    answers = await ask(tmp_path / "control.sock", cmd="inject", fault="backend-down", target="b2", hold_s=5)

    assert ["waiting", "record", "record", None] == [a.get("event") for a in answers]
    assert "another fault is under way" == answers[0]["reason"]
    assert [None, "verified"] == [a["record"]["outcome"] for a in answers[1:3]]
    assert (True, 7, 6.1) == (
        answers[3]["ok"],
        answers[3]["record"]["id"],
        answers[3]["record"]["reverted_s"],
    )
    assert [InjectRequest("backend-down", "b2", 5.0, wait=True, overlap=False)] == backend.requests


async def test_inject_without_waiting_answers_at_the_first_news(tmp_path, server, backend):
    """The client is let go while the fault runs on to its end."""
    answers = await ask(
        tmp_path / "control.sock", cmd="inject", fault="backend-down", wait=False, overlap=True
    )

    assert [{"ok": True, "record": None, "waiting": "another fault is under way"}] == answers
    assert not backend.finished.is_set()
    backend.go.set()
    await asyncio.wait_for(backend.finished.wait(), 30)
    assert backend.requests[0].overlap


async def test_params_of_a_fault_are_strings(tmp_path, server, backend):
    """They are passed on as they are; anything else is refused."""
    backend.go.set()
    await ask(tmp_path / "control.sock", cmd="inject", fault="reload", params={"kind": "full"})
    assert {"kind": "full"} == backend.requests[0].params
    (refused,) = await ask(tmp_path / "control.sock", cmd="inject", fault="reload", params={"kind": 7})
    assert (False, "the param 'kind' is 7; it must be a string") == (refused["ok"], refused["error"])


async def test_client_that_goes_away_does_not_take_the_fault_with_it(tmp_path, server, backend):
    """Ctrl-C in 'soak inject' ends the watching, never the fault."""
    reader, writer = await connect(tmp_path / "control.sock")
    writer.write(b'{"cmd": "inject", "fault": "backend-down"}\n')
    await reader.readline()
    writer.transport.abort()
    await asyncio.sleep(0.05)
    backend.go.set()

    await asyncio.wait_for(backend.finished.wait(), 30)
    assert [{"ok": True}] == await ask(tmp_path / "control.sock", cmd="ping")


@pytest.mark.parametrize(
    ("refusal", "code"),
    [(ControlError("the run is stopping"), 2), (TargetError("b9 is not a backend"), 2)],
)
async def test_refusal_is_a_sentence_with_a_code(tmp_path, server, backend, refusal, code):
    """What the daemon says no to reaches the client word by word."""
    backend.refusal = refusal

    assert [{"ok": False, "error": str(refusal), "code": code}] == await ask(
        tmp_path / "control.sock", cmd="inject", fault="backend-down"
    )


async def test_refusal_carries_its_own_exit_code(tmp_path, server, backend):
    """A dirty run answers with the code of a dirty run."""

    class DirtyError(ControlError):
        exit_code = EXIT_DIRTY

    backend.refusal = DirtyError("the run is dirty: no more faults")
    (answer,) = await ask(tmp_path / "control.sock", cmd="inject", fault="reload", wait=False)

    assert EXIT_DIRTY == answer["code"]


async def test_bug_in_the_daemon_is_told_and_the_server_goes_on(tmp_path, server, backend):
    """An unexpected error is an answer too, not a silent hang-up."""
    backend.refusal = ZeroDivisionError("division by zero")
    (answer,) = await ask(tmp_path / "control.sock", cmd="inject", fault="reload")

    assert "ZeroDivisionError" in answer["error"]
    assert [{"ok": True}] == await ask(tmp_path / "control.sock", cmd="ping")


async def test_stop_with_and_without_waiting(tmp_path, server, backend):
    """Waiting returns the exit code of the run; not waiting returns at once."""
    path = tmp_path / "control.sock"

    assert [{"ok": True, "exit_code": 0}] == await ask(path, cmd="stop")
    assert [{"ok": True, "exit_code": None}] == await ask(path, cmd="stop", wait=False)
    assert [True, False] == backend.stops


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"hello\n", "is not a JSON object"),
        (b"[1]\n", "is not a JSON object"),
        (b"\xff\xfe\n", "is not a JSON object"),
        (b"[" * 60_000 + b"\n", "is not a JSON object"),
        (b"{}\n", "has no field 'cmd'"),
        (b'{"cmd": 5}\n', "it must be a str"),
        (b'{"cmd": "stopp"}\n', "did you mean 'stop'?"),
        (b'{"cmd": "inject"}\n', "has no field 'fault'"),
        (b'{"cmd": "inject", "fault": "x", "target": 2}\n', "field 'target'"),
        (b'{"cmd": "inject", "fault": "x", "hold_s": "5"}\n', "field 'hold_s'"),
        (b'{"cmd": "inject", "fault": "x", "hold_s": true}\n', "field 'hold_s'"),
        (b'{"cmd": "inject", "fault": "x", "hold_s": -1}\n', "zero or more"),
        (b'{"cmd": "inject", "fault": "x", "hold_s": Infinity}\n', "finite"),
        (b'{"cmd": "inject", "fault": "x", "hold_s": NaN}\n', "finite"),
        (b'{"cmd": "stop", "wait": "yes"}\n', "it must be a bool"),
        (b"x" * 200_000 + b"\n", "longer than 65536 bytes"),
    ],
)
async def test_garbage_gets_an_error_line(tmp_path, server, backend, line, says):
    """Whatever comes in, one sentence comes back, and nothing was done."""
    (answer,) = await exchange(tmp_path / "control.sock", line)

    assert (False, 2) == (answer["ok"], answer["code"])
    assert says in answer["error"]
    assert ([], []) == (backend.requests, backend.stops)


async def test_silent_client_is_asked_to_speak_or_go(tmp_path, server, monkeypatch):
    """A client that connects and says nothing does not hold its place for ever."""
    monkeypatch.setattr(control, "REQUEST_TIMEOUT_S", 0.05)
    (answer,) = await exchange(tmp_path / "control.sock", b"")

    assert "no request came" in answer["error"]


async def serving(server: ControlServer, clients: int) -> None:
    """Wait until it serves so many."""
    async with asyncio.timeout(30):
        while len(server._clients) != clients:
            await asyncio.sleep(0.01)


async def test_clients_are_bounded(tmp_path, server, monkeypatch):
    """One client too many is told so at once, and served again when another has gone."""
    monkeypatch.setattr(control, "MAX_CLIENTS", 2)
    path = tmp_path / "control.sock"
    idle = [await connect(path) for _ in range(2)]
    await serving(server, 2)
    (answer,) = await ask(path, cmd="ping")
    for _, writer in idle:
        writer.close()
        await writer.wait_closed()
    await serving(server, 0)

    assert "already serves 2 clients" in answer["error"]
    assert [{"ok": True}] == await ask(path, cmd="ping")


async def test_news_for_a_client_that_does_not_read_is_bounded():
    """The oldest line gives way; the newest is kept."""
    updates = control._Updates()
    for i in range(1000):
        updates.waiting(str(i))

    assert control._QUEUE == updates.lines.qsize()
    assert [str(1000 - control._QUEUE)] == [updates.lines.get_nowait()["reason"]]


# --- the socket file -------------------------------------------------------------------------------------------------


def test_socket_is_private_from_its_first_instant(tmp_path, monkeypatch):
    """Mode 0600 already when bind returns, whatever the umask; the umask of the process is left alone."""
    seen = []

    class WatchedSocket(socket.socket):
        def bind(self, address):
            super().bind(address)
            seen.append(stat.S_IMODE(Path(address).stat().st_mode))

    monkeypatch.setattr("soak.web.control.socket.socket", WatchedSocket)
    old = os.umask(0)
    try:
        bind_private(tmp_path / "control.sock").close()
        assert [0o600] == seen
        assert 0 == os.umask(0)
    finally:
        os.umask(old)


def test_socket_has_its_name_only_once_it_listens(tmp_path, monkeypatch):
    """Whoever finds the file can connect: nobody is told that the run is dead while it begins."""
    names = []

    class WatchedSocket(socket.socket):
        def listen(self, backlog=0):
            names.append([path.name for path in tmp_path.iterdir()])
            super().listen(backlog)

    monkeypatch.setattr("soak.web.control.socket.socket", WatchedSocket)
    with bind_private(tmp_path / "control.sock"):
        assert [["control.sock.new"]] == names
        assert ["control.sock"] == [path.name for path in tmp_path.iterdir()]


def test_socket_of_a_dead_run_is_replaced(tmp_path):
    """A file that nobody listens on is stale."""
    bind_private(tmp_path / "control.sock").close()
    second = bind_private(tmp_path / "control.sock")

    with socket.socket(socket.AF_UNIX) as client, short_path(tmp_path / "control.sock") as short:
        assert 0 == client.connect_ex(short)
    second.close()


async def test_socket_of_a_live_run_is_refused(tmp_path, server, backend):
    """A second daemon on the same run is told how to reach the first, and the first keeps its socket."""
    with pytest.raises(RunStateError, match="already listens"):
        await ControlServer(tmp_path / "control.sock", backend).start()

    assert [{"ok": True}] == await ask(tmp_path / "control.sock", cmd="ping")


def test_file_that_is_no_socket_is_left_alone(tmp_path):
    """Never unlink what is not ours to unlink."""
    (tmp_path / "control.sock").write_text("precious")

    with pytest.raises(ControlError, match="not a socket"):
        bind_private(tmp_path / "control.sock")
    assert "precious" == (tmp_path / "control.sock").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_socket_of_somebody_else_is_refused(tmp_path):
    """A socket that another user left behind is named with its owner, not replaced."""
    bind_private(tmp_path / "control.sock").close()
    os.chown(tmp_path / "control.sock", 65534, -1)

    with pytest.raises(ControlError, match="belongs to uid 65534"):
        bind_private(tmp_path / "control.sock")


def test_directory_that_does_not_exist_is_named(tmp_path):
    """The sentence names the path."""
    with pytest.raises(ControlError, match="nowhere"):
        bind_private(tmp_path / "nowhere" / "control.sock")


def test_read_only_place_is_named(tmp_path, monkeypatch):
    """What the kernel refuses is one sentence."""

    class RefusingSocket(socket.socket):
        def bind(self, address):
            raise PermissionError(13, "Permission denied", address)

    monkeypatch.setattr("soak.web.control.socket.socket", RefusingSocket)
    with pytest.raises(ControlError, match=r"cannot bind the control socket .*: Permission denied"):
        bind_private(tmp_path / "control.sock")


async def test_deep_state_directory_works(tmp_path, backend):
    """A path far beyond 107 bytes is served and reached."""
    deep = tmp_path.joinpath(*["d" * 60] * 4)
    deep.mkdir(parents=True)
    server = ControlServer(deep / "control.sock", backend)
    await server.start()

    assert [{"ok": True}] == await ask(deep / "control.sock", cmd="ping")
    await server.close()
    assert not (deep / "control.sock").exists()


async def test_close_leaves_a_socket_that_is_not_its_own(tmp_path, backend):
    """A run directory that was taken over keeps its new socket."""
    path = tmp_path / "control.sock"
    server = ControlServer(path, backend)
    await server.start()
    path.unlink()
    other = bind_private(path)
    await server.close()
    await server.close()

    assert path.exists()
    other.close()


async def test_close_lets_answers_arrive_and_ends_what_is_left(tmp_path, backend, monkeypatch):
    """A watcher of a fault that never ends does not hold up the end of the run."""
    monkeypatch.setattr(control, "CLOSE_GRACE_S", 0.05)
    server = ControlServer(tmp_path / "control.sock", backend)
    await server.start()
    reader, writer = await connect(tmp_path / "control.sock")
    writer.write(b'{"cmd": "inject", "fault": "backend-down"}\n')
    await reader.readline()
    await asyncio.wait_for(server.close(), 30)

    assert not server._injections
    assert not server._clients
    writer.close()


async def test_one_that_fails_on_its_way_out_does_not_keep_the_others_running(tmp_path, backend, monkeypatch):
    """A record that could not be kept is told where the fault was started; closing goes on."""

    async def inject(request: InjectRequest, updates: InjectUpdates) -> FaultRecord:
        updates.record(RECORD)
        try:
            await backend.go.wait()
        finally:
            raise ExceptionGroup("fault #1 ended, but its records did not", [OSError("disk full")])
        return DONE

    monkeypatch.setattr(control, "CLOSE_GRACE_S", 0.05)
    monkeypatch.setattr(backend, "inject", inject)
    server = ControlServer(tmp_path / "control.sock", backend)
    await server.start()
    writers = []
    for _ in range(3):
        reader, writer = await connect(tmp_path / "control.sock")
        writer.write(b'{"cmd": "inject", "fault": "backend-down"}\n')
        await reader.readline()
        writers.append(writer)
    assert 3 == len(server._injections)
    await asyncio.wait_for(server.close(), 30)

    assert not server._injections
    assert not server._clients
    for writer in writers:
        writer.close()


async def test_the_real_client_speaks_this_protocol(tmp_path, server, backend):
    """What the command line sends, this server understands, and the other way round."""
    backend.go.set()
    client = ControlClient(RunDir(Path(tmp_path)))
    events: list[Any] = []
    results: dict[str, Any] = {}

    def talk():
        client.ping()
        results["status"] = client.status()
        results["record"] = client.inject("backend-down", hold_s=5.0, on_event=events.append)
        results["stop"] = client.stop()

    thread = threading.Thread(target=talk)
    thread.start()
    while thread.is_alive():
        await asyncio.sleep(0.01)

    assert status_of_a_run() == results["status"]
    assert ("verified", 0) == (results["record"]["outcome"], results["stop"])
    assert ["waiting", "record", "record"] == [e["event"] for e in events]
