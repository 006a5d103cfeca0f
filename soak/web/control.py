"""The server side of the control socket: the only door through which a run can be disturbed or stopped.

A Unix stream socket, 0600 from its first instant: whoever can open the file may use it. A client sends one JSON line
and reads lines until one has ``ok``:

    {"cmd": "ping"}                     -> {"ok": true}
    {"cmd": "status"}                   -> {"ok": true, "status": {...}}
    {"cmd": "inject", "fault": "backend-down", "target": "b2" | null, "hold_s": 5.0 | null, "wait": true,
     "overlap": false, "params": {}}                  -> {"event": "waiting", "reason": "..."}, {"event": "record", "record": {...}},
                                           ..., {"ok": true, "record": {...}}
    {"cmd": "stop", "wait": true}       -> {"ok": true, "exit_code": 0}

A refusal is ``{"ok": false, "error": "a sentence", "code": 2}``. Lines, clients and waits are bounded. A client that goes
away never takes a fault with it. Knows the protocol only: what a command does is the backend's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from chaos.model import FaultRecord
from chaos.target import TargetError
from soak.errors import ControlError, RunStateError, SoakError, nearest
from soak.log import get_logger
from soak.status import Status
from soak.tasks import cancel, spawn
from soak.web.socketpath import short_path

MAX_REQUEST = 64 * 1024
"""Bytes of a request line."""
MAX_CLIENTS = 32
REQUEST_TIMEOUT_S = 10.0
"""How long a client may take to send its line, and to read each line of ours."""
CLOSE_GRACE_S = 2.0
"""How long ``close`` lets answers that are under way reach their clients."""
_QUEUE = 64
_COMMANDS = ("inject", "ping", "status", "stop")

log = get_logger("soak.web.control")


@dataclass(frozen=True, slots=True)
class InjectRequest:
    """What ``soak inject`` asks for. ``target`` None: the arbiter chooses; ``hold_s`` None: the fault's default."""

    fault: str
    target: str | None = None
    hold_s: float | None = None
    wait: bool = True
    """Whether the client waits for the end. The server sees to that; a backend need not look."""
    overlap: bool = False
    """Whether it may run beside another fault."""
    params: Mapping[str, str] = field(default_factory=dict)
    """Of the fault; one that it does not take is refused."""


class InjectUpdates(Protocol):
    """Where a backend tells how an injected fault gets on. Never blocks, never raises, may be called after the end."""

    def record(self, record: FaultRecord) -> None:
        """The fault reached another step of its lifecycle."""
        ...

    def waiting(self, reason: str) -> None:
        """The fault cannot begin yet."""
        ...


class ControlBackend(Protocol):
    """What the daemon does for the socket. ``SoakError`` and ``TargetError`` are refusals; their text goes to the client."""

    def status(self) -> Status:
        """Return a snapshot of the run."""
        ...

    async def inject(self, request: InjectRequest, updates: InjectUpdates) -> FaultRecord:
        """Run a fault and return its last record.

        Runs in a task that is cancelled only by ``ControlServer.close``: close after the daemon has healed.
        """
        ...

    async def stop(self, *, wait: bool) -> int | None:
        """Ask the run to end gracefully. With ``wait`` return its exit code once it has ended, else None at once."""
        ...


