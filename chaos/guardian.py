"""A process that outlives the daemon and heals what the daemon can no longer heal itself.

It waits for one of two things: end of file on a pipe whose only other end the daemon holds (the kernel closes it,
however the daemon dies), or an absolute deadline of CLOCK_MONOTONIC (the daemon lives, but stands still). Then it
plays ``chaos.heal``. In a session of its own, so no Ctrl-C of a terminal reaches it. It imports all it needs before
it says that it is ready: what is on disk may change during a day.

    python -m chaos.guardian --run DIR --pipe-fd N --deadline-ns NS --open soak.lab:open_for_healing --log FILE

Lines on the pipe: ``deadline <ns>`` moves the deadline, ``done`` ends the watch without doing anything.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

from chaos.faults.catalog import registry
from chaos.heal import HealResult, heal
from chaos.journal import JOURNAL_NAME
from chaos.target import HealableFactory

READY = b"ready\n"
ROUNDS = 3
"""How often the whole of healing is tried; each part of it is retried on its own too."""
PAUSE_S = 2.0
_MS = 1_000_000


class GuardianError(Exception):
    """The guardian did not start or is gone. Carries its own words."""


class Cause(StrEnum):
    """Why the watch ended."""

    DONE = "done"
    EOF = "the daemon is gone"
    DEADLINE = "the deadline has passed"


class Watch:
    """The watch over one pipe: lines in, a cause out."""

    def __init__(self, fd: int, deadline_ns: int) -> None:
        self.deadline_ns = deadline_ns
        self._fd = fd
        self._rest = b""

    def wait(self) -> Cause:
        """Block until there is a cause."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while True:
            left_ns = self.deadline_ns - time.monotonic_ns()
            if left_ns <= 0:
                return Cause.DEADLINE
            if not poll.poll(min(math.ceil(left_ns / _MS), 60_000)):
                continue
            data = os.read(self._fd, 4096)
            if not data:
                return Cause.EOF
            if (cause := self.feed(data)) is not None:
                return cause

    def feed(self, data: bytes) -> Cause | None:
        """Take bytes from the pipe. A line that is neither kind is passed over: healing must not depend on it."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            words = line.split()
            if words == [b"done"]:
                return Cause.DONE
            if len(words) == 2 and words[0] == b"deadline" and words[1].isdigit():
                self.deadline_ns = int(words[1])
        return None


class Guardian:
    """The daemon's end: a running guardian process."""

    def __init__(self, process: asyncio.subprocess.Process, write_fd: int) -> None:
        self._process = process
        self._fd = write_fd

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still watches."""
        return self._process.returncode is None

    def extend(self, deadline_ns: int) -> None:
        """Move the deadline to this instant of CLOCK_MONOTONIC. Raises ``GuardianError`` when it is gone."""
        self._say(f"deadline {deadline_ns}\n")

    async def done(self, timeout_s: float = 10.0) -> int:
        """Tell it that all is clean and wait for its end; returns its exit code (0). One that does not end is killed."""
        if self._fd >= 0:
            with suppress(GuardianError):  # it is gone: its exit code says how
                self._say("done\n")
            self._hang_up()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._process.wait()
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()

    async def ended(self) -> int:
        """Wait for its end, whatever the cause; returns its exit code."""
        code = await self._process.wait()
        self._hang_up()
        return code

    def _hang_up(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _say(self, line: str) -> None:
        if self._fd < 0:
            raise GuardianError(f"the guardian (pid {self.pid}) is gone")
        try:
            os.write(self._fd, line.encode())
        except OSError as error:
            raise GuardianError(f"the guardian (pid {self.pid}) is gone: {error.strerror}") from error


async def spawn_guardian(
    *,
    run_dir: Path,
    open_lab: str,
    deadline_ns: int,
    log: Path,
    ready_timeout_s: float = 30.0,
    env: Mapping[str, str] | None = None,
) -> Guardian:
    """Start a guardian for a run and wait until it watches. Raises ``GuardianError`` with its words when it does not.

    ``open_lab`` is ``module:function``, a ``HealableFactory``; ``deadline_ns`` an instant of CLOCK_MONOTONIC.
    """
    read_fd, write_fd = os.pipe()  # neither is inherited by other children, so end of file means our death
    log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    command = _command(run_dir, open_lab, deadline_ns, log, read_fd)
    try:
        # -P and cwd: a file in the user's directory must not shadow a module, and no directory is held busy
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log_fd,
            pass_fds=(read_fd,),
            start_new_session=True,
            cwd="/",
            env=env,
        )
    except BaseException:
        os.close(write_fd)
        raise
    finally:
        os.close(read_fd)
        os.close(log_fd)
    guardian = Guardian(process, write_fd)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(ready_timeout_s):
            said = await process.stdout.readline()
    except TimeoutError as error:
        await guardian.done(timeout_s=0)
        raise GuardianError(f"the guardian did not start within {ready_timeout_s:g} s") from error
    except BaseException:
        await guardian.done(timeout_s=0)
        raise
    if said != READY:
        code = await guardian.done()
        words = await asyncio.to_thread(_last_words, log)
        raise GuardianError(f"the guardian did not start (exit code {code}): {words}")
    return guardian


def _command(run_dir: Path, open_lab: str, deadline_ns: int, log: Path, read_fd: int) -> list[str]:
    command = [sys.executable, "-P", "-m", "chaos.guardian", "--run", str(run_dir.absolute())]
    command += ["--pipe-fd", str(read_fd), "--deadline-ns", str(deadline_ns)]
    return [*command, "--open", open_lab, "--log", str(log.absolute())]


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def main(arguments: Sequence[str] | None = None) -> int:
    """Watch, then heal if need be. Returns 0 when nothing is left behind, 4 otherwise."""
    args = _parse(arguments)
    _stay()
    log = _Log(args.log)
    open_lab = _load(args.open)
    registry()
    log.write("guardian.watching", run=str(args.run), deadline_ns=args.deadline_ns, pid=os.getpid())
    _say_ready()
    cause = Watch(args.pipe_fd, args.deadline_ns).wait()
    log.write("guardian.cause", cause=cause.value)
    if cause is Cause.DONE:
        return 0
    return 0 if asyncio.run(_heal(args.run, open_lab, log)) else 4


async def _heal(run: Path, open_lab: HealableFactory, log: _Log) -> bool:
    for attempt in range(1, ROUNDS + 1):
        try:
            result = await heal(run / JOURNAL_NAME, await open_lab(str(run)), registry())
        except Exception as error:  # noqa: BLE001  (nobody else is left to heal: try again, then leave it to soak heal)
            log.write("guardian.error", attempt=attempt, error=f"{type(error).__name__}: {error}")
        else:
            log.write("guardian.healed" if result.ok else "guardian.not_healed", **_told(result))
            if result.ok:
                return True
        if attempt < ROUNDS:
            await asyncio.sleep(PAUSE_S)
    return False


def _told(result: HealResult) -> dict[str, Any]:
    released = None if result.released is None else dict(result.released.detail)
    return {"sentences": result.sentences(), "released": released}


class _Log:
    """JSON lines with CLOCK_MONOTONIC. A log that cannot be written must not prevent healing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, name: str, **data: Any) -> None:
        line = json.dumps({"monotonic_ns": time.monotonic_ns(), "event": name, **data}, default=str)
        with suppress(OSError), self._path.open("a") as file:
            file.write(line + "\n")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos.guardian", description="Heals a run whose daemon died.")
    parser.add_argument("--run", type=Path, required=True, help="directory of the run")
    parser.add_argument("--pipe-fd", type=int, required=True, help="read end of a pipe that the daemon holds")
    parser.add_argument("--deadline-ns", type=int, required=True, help="absolute, CLOCK_MONOTONIC")
    parser.add_argument("--open", required=True, help="module:function that opens the lab of a run directory")
    parser.add_argument("--log", type=Path, required=True, help="file for what was done")
    return parser.parse_args(arguments)


def _stay() -> None:
    """Pass over the signals that end a daemon. A function, not SIG_IGN: that would be inherited by what is started."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda *_: None)


def _load(spec: str) -> HealableFactory:
    module, _, name = spec.partition(":")
    factory: HealableFactory = getattr(importlib.import_module(module), name)
    return factory


def _say_ready() -> None:
    """Tell the daemon, then let go of the pipe: the daemon's death must not break anything here."""
    with suppress(OSError):
        os.write(1, READY)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


if __name__ == "__main__":
    sys.exit(main())
