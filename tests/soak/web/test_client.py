"""The client of the control socket against a real, small Unix socket server that says what the test wants."""

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from soak.errors import ControlError
from soak.rundir import RunDir
from soak.web import client
from soak.web.client import ControlClient, RefusedError
from soak.web.socketpath import short_path
from tests.soak.web.answering import lines, serving
from tests.soak.web.fakes import status_of_a_run


@pytest.fixture(params=["short", "deep"])
def run(request, tmp_path: Path) -> RunDir:
    path = tmp_path / "r" if request.param == "short" else tmp_path.joinpath(*["a-deep-directory"] * 8)
    path.mkdir(parents=True)
    return RunDir(path)


def test_ping_and_status_ask_and_read(run):
    """One line each way; the status is the record that the daemon made."""
    with serving(run, lines({"ok": True})) as requests:
        ControlClient(run).ping()
    assert [{"cmd": "ping"}] == requests
    run.socket.unlink()
    status = status_of_a_run()
    with serving(run, lines({"ok": True, "status": status.to_json()})) as requests:
        assert status == ControlClient(run).status()
    assert [{"cmd": "status"}] == requests


def test_inject_passes_events_on_and_returns_the_last_record(run):
    """In order, as they come, in one piece or many."""
    record = {"id": 7, "kind": "backend-down", "outcome": "verified"}
    waiting = {"event": "waiting", "reason": "gap"}
    step = {"event": "record", "record": {"id": 7}}

    def in_pieces(connection: socket.socket) -> None:
        raw = b"".join(
            json.dumps(v).encode() + b"\n" for v in (waiting, step, {"ok": True, "record": record})
        )
        for i in range(0, len(raw), 7):
            connection.sendall(raw[i : i + 7])

    events: list[Any] = []
    with serving(run, in_pieces) as requests:
        assert record == ControlClient(run).inject(
            "backend-down", target="b2", hold_s=5.0, overlap=True, on_event=events.append
        )
    assert [waiting, step] == events
    assert [
        {
            "cmd": "inject",
            "fault": "backend-down",
            "target": "b2",
            "hold_s": 5.0,
            "wait": True,
            "overlap": True,
            "params": {},
        }
    ] == requests


def test_events_nobody_asked_for_are_passed_over(run):
    """And an answer without a record is an empty one."""
    with serving(run, lines({"event": "record"}, {"ok": True})):
        assert {} == ControlClient(run).inject("reload", wait=False)


@pytest.mark.parametrize(
    ("wait", "answer", "code"),
    [(True, {"ok": True, "exit_code": 1}, 1), (False, {"ok": True}, None)],
)
def test_stop_returns_the_exit_code_of_the_run(run, wait, answer, code):
    """Known only to those who wait."""
    with serving(run, lines(answer)) as requests:
        assert code == ControlClient(run).stop(wait=wait)
    assert [{"cmd": "stop", "wait": wait}] == requests


@pytest.mark.parametrize(("code", "expected"), [(4, 4), (None, 2), (0, 2), (999, 2), ("x", 2)])
def test_a_refusal_carries_the_daemons_words_and_code(run, code, expected):
    """A code that makes no sense counts as a usage error."""
    with (
        serving(run, lines({"ok": False, "error": "one backend must remain", "code": code})),
        pytest.raises(RefusedError, match=r"^one backend must remain$") as refused,
    ):
        ControlClient(run).inject("backend-down")
    assert expected == refused.value.exit_code


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda c: c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "is not soak's protocol"),
        (lambda c: c.sendall(b"[1]\n"), "is not soak's protocol"),
        (lambda c: None, "hung up before it had answered"),
        (lambda c: c.sendall(b'{"ok": tr'), "hung up before it had answered"),
        (lines({"ok": True}), "answered a status that this soak does not know"),
        (lines({"ok": True, "status": {"colour": "blue"}}), "answered a status that this soak does not know"),
    ],
)
def test_nonsense_is_told_from_an_answer(run, answer, words):
    """Each in a sentence that names the run or its socket."""
    with serving(run, answer), pytest.raises(ControlError, match=words) as refused:
        ControlClient(run).status()
    assert run.id in str(refused.value)


