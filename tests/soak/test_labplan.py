"""What a plan may say of the lab."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from soak.labplan import LabPlan


def test_the_default_lab_needs_nothing_set_up():
    """Processes on loopback, three origins."""
    assert ("local", 3) == (LabPlan().kind, LabPlan().backends)


def test_a_lab_without_a_backend_is_refused():
    """Nothing would be behind the proxy."""
    with pytest.raises(ValidationError, match="backends"):
        LabPlan.model_validate({"backends": 0})
