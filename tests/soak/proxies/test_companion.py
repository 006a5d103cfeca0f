"""What a companion is and which words of its output count; started for real: tests/soak/lab/test_companions.py."""

from __future__ import annotations

from pathlib import Path
from signal import SIGHUP, SIGUSR1

import pytest

from soak.proxies.catalog import adapters
from soak.proxies.companion import Companion, HasCompanions, companion_output_of

LOG = "read the pair\nbad key: no\nread the pair again"


def test_its_words_count_as_its_patterns_say():
    """Each whole line in which a pattern is found."""
    told = Companion("tls", ["hitch"], 443, signal=SIGUSR1, accepted="^read", refused=r"bad \w+")
    assert ["read the pair", "read the pair again"] == told.acceptances(LOG)
    assert ["bad key: no"] == told.refusals(LOG)
    assert SIGUSR1 is told.reload_signal()


def test_one_without_patterns_never_says():
    """Silence is neither: traffic judges."""
    silent = Companion("tls", ["hitch"], 443)
    assert ([], []) == (silent.acceptances(LOG), silent.refusals(LOG))
    assert SIGHUP is silent.reload_signal()


def test_its_output_is_beside_that_of_the_proxy(tmp_path: Path):
    """In the directory above the proxy's own, by name."""
    assert tmp_path / "proxy-tls.out" == companion_output_of(tmp_path / "proxy", "tls")


def test_varnish_alone_has_some():
    """The others are one tree of processes each."""
    assert ["varnish"] == [name for name, one in adapters().items() if isinstance(one, HasCompanions)]


@pytest.mark.parametrize("name", sorted(adapters()))
def test_an_adapter_with_companions_says_what_they_are_called(name):
    """Without names it would be taken for one without companions."""
    adapter = adapters()[name]
    assert hasattr(adapter, "companions") == isinstance(adapter, HasCompanions)
