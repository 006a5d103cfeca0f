"""Adapters are found by looking into the package, so that a stranger adds a proxy in one file."""

from __future__ import annotations

import pytest

import soak.proxies
from soak.errors import LabError, PlanError
from soak.proxies import catalog
from soak.proxies.nginx import NginxAdapter


@pytest.fixture
def one_more_file(tmp_path, monkeypatch):
    """Let the package also look into a directory, and forget what it found afterwards."""
    monkeypatch.setattr(soak.proxies, "__path__", [*soak.proxies.__path__, str(tmp_path)])
    catalog.adapters.cache_clear()
    yield tmp_path
    catalog.adapters.cache_clear()


def test_nginx_is_found_by_its_name():
    """The adapter of the quick start is in the catalog."""
    assert isinstance(catalog.adapter("nginx"), NginxAdapter)


def test_an_unknown_name_says_the_nearest_known_one():
    """A typo is a PlanError with the fix."""
    with pytest.raises(PlanError, match="proxy 'ngnix' is not known; did you mean 'nginx'"):
        catalog.adapter("ngnix")


def test_a_new_file_is_a_new_proxy(one_more_file):
    """One file with an ADAPTER is enough."""
    (one_more_file / "catalog_test_new.py").write_text(
        "from soak.proxies.nginx import NginxAdapter\n"
        "class A(NginxAdapter):\n    name = 'brand-new'\n"
        "ADAPTER = A()\n"
    )

    assert "brand-new" == catalog.adapter("brand-new").name


def test_a_file_without_an_adapter_is_named(one_more_file):
    """Forgetting ADAPTER is not silence."""
    (one_more_file / "catalog_test_empty.py").write_text("")

    with pytest.raises(LabError, match=r"soak/proxies/catalog_test_empty\.py defines no ADAPTER"):
        catalog.adapters()


def test_two_files_with_one_name_are_refused(one_more_file):
    """Names are unique."""
    (one_more_file / "catalog_test_twice.py").write_text("from soak.proxies.nginx import ADAPTER\n")

    with pytest.raises(LabError, match="define the adapter 'nginx'"):
        catalog.adapters()


def test_a_private_file_is_no_adapter(one_more_file):
    """A file whose name starts with an underscore is left alone."""
    (one_more_file / "_catalog_test_private.py").write_text("raise RuntimeError('imported')\n")

    assert "nginx" in catalog.adapters()