class _Updates:
    """A bounded queue of event lines for one client; the oldest gives way when the client does not read."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_QUEUE)

    def record(self, record: FaultRecord) -> None:
        self._put({"event": "record", "record": asdict(record)})

    def waiting(self, reason: str) -> None:
        self._put({"event": "waiting", "reason": reason})

    def _put(self, line: dict[str, Any]) -> None:
        if self.lines.full():
            self.lines.get_nowait()
        self.lines.put_nowait(line)


class ControlServer:
    """Serves one control socket. ``start`` binds it, ``close`` removes it."""

    def __init__(self, path: Path, backend: ControlBackend) -> None:
        self._path = path
        self._backend = backend
        self._server: asyncio.Server | None = None
        self._inode: tuple[int, int] | None = None
        self._clients: set[asyncio.Task[Any]] = set()
        self._injections: set[asyncio.Task[FaultRecord]] = set()

    async def start(self) -> None:
        """Bind and serve. Raises ``RunStateError`` if a daemon answers there, ``ControlError`` for anything else in the way."""
        listener = bind_private(self._path)
        info = self._path.lstat()
        self._inode = (info.st_dev, info.st_ino)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=MAX_REQUEST)

    async def close(self) -> None:
        """Take no more clients, let answers under way arrive, remove the socket. Idempotent."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        with contextlib.suppress(FileNotFoundError):
            info = self._path.lstat()
            if (info.st_dev, info.st_ino) == self._inode:
                self._path.unlink()
        if self._clients:
            await asyncio.wait(set(self._clients), timeout=CLOSE_GRACE_S)
        left = (*self._clients, *self._injections)
        for task in left:
            task.cancel()
        if left:  # how they end is told where they were started: nothing of it may keep the next one running
            await asyncio.wait(left)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            await self._answer(reader, writer)
        except (ConnectionError, TimeoutError) as error:
            log.info("control.client_gone", error=repr(error))
        finally:
            writer.close()
            try:
                with contextlib.suppress(ConnectionError, TimeoutError):
                    await asyncio.wait_for(writer.wait_closed(), REQUEST_TIMEOUT_S)
            finally:
                self._clients.discard(
                    task
                )  # not before: ``close`` waits for those whose answer is still on its way

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self._admit()
            request = await _read_request(reader)
            answer = await self._execute(request, writer)
        except (SoakError, TargetError) as refusal:
            code = getattr(refusal, "exit_code", ControlError.exit_code)
            answer = {"ok": False, "error": str(refusal), "code": code}
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:  # a bug in a backend is told, not a silent hang-up
            log.exception("control.failed")
            text = f"the daemon failed on this command: {error!r}; its log has the details"
            answer = {"ok": False, "error": text, "code": ControlError.exit_code}
        await _send(writer, answer)

    def _admit(self) -> None:
        if len(self._clients) > MAX_CLIENTS:
            raise ControlError(f"the daemon already serves {MAX_CLIENTS} clients; try again in a moment")

    async def _execute(self, request: Mapping[str, Any], writer: asyncio.StreamWriter) -> dict[str, Any]:
        command = _field(request, "cmd", str)
        if command == "ping":
            return {"ok": True}
        if command == "status":
            return {"ok": True, "status": self._backend.status().to_json()}
        if command == "stop":
            exit_code = await self._backend.stop(wait=_field(request, "wait", bool, default=True))
            return {"ok": True, "exit_code": exit_code}
        if command == "inject":
            return await self._inject(_inject_request(request), writer)
        raise ControlError(f"the command {command!r} is not known{nearest(command, _COMMANDS)}")

    async def _inject(self, request: InjectRequest, writer: asyncio.StreamWriter) -> dict[str, Any]:
        """Start the fault in a task of its own and tell the client what happens to it."""
        updates = _Updates()
        injection = spawn(self._backend.inject(request, updates), name=f"inject-{request.fault}")
        self._injections.add(injection)
        injection.add_done_callback(self._ended)
        first = await _next_line(updates, injection)
        if not request.wait and first is not None:
            return {"ok": True, "record": first.get("record"), "waiting": first.get("reason")}
        line = first
        while line is not None:
            await _send(writer, line)
            line = await _next_line(updates, injection)
        return {"ok": True, "record": asdict(await injection)}

    def _ended(self, injection: asyncio.Task[FaultRecord]) -> None:
        """Forget an injection; its error must not be lost when its client is gone."""
        self._injections.discard(injection)
        if not injection.cancelled() and (error := injection.exception()) is not None:
            log.warning("control.inject_refused", error=str(error))


async def _next_line(updates: _Updates, injection: asyncio.Task[FaultRecord]) -> dict[str, Any] | None:
    """Return the next event line, or None once the injection has ended and all lines are out."""
    if updates.lines.empty() and not injection.done():
        getter = spawn(updates.lines.get(), name="inject-updates")
        try:
            await asyncio.wait({getter, injection}, return_when=asyncio.FIRST_COMPLETED)
            if getter.done():
                return getter.result()
        finally:
            await cancel(getter)
    return None if updates.lines.empty() else updates.lines.get_nowait()


