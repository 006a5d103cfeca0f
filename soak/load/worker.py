"""The load worker's process: ``python -m soak.load.worker``. First line of stdin: a ``LoadSlice``. Then commands.

Commands are JSON lines: ``{"op": "beat"}``, ``{"op": "scope", "id": 3, "steady": false}``, ``{"op": "stop"}``. One
report a second goes to stdout as a line of JSON, after a first line that says ready. End of stdin means that the daemon is gone: the worker ends at once.
A reader that stands still never blocks the load: reports wait in a bounded buffer, then are dropped and counted.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from dataclasses import replace
from typing import Any

import uvloop

from soak.load.engine import Engine
from soak.load.limits import raise_open_file_limit
from soak.load.priority import run_first
from soak.load.traffic import LoadSlice
from soak.measure.window import WorkerReport, to_line
from soak.tasks import cancel, spawn

MAX_UNREAD_BYTES = 32 * 1024 * 1024
READY_LINE = b'{"ready":true}\n'
"""The first line of stdout: the interpreter is up and the slice is awaited."""
_MAX_LINE = 4 * 1024 * 1024


class _Outlet:
    """Reports to the daemon, without ever waiting for it."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self.dropped = 0

    def emit(self, report: WorkerReport) -> None:
        """Send one report, or count it as dropped; the next one says how many were."""
        if self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > MAX_UNREAD_BYTES and not report.final:
            self.dropped += 1
            return
        if self.dropped:
            note = {"name": "load.reports_dropped", "reports": self.dropped}
            report = replace(report, notes=[*report.notes, note])
            self.dropped = 0
        self._transport.write(to_line(report))


async def _commands(reader: asyncio.StreamReader, engine: Engine) -> None:
    while line := await reader.readline():
        engine.heard()
        try:
            _obey(json.loads(line), engine)
        except (ValueError, KeyError, TypeError) as error:
            engine.note("load.bad_command", error=f"{type(error).__name__}: {error}"[:200])
    os._exit(0)  # the daemon is gone: nobody is left to tell, and sockets close with the process


def _obey(command: dict[str, Any], engine: Engine) -> None:
    if command["op"] == "scope":
        engine.enter_scope(command["id"], steady=command["steady"])
    elif command["op"] == "stop":
        engine.stop()
    elif command["op"] != "beat":
        raise ValueError(f"unknown command {command['op']!r}")


def watch_loop(loop: asyncio.AbstractEventLoop, engine: Engine) -> None:
    """Book what callbacks raise as internal errors, so that a flood of them cannot fill a disk."""

    def on_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        engine.internal_error(error if error is not None else RuntimeError(str(context.get("message"))))

    loop.set_exception_handler(on_error)


async def serve() -> None:
    """Read the slice, run it, report."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_MAX_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    write, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    write.write(READY_LINE)
    try:
        load = LoadSlice.from_json(json.loads(await reader.readline()))
        engine = Engine(load, _Outlet(write).emit)
    except (ValueError, KeyError, TypeError, OSError) as error:
        sys.exit(f"the load worker cannot start: {type(error).__name__}: {error}")
    watch_loop(loop, engine)
    why_not = run_first(load.workers) if load.realtime else "it was not asked for"
    engine.note("load.priority", realtime=not why_not, why_not=why_not)
    engine.heard()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    commands = spawn(_commands(reader, engine), name="commands")
    await engine.run()
    await cancel(commands)
    writer = asyncio.StreamWriter(write, protocol, None, loop)
    await writer.drain()
    write.close()


def main() -> None:
    """Run the worker. Signals of the terminal are the daemon's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise_open_file_limit()
    uvloop.run(serve())


if __name__ == "__main__":
    main()
