"""A lab that is put together from a proxy and backends: what the local, the docker and the attach lab have in common.

Each of them says how its parts are made and ended, where they are, and what can be done to them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from certs.authority import Authority
from soak import log as run_log
from soak.clock import Clock, SystemClock
from soak.errors import LabError
from soak.lab.base import TASK_DIED, OnEvent
from soak.lab.configured import ConfiguredProxy, ProxySetup
from soak.lab.parts import HasBackends, HasProxy
from soak.lab.topology import ProxyAddress, Topology
from soak.plan import Plan
from soak.proxies.base import SERVER_NAME, BackendAddress, supported_by
from soak.proxies.catalog import adapter_of
from soak.rundir import RunDir

log = run_log.get_logger("soak.lab")
T = TypeVar("T")


def there(part: T | None) -> T:
    """Return a part of a lab that there is once it is started. Raises ``LabError`` before."""
    if part is None:
        raise LabError("the lab is not started; await start() first")
    return part


class AssembledLab(HasBackends, HasProxy):
    """One run's system under test, of parts."""

    server_name = SERVER_NAME
    """Host header and SNI of the proxied site."""

    def __init__(
        self, run: RunDir, plan: Plan, *, on_event: OnEvent, clock: Clock | None = None, routes: int = 0
    ) -> None:
        """Read the plan. Raises ``PlanError``; nothing is looked for, made or written.

        ``routes`` is how many hosts with a route each the proxy has beside ``server_name``: ``r1.soak.test``, ...
        """
        self._run = run
        self._plan = plan
        self._on_event = on_event
        self._routes = routes
        self._clock = clock or SystemClock()
        self._adapter = adapter_of(plan.proxy)
        self.proxy_version = ""
        """Version of the proxy, known from ``start`` on."""

    @property
    @abstractmethod
    def _places(self) -> Topology:
        """Where everything listens. May raise ``LabError`` before the lab is started."""

    @property
    @abstractmethod
    def _able(self) -> frozenset[str]:
        """What this lab can do to its parts, whatever the proxy."""

    @abstractmethod
    def _proxy_part(self) -> ConfiguredProxy:
        """Return the proxy. Raises ``LabError`` before the lab is started."""

    @property
    def proxy_address(self) -> ProxyAddress:
        """Where clients reach the proxy."""
        return self._places.proxy

    @property
    def backend_addresses(self) -> Sequence[BackendAddress]:
        """Where the origins listen; for people: clients go through the proxy."""
        return self._places.backends

    @property
    def ca_file(self) -> Path:
        """What clients trust: the root certificate of the run."""
        return self._proxy_part().ca_file

    def supports(self, capability: str) -> bool:
        """Whether the lab and its proxy can do this."""
        return capability in self._able | supported_by(self._adapter)

    def backend_names(self) -> Sequence[str]:
        """Return the names, in order."""
        return tuple(address.name for address in self._places.backends)

    def _task_died(self, name: str, error: BaseException) -> None:
        log.error("task.died", task=name, exc_info=error)
        self._on_event(TASK_DIED, {"name": name, "how": repr(error)})

    def _setup(self, binary: Path, authority: Authority) -> ProxySetup:
        """Return what the proxy is made from; ``binary`` is where it runs."""
        return ProxySetup(
            self._run,
            self._plan.proxy,
            self._places,
            self._clock,
            self._adapter,
            binary,
            authority,
            self._plan.lab.start_timeout,
            self.proxy_version,
            self._routes,
        )
