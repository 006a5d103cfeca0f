"""The client side of the control socket: one JSON line asks, event lines follow, a last line with ``ok`` ends it.

Owns the wording of everything that can go wrong on the way to a daemon: nobody there, a stale socket, somebody else's
socket, silence. Every read has a deadline, every line a bound. Synchronous: its callers are short-lived commands.
"""

from __future__ import annotations

import json
import os
import pwd
import socket
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from soak.errors import ControlError
from soak.rundir import RunDir
from soak.status import Status
from soak.web.socketpath import short_path

ANSWER_TIMEOUT_S = 10.0
"""How long the daemon may take to answer a question, and to connect."""
LIFECYCLE_TIMEOUT_S = 300.0
"""Longest silence between two steps of a fault, on top of its hold: deferral, injection, revert, recovery."""
STOP_TIMEOUT_S = 300.0
"""How long a run may take to heal, drain and judge."""
MAX_LINE = 8 * 1024 * 1024

OnEvent = Callable[[Mapping[str, Any]], None]


class RefusedError(ControlError):
    """The daemon understood and said no; carries its exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


@dataclass(frozen=True, slots=True)
class ControlClient:
    """Asks the daemon of one run. Each call opens a connection of its own."""

    run: RunDir
    answer_timeout_s: float = ANSWER_TIMEOUT_S

    def ping(self) -> None:
        """Return when the daemon answers. Raises ``ControlError``."""
        self._ask({"cmd": "ping"}, self.answer_timeout_s)

    def status(self) -> Status:
        """Return a snapshot of the run."""
        answer = self._ask({"cmd": "status"}, self.answer_timeout_s)
        try:
            return Status.from_json(answer["status"])
        except (KeyError, TypeError) as error:
            raise ControlError(
                f"the daemon of {self.run.id} answered a status that this soak does not know: {error}; "
                "it runs another version"
            ) from error

    def inject(
        self,
        fault: str,
        *,
        target: str | None = None,
        hold_s: float | None = None,
        wait: bool = True,
        overlap: bool = False,
        params: Mapping[str, str] | None = None,
        on_event: OnEvent | None = None,
    ) -> Mapping[str, Any]:
        """Ask for a fault; return its record as it stands at the end of the wait. Instants in seconds since run start.

        Raises ``ControlError`` when it is refused, with the daemon's reason.
        """
        request = {
            "cmd": "inject",
            "fault": fault,
            "target": target,
            "hold_s": hold_s,
            "wait": wait,
            "overlap": overlap,
            "params": dict(params or {}),
        }
        silence_s = (hold_s or 0.0) + LIFECYCLE_TIMEOUT_S if wait else self.answer_timeout_s
        record = self._ask(request, silence_s, on_event).get("record")
        return record if isinstance(record, dict) else {}

    def stop(self, *, wait: bool = True, on_event: OnEvent | None = None) -> int | None:
        """Ask for a graceful stop; with ``wait`` return the run's exit code once it has ended."""
        answer = self._ask(
            {"cmd": "stop", "wait": wait}, STOP_TIMEOUT_S if wait else self.answer_timeout_s, on_event
        )
        code = answer.get("exit_code")
        return code if isinstance(code, int) else None

    def _ask(
        self, request: Mapping[str, Any], silence_s: float, on_event: OnEvent | None = None
    ) -> Mapping[str, Any]:
        """Send one request; pass events on; return the last line. ``silence_s`` bounds the wait for each line."""
        with self._connected() as connection:
            try:
                connection.sendall(json.dumps(request).encode() + b"\n")
                connection.settimeout(silence_s)
                for line in self._lines(connection):
                    if "ok" not in line:
                        if on_event is not None:
                            on_event(line)
                        continue
                    if line["ok"]:
                        return line
                    raise RefusedError(str(line.get("error", "refused")), _code(line))
            except TimeoutError as error:
                raise ControlError(
                    f"the daemon of {self.run.id} said nothing for {silence_s:g} s; it may be stopped or very busy, "
                    f"see {self.run.log}"
                ) from error
            except (ConnectionError, BrokenPipeError) as error:
                raise ControlError(self._hung_up()) from error
        raise ControlError(self._hung_up())

    def _hung_up(self) -> str:
        return f"the daemon of {self.run.id} hung up before it had answered; see {self.run.log}"

    def _lines(self, connection: socket.socket) -> Iterator[Mapping[str, Any]]:
        buffer = bytearray()
        while chunk := connection.recv(65_536):
            buffer += chunk
            *whole, rest = bytes(buffer).split(b"\n")
            buffer = bytearray(rest)
            if len(buffer) > MAX_LINE:
                raise ControlError(
                    f"the daemon of {self.run.id} sent a line longer than {MAX_LINE // 1024 // 1024} MiB"
                )
            yield from map(self._decode, whole)

    def _decode(self, raw: bytes) -> Mapping[str, Any]:
        try:
            value = json.loads(raw)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ControlError(
                f"the socket {self.run.socket} answered {raw[:60]!r}, which is not soak's protocol"
            )
        return value

    @contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        self._check_owner()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(self.answer_timeout_s)
            try:
                with short_path(self.run.socket) as path:
                    connection.connect(path)
            except ConnectionRefusedError as error:
                raise ControlError(
                    f"nobody listens on the socket of the run {self.run.id}: it is stale, its daemon is gone; "
                    f"'soak heal {self.run.id}' cleans up"
                ) from error
            except TimeoutError as error:
                raise ControlError(
                    f"the daemon of {self.run.id} did not accept a connection for {self.answer_timeout_s:g} s"
                ) from error
            except OSError as error:
                raise ControlError(
                    f"cannot connect to the socket {self.run.socket}: {error.strerror}"
                ) from error
            self._check_peer(connection)
            yield connection

    def _check_owner(self) -> None:
        """Refuse a file that is not our own socket before a word is sent to it."""
        try:
            info = self.run.socket.lstat()
        except FileNotFoundError as error:
            raise ControlError(
                f"the run {self.run.id} has no control socket: it is over, or still starting; 'soak runs' shows which"
            ) from error
        except OSError as error:
            raise ControlError(f"cannot look at the socket {self.run.socket}: {error.strerror}") from error
        if not stat.S_ISSOCK(info.st_mode):
            raise ControlError(f"{self.run.socket} is not a socket; something else put it there")
        if info.st_uid != os.geteuid():
            raise ControlError(_foreign(f"the socket {self.run.socket} belongs to", info.st_uid))

    def _check_peer(self, connection: socket.socket) -> None:
        """Refuse a listener of another user: unix(7), SO_PEERCRED."""
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", raw)
        if uid != os.geteuid():
            raise ControlError(_foreign(f"the daemon at {self.run.socket} runs as", uid))


def _foreign(what: str, uid: int) -> str:
    return f"{what} {_user(uid)} and you are {_user(os.geteuid())}; use it as that user"


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _code(line: Mapping[str, Any]) -> int:
    code = line.get("code")
    return code if isinstance(code, int) and 0 < code < 128 else ControlError.exit_code