def test_an_endless_line_is_cut_off(run, monkeypatch):
    """Memory is bounded whatever the other side does."""
    monkeypatch.setattr(client, "MAX_LINE", 100_000)

    def endless(connection: socket.socket) -> None:
        try:
            while True:
                connection.sendall(b"x" * 65_536)
        except OSError:
            pass

    with serving(run, endless), pytest.raises(ControlError, match="sent a line longer than"):
        ControlClient(run).ping()


def test_silence_has_a_deadline(run):
    """A stopped daemon accepts and says nothing."""
    asked = threading.Event()
    with (
        serving(run, lambda _connection: (asked.wait(5), None)[1]),
        pytest.raises(ControlError, match=r"said nothing for 0.05 s; it may be stopped"),
    ):
        try:
            ControlClient(run, answer_timeout_s=0.05).ping()
        finally:
            asked.set()


def test_a_full_backlog_has_a_deadline(run):
    """A daemon that never accepts: the kernel's queue fills up."""
    with socket.socket(socket.AF_UNIX) as server:
        with short_path(run.socket) as path:
            server.bind(path)
        server.listen(0)
        fillers = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        for filler in fillers:
            filler.setblocking(False)
            with short_path(run.socket) as path:
                filler.connect_ex(path)
        with pytest.raises(ControlError, match=r"did not accept a connection|cannot connect to the socket"):
            ControlClient(run, answer_timeout_s=0.05).ping()
        for filler in fillers:
            filler.close()


def test_a_stale_socket_is_told_from_a_missing_one(run):
    """The cure differs."""
    with pytest.raises(ControlError, match="has no control socket: it is over, or still starting"):
        ControlClient(run).ping()
    with socket.socket(socket.AF_UNIX) as server, short_path(run.socket) as path:
        server.bind(path)
    with pytest.raises(ControlError, match=f"it is stale, its daemon is gone; 'soak heal {run.id}'"):
        ControlClient(run).ping()


def test_a_file_in_place_of_the_socket_is_refused(run):
    """Also a symlink: only the socket itself is trusted."""
    run.socket.write_text("x")
    with pytest.raises(ControlError, match="is not a socket"):
        ControlClient(run).ping()
    run.socket.unlink()
    run.socket.symlink_to("/dev/null")
    with pytest.raises(ControlError, match="is not a socket"):
        ControlClient(run).ping()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_a_socket_of_somebody_else_is_refused_before_a_word_is_sent(run):
    """By the owner of the file."""
    with socket.socket(socket.AF_UNIX) as server:
        with short_path(run.socket) as path:
            server.bind(path)
        server.listen()
        os.chown(run.socket, 65_534, 65_534)
        with pytest.raises(ControlError, match=r"belongs to nobody \(uid 65534\) and you are root"):
            ControlClient(run).ping()
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_listener_of_somebody_else_is_refused(run):
    """By the credentials that the kernel gives, whoever owns the file."""
    ready, go = os.pipe(), os.pipe()
    with socket.socket(socket.AF_UNIX) as server:
        with short_path(run.socket) as path:
            server.bind(path)
        child = os.fork()
        if child == 0:
            os.setuid(54_321)
            server.listen()
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
        with pytest.raises(ControlError, match="runs as uid 54321 and you are root"):
            ControlClient(run).ping()
        os.write(go[1], b"x")
        os.waitpid(child, 0)
    for fd in (*ready, *go):
        os.close(fd)


def test_an_unreadable_place_is_named(tmp_path):
    """A file where the run's directory should be."""
    (tmp_path / "r").write_text("x")
    with pytest.raises(ControlError, match=r"cannot look at the socket .*: Not a directory"):
        ControlClient(RunDir(tmp_path / "r")).ping()
