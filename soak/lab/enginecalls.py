"""Calls to a container engine: how it is reached, every call off the event loop and with a deadline, errors in our words.

What there is to call is ``soak.lab.engine``; beside it, no other module imports the docker SDK. The engine must be on this host, for containers get
directories of it. Errors are mapped once (``soak.lab.enginewords``).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

import docker
from docker.errors import APIError, DockerException

from soak.lab.enginewords import EngineAwayError, EngineError, refused, unreachable

DEFAULT_HOST = "unix:///var/run/docker.sock"
OLDEST_API = "1.41"
"""Docker 20.10. An older one has no counters without sampling."""
_THREADS = 6
TIMEOUT_S = 15.0
"""How long a call may take, if it says nothing else."""

T = TypeVar("T")


def engine_host(configured: str | None) -> str:
    """Return where the engine is: as configured (a URL, or the path of a socket), ``DOCKER_HOST``, or the usual socket."""
    host = configured or os.environ.get("DOCKER_HOST") or DEFAULT_HOST
    return host if "://" in host else f"unix://{Path(host).expanduser().absolute()}"


class EngineCalls:
    """A connection to one container engine. ``connect``, use, ``close``."""

    def __init__(self, host: str | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.host = engine_host(host)
        self.version = ""
        """Version of the engine, known once connected."""
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="engine")
        self._connected: Any = None
        self._api = OLDEST_API

    @classmethod
    async def connect(cls, host: str | None = None, *, timeout_s: float = TIMEOUT_S) -> Self:
        """Reach the engine and look whether it is young enough. Raises ``EngineError``."""
        engine = cls(host, timeout_s=timeout_s)
        try:
            await engine._open()
        except BaseException:
            engine.close()
            raise
        return engine

    def close(self) -> None:
        """Let go of the connection. Idempotent; calls under way end at their own deadline."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._connected is not None:
            self._connected.close()

    async def ping(self) -> None:
        """Raise ``EngineAwayError`` unless the engine answers."""
        await self._call("ping", self._client.ping)

    # inside

    @property
    def _client(self) -> Any:
        if self._connected is None:
            raise EngineError("the engine is not connected; await Engine.connect() first")
        return self._connected

    async def _open(self) -> None:
        def connect() -> tuple[Any, dict[str, Any]]:
            _knock(self.host, self._timeout_s)
            # Not version="auto": that asks in the constructor, and leaves its socket open when the answer is none.
            asker = sdk(self.host, OLDEST_API, self._timeout_s)
            try:
                about = dict(asker.version(api_version=False))
            finally:
                asker.close()
            return sdk(self.host, str(about["ApiVersion"]), self._timeout_s), about

        self._connected, about = await self._call("connect", connect)
        self.version = str(about["Version"])
        self._api = str(about["ApiVersion"])
        if tuple(map(int, self._api.split("."))) < tuple(map(int, OLDEST_API.split("."))):
            raise EngineError(
                f"the engine at {self.host} is {self.version} with API {self._api}; "
                f"soak needs API {OLDEST_API} (Docker 20.10) or newer"
            )

    async def _call(self, what: str, act: Callable[[], T], timeout_s: float | None = None) -> T:
        """Run a call of the SDK in a thread, with a deadline, and say what went wrong in our words."""
        limit = timeout_s or self._timeout_s
        try:
            async with asyncio.timeout(limit + 1.0):  # the SDK's own deadline comes first and says more
                return await asyncio.get_running_loop().run_in_executor(self._pool, act)
        except TimeoutError as error:
            raise self._late(what, limit) from error
        except APIError as error:
            words = str(error.explanation or error)
            raise refused(error.status_code, words, what, self.host) from error
        except (DockerException, OSError, ValueError, KeyError) as error:  # requests' errors are OSErrors
            if "timed out" in str(error).lower():
                raise self._late(what, limit) from error
            words = f"{what}: the engine at {self.host} could not be asked: {error}"
            raise unreachable(error, self.host) or EngineError(words) from error

    def _late(self, what: str, limit_s: float) -> EngineAwayError:
        return EngineAwayError(f"the engine at {self.host} did not answer '{what}' within {limit_s:g} s")


def _knock(host: str, timeout_s: float) -> None:
    """Raise ``OSError`` unless somebody listens at a Unix socket: the plain reason, which the SDK wraps five times."""
    if host.startswith("unix://"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            caller.settimeout(timeout_s)
            caller.connect(host.removeprefix("unix://"))


def sdk(host: str, api: str, timeout_s: float | None) -> Any:
    """Return the SDK's low-level client; ``timeout_s`` None: a call may take for ever."""
    return docker.APIClient(host, version=api, timeout=timeout_s, max_pool_size=_THREADS)
