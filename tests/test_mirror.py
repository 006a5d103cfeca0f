"""Tests mirror the tree: every module has its own test file, or its package has one that tests it through its door."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

WITHOUT_A_MIRROR = {
    "chaos/fault.py": "the protocols and frozen records of a fault: no behaviour; each fault has its tests",
    "chaos/target.py": "protocols and their errors: no behaviour; each implementation has its tests",
    "soak/lab/attached.py": "the protocol of what is attached to, and one error: each kind of thing has its tests",
    "soak/lab/base.py": "the protocol of a lab: no behaviour; each lab has its tests",
    "soak/load/flight.py": "the protocol of a request under way: no behaviour; each lane has its tests",
    "soak/proxies/base.py": "the adapter protocol and frozen records: no behaviour",
}
"""Modules that need no test file of their own, and why. Packages' ``__init__`` and ``__main__`` are never asked."""


def modules():
    for package in ("soak", "chaos", "certs"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.stem not in ("__init__", "__main__"):
                yield path.relative_to(ROOT)


def mirrors_of(module: Path) -> list[Path]:
    """Return where the tests may be: tests/soak/store/test_writer.py, or tests/soak/test_store.py for the package."""
    own = Path("tests") / module.parent / f"test_{module.stem.lstrip('_')}.py"
    door = Path("tests") / module.parent.parent / f"test_{module.parent.name}.py"
    return [own, door] if len(module.parts) > 2 else [own]


def is_mirrored(module: Path) -> bool:
    return any((ROOT / mirror).is_file() for mirror in mirrors_of(module))


@pytest.mark.parametrize("module", list(modules()), ids=str)
def test_module_has_its_test_file(module):
    """tests/room/test_x.py for room/x.py, or tests/test_room.py for the whole room, or a documented reason."""
    names = " nor ".join(str(mirror) for mirror in mirrors_of(module))
    assert is_mirrored(module) or module.as_posix() in WITHOUT_A_MIRROR, f"there is no {names}"


@pytest.mark.parametrize("name", WITHOUT_A_MIRROR)
def test_exception_is_still_needed(name):
    """An exception for a module that is gone, or that has got its tests, is taken off the list."""
    assert (ROOT / name).is_file()
    assert not is_mirrored(Path(name))
    assert WITHOUT_A_MIRROR[name]


def test_every_module_has_its_line_in_the_architecture_document():
    """docs/ARCHITECTURE.md lists each module once, and none that is gone."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    listed = re.findall(r"^\| `((?:soak|chaos|certs)/\S+\.py)` \| .+ \|$", text, re.MULTILINE)

    assert sorted(module.as_posix() for module in modules()) == sorted(listed)
