"""The run's own log: JSON lines in ``soak.log``, bounded on disk, never on the terminal (the live view owns that).

Every room says ``structlog.get_logger("soak.room")`` or ``get_logger`` from here, with dotted event names and data as
keywords. structlog hands its events to the standard library's logging, so that what libraries say (apscheduler,
aiohttp, asyncio) lands in the same file, from WARNING up. Without an open log everything is dropped.

Must not print, and must not raise into the code that logs: a full disk costs log lines, never the run.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

OWN_LOGGERS = ("soak", "chaos", "certs")
"""Loggers of this project: logged from INFO. Everybody else's from WARNING."""
MAX_BYTES = 20_000_000
"""Size of the log and of the one older file that is kept beside it."""

_SHARED: tuple[structlog.typing.Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
    structlog.processors.format_exc_info,
)


def configure() -> None:
    """Point structlog at logging, and see to it that loggers without a log file are silent. Idempotent."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    for name in OWN_LOGGERS:
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        if not logger.handlers:  # else logging's last resort prints warnings on stderr
            logger.addHandler(logging.NullHandler())


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of one room: ``get_logger("soak.daemon").info("origin.died", origin="b2")``."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


class BoundedLogHandler(logging.handlers.RotatingFileHandler):
    """A rotating file that counts the lines it could not write (full disk) instead of printing a traceback."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, maxBytes=max_bytes, backupCount=1, encoding="utf-8")
        self.lost = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - logging's name and signature
        """Count the line as lost."""
        self.lost += 1


class RunLog:
    """The open log of a run. One at a time in a process; ``close`` puts everything back as it was."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        """Open ``path`` for appending; ``path.1`` holds what came before. Raises ``OSError`` when it cannot be opened."""
        configure()
        self._handler = BoundedLogHandler(path, max_bytes)
        self._handler.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=_SHARED,
                processors=[
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.JSONRenderer(serializer=_to_json),
                ],
            )
        )
        self._root_level = logging.root.level
        logging.root.addHandler(self._handler)
        logging.root.setLevel(logging.WARNING)
        logging.captureWarnings(capture=True)
        self._unraisable, sys.unraisablehook = sys.unraisablehook, _log_unraisable
        self._thread_excepthook, threading.excepthook = threading.excepthook, _log_thread_error
        self._open = True

    @property
    def lost(self) -> int:
        """Lines that could not be written."""
        return self._handler.lost

    def close(self) -> None:
        """Flush, close and detach. Idempotent."""
        if not self._open:
            return
        self._open = False
        sys.unraisablehook, threading.excepthook = self._unraisable, self._thread_excepthook
        logging.captureWarnings(capture=False)
        logging.root.removeHandler(self._handler)
        logging.root.setLevel(self._root_level)
        try:
            self._handler.close()
        except OSError:  # the disk is full: what was buffered cannot be written
            self._handler.lost += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _to_json(value: Any, **options: Any) -> str:
    """Encode a log event; what JSON does not know is logged as its repr rather than lost."""
    return json.dumps(value, **{**options, "default": repr})


def _log_unraisable(found: sys.UnraisableHookArgs) -> None:
    error = found.exc_value
    exc_info = (type(error), error, found.exc_traceback) if error is not None else None
    get_logger("soak.log").error("python.unraisable", where=repr(found.object), exc_info=exc_info)


def _log_thread_error(found: threading.ExceptHookArgs) -> None:
    error = found.exc_value
    exc_info = (type(error), error, found.exc_traceback) if error is not None else None
    name = found.thread.name if found.thread is not None else ""
    get_logger("soak.log").error("thread.died", thread=name, exc_info=exc_info)


configure()
