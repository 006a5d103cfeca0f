"""What a plan may say of the proxy."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from soak.proxyplan import ProxyPlan


def test_the_default_proxy_is_the_one_that_soak_brings():
    """nginx, from its package."""
    assert ("nginx", None) == (ProxyPlan().kind, ProxyPlan().binary)


def test_an_unknown_key_is_refused():
    """A typing error is never silently a default."""
    with pytest.raises(ValidationError, match="bnary"):
        ProxyPlan.model_validate({"bnary": "/usr/sbin/nginx"})
