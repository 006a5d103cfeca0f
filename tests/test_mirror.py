"""Tests mirror the tree: every module has its own test file beside the tests of its neighbours."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

WITHOUT_A_MIRROR = {
    "chaos/target.py": "protocols and their errors: no behaviour; each implementation has its tests",
    "soak/proxies/base.py": "the adapter protocol and frozen records: no behaviour",
}
"""Modules that need no test file of their own, and why. Packages' ``__init__`` and ``__main__`` are never asked."""


def modules():
    for package in ("soak", "chaos", "certs"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.stem not in ("__init__", "__main__"):
                yield path.relative_to(ROOT)


def mirror_of(module: Path) -> Path:
    return Path("tests") / module.parent / f"test_{module.stem.lstrip('_')}.py"


@pytest.mark.parametrize("module", list(modules()), ids=str)
def test_module_has_its_test_file(module):
    """tests/room/test_x.py for room/x.py, or a documented reason."""
    assert (ROOT / mirror_of(module)).is_file() or module.as_posix() in WITHOUT_A_MIRROR, (
        f"{module} has no {mirror_of(module)}"
    )


@pytest.mark.parametrize("name", WITHOUT_A_MIRROR)
def test_exception_is_still_needed(name):
    """An exception for a module that is gone, or that has got its tests, is taken off the list."""
    assert (ROOT / name).is_file()
    assert not (ROOT / mirror_of(Path(name))).exists()
    assert WITHOUT_A_MIRROR[name]