async def _read_request(reader: asyncio.StreamReader) -> Mapping[str, Any]:
    try:
        line = await asyncio.wait_for(reader.readline(), REQUEST_TIMEOUT_S)
    except ValueError:  # what readline makes of a line beyond the reader's limit
        raise ControlError(f"the request is longer than {MAX_REQUEST} bytes") from None
    except TimeoutError:
        raise ControlError(f"no request came within {REQUEST_TIMEOUT_S:g} s") from None
    if not line:
        raise ConnectionResetError("the client hung up before it asked anything")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise ControlError(f"the request {line[:60]!r} is not a JSON object on one line")
    return request


async def _send(writer: asyncio.StreamWriter, line: Mapping[str, Any]) -> None:
    writer.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    await asyncio.wait_for(writer.drain(), REQUEST_TIMEOUT_S)


_MISSING = object()


def _field(request: Mapping[str, Any], name: str, kind: type[Any], *, default: Any = _MISSING) -> Any:
    """Return a field of the request. Raises ``ControlError`` when it is missing or of another type."""
    value = request.get(name, default)
    if value is _MISSING:
        raise ControlError(f"the request has no field {name!r}")
    if value is default or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
        return value
    raise ControlError(f"the field {name!r} of the request is {value!r}; it must be a {kind.__name__}")


def _inject_request(request: Mapping[str, Any]) -> InjectRequest:
    hold_s = request.get("hold_s")
    if isinstance(hold_s, int) and not isinstance(hold_s, bool):
        hold_s = float(hold_s)
    hold_s = _field({"hold_s": hold_s}, "hold_s", float, default=None)
    if hold_s is not None and not 0 <= hold_s < float("inf"):
        raise ControlError(f"the hold of {hold_s:g} s is not possible: it must be zero or more and finite")
    return InjectRequest(
        fault=_field(request, "fault", str),
        target=_field(request, "target", str, default=None),
        hold_s=hold_s,
        wait=_field(request, "wait", bool, default=True),
        overlap=_field(request, "overlap", bool, default=False),
        params=_params(_field(request, "params", dict, default={})),
    )


def _params(given: Mapping[Any, Any]) -> Mapping[str, str]:
    for name, value in given.items():
        if not isinstance(value, str):
            raise ControlError(f"the param {name!r} is {value!r}; it must be a string")
    return dict(given)


def bind_private(path: Path) -> socket.socket:
    """Return a listening Unix socket at ``path`` with mode 0600; a dead run's socket is replaced.

    It gets its name once it listens: whoever finds it in between would take it for a dead run's.
    Raises ``RunStateError`` when somebody listens there already, ``ControlError`` when something else is in the way.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        # Linux gives the file the mode of the socket's own inode (unix_bind in net/unix/af_unix.c), so it is never
        # open to others, not even between bind and a chmod, and the umask of the whole process stays as it is.
        os.fchmod(listener.fileno(), 0o600)
        coming = path.with_name(f"{path.name}.new")
        with short_path(coming) as short:
            coming.unlink(missing_ok=True)
            listener.bind(short)
        try:
            mode = stat.S_IMODE(coming.lstat().st_mode)
            if mode & 0o077:
                raise ControlError(f"the socket {path} came up with mode {mode:04o}; others could open it")
            listener.listen(MAX_CLIENTS)
            with short_path(path) as short:
                _remove_stale(path, short)
            os.link(coming, path)
        finally:
            coming.unlink()
    except OSError as error:
        listener.close()
        raise ControlError(f"cannot bind the control socket {path}: {error.strerror}") from error
    except SoakError:
        listener.close()
        raise
    return listener


def _remove_stale(path: Path, short: str) -> None:
    """Unlink a socket file that nobody listens on."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(info.st_mode):
        raise ControlError(f"{path} is in the way and is not a socket; move it away")
    if info.st_uid != os.geteuid():
        raise ControlError(f"the socket {path} belongs to uid {info.st_uid}; use another run directory")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        code = probe.connect_ex(short)
    if code == errno.ECONNREFUSED:
        path.unlink()
        return
    raise RunStateError(f"a daemon already listens on {path}; 'soak status' shows it, 'soak stop' ends it")
