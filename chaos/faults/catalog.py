"""Finds every fault of this package, so that a stranger adds one by adding one file.

Each module beside this one defines ``FAULT``, an object that fulfils ``chaos.fault.Disturbance`` or ``Transition``.
Modules whose name begins with an underscore are shared code and are passed over.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType, ModuleType

import chaos.faults
from chaos.fault import Disturbance, Fault, Transition
from chaos.model import FaultShape


class CatalogError(Exception):
    """A module of the package does not define a proper fault. The message names the module and the rule."""


@cache
def registry() -> Mapping[str, Fault]:
    """Return every fault by name, sorted. Raises ``CatalogError``."""
    names = sorted(m.name for m in pkgutil.iter_modules(chaos.faults.__path__))
    modules = (
        importlib.import_module(f"chaos.faults.{name}")
        for name in names
        if not name.startswith("_") and name != "catalog"
    )
    return collect(modules)


def collect(modules: Iterable[ModuleType]) -> Mapping[str, Fault]:
    """Return the faults of these modules by name. Raises ``CatalogError``."""
    found: dict[str, Fault] = {}
    origin: dict[str, str] = {}
    for module in modules:
        fault = _fault_of(module)
        if fault.name in found:
            raise CatalogError(
                f"{module.__name__} and {origin[fault.name]} both define the fault {fault.name!r}; names must differ"
            )
        found[fault.name] = fault
        origin[fault.name] = module.__name__
    return MappingProxyType(dict(sorted(found.items())))


def _fault_of(module: ModuleType) -> Fault:
    fault = getattr(module, "FAULT", None)
    if fault is None:
        raise CatalogError(f"{module.__name__} defines no FAULT; see docs/ADDING_A_FAULT.md")
    shape = getattr(fault, "shape", None)
    wanted = Transition if shape is FaultShape.TRANSITION else Disturbance
    if not isinstance(fault, wanted):
        missing = [name for name in _members(wanted) if not hasattr(fault, name)]
        raise CatalogError(f"{module.__name__}.FAULT is no {wanted.__name__}: it lacks {', '.join(missing)}")
    return fault


def _members(protocol: type) -> list[str]:
    return sorted(
        name
        for base in protocol.__mro__
        for name in vars(base)
        if not name.startswith("_") and base is not object
    )
