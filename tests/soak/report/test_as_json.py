"""The report as JSON."""

from __future__ import annotations

import pytest

from soak.report import (
    render_json,
)


def test_is_json_that_ends_in_a_newline():
    """Readable, in UTF-8, and nothing that JSON does not know."""
    assert '{\n  "lab": "é"\n}\n' == render_json({"lab": "é"})


def test_nan_is_refused():
    """It would not be JSON, so it must not be printed as if it were."""
    with pytest.raises(ValueError):
        render_json({"p99": float("nan")})
