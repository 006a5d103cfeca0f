"""All proxy adapters by name, found by looking: a file in this package that defines ``ADAPTER`` is an adapter.

Adding a proxy therefore touches one file. ``docs/ADDING_A_PROXY.md`` shows it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import soak.proxies
from soak.errors import LabError, PlanError, nearest
from soak.proxies.base import ConfiguredByPlan, ProxyAdapter
from soak.proxyplan import ProxyPlan

_NOT_ADAPTERS = frozenset({"base", "catalog", "companion"})


@cache
def adapters() -> Mapping[str, ProxyAdapter]:
    """Return every adapter by its name. Raises ``LabError`` for a file that defines none, or a name twice."""
    found: dict[str, ProxyAdapter] = {}
    for module in sorted(pkgutil.iter_modules(soak.proxies.__path__), key=lambda m: m.name):
        if module.name in _NOT_ADAPTERS or module.name.startswith("_"):
            continue
        adapter = getattr(importlib.import_module(f"soak.proxies.{module.name}"), "ADAPTER", None)
        if adapter is None:
            raise LabError(
                f"soak/proxies/{module.name}.py defines no ADAPTER; add one, or start the file's name with '_'"
            )
        if adapter.name in found:
            raise LabError(
                f"two files in soak/proxies define the adapter {adapter.name!r}; names must differ"
            )
        found[adapter.name] = adapter
    return MappingProxyType(found)


def adapter_of(plan: ProxyPlan) -> ProxyAdapter:
    """Return the adapter of a plan's proxy, with what the plan says of it. Raises ``PlanError`` naming the nearest known one."""
    found = adapter(plan.kind)
    return found.configured(plan) if isinstance(found, ConfiguredByPlan) else found


def adapter(name: str) -> ProxyAdapter:
    """Return the adapter of this name. Raises ``PlanError`` naming the nearest known one."""
    known = adapters()
    if name not in known:
        raise PlanError(f"proxy {name!r} is not known{nearest(name, known)}")
    return known[name]
