"""A fault is one file: the catalog finds it, and refuses what is none."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import chaos.faults
from chaos.fault import Disturbance, Transition
from chaos.faults.catalog import CatalogError, collect, registry
from chaos.faults.noop import Noop
from chaos.model import FaultShape


def module(name: str, fault: object = None) -> ModuleType:
    made = ModuleType(name)
    if fault is not None:
        made.FAULT = fault  # type: ignore[attr-defined]  # modules take any attribute
    return made


def test_every_file_of_the_package_is_found():
    """A file each, called as the fault is: looked up in the directory, so that a new one needs no line here."""
    files = Path(chaos.faults.__file__).parent.glob("[a-z]*.py")
    expected = sorted(file.stem.replace("_", "-") for file in files if file.stem != "catalog")
    assert expected == list(registry())
    assert {"backend-down", "cert-rotate", "noop", "reload"} < set(registry())


@pytest.mark.parametrize("kind", sorted(registry()))
def test_every_fault_fulfils_the_protocol_of_its_shape(kind: str):
    """Shape and methods agree, and a transition does not hold."""
    fault = registry()[kind]
    if fault.shape is FaultShape.TRANSITION:
        assert isinstance(fault, Transition)
        assert fault.default_hold_s == 0
    else:
        assert isinstance(fault, Disturbance)
        assert fault.default_hold_s > 0


def test_a_new_file_is_a_new_fault():
    """A stranger's module needs nothing but its FAULT."""

    class Mine(Noop):
        name = "mine"

    assert list(collect([module("a", Noop()), module("b", Mine())])) == ["mine", "noop"]


def test_two_faults_of_one_name_are_refused():
    """Both modules are named."""
    with pytest.raises(CatalogError, match="b and a both define the fault 'noop'; names must differ"):
        collect([module("a", Noop()), module("b", Noop())])


def test_a_module_without_a_fault_is_refused():
    """The page that explains it is named."""
    with pytest.raises(CatalogError, match=r"a defines no FAULT; see docs/ADDING_A_FAULT.md"):
        collect([module("a")])


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (FaultShape.FAULT, r"a.FAULT is no Disturbance: it lacks .*inject.*revert.*verify_clean"),
        (FaultShape.TRANSITION, r"a.FAULT is no Transition: it lacks apply.*restore"),
    ],
)
def test_a_fault_that_lacks_methods_is_told_which(shape: FaultShape, words: str):
    """What is missing is listed."""
    half: Any = type("Half", (), {"shape": shape, "name": "half"})()
    with pytest.raises(CatalogError, match=words):
        collect([module("a", half)])
