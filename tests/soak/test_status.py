"""The status record: the same through the socket as in the daemon."""

import json

import pytest

from soak.status import Status
from tests.soak.web.fakes import status_of_a_run


def test_status_survives_json():
    """What the daemon says is what the client reads."""
    status = status_of_a_run(extra={"note": "x"}, dirty=True)

    assert status == Status.from_json(json.loads(json.dumps(status.to_json())))


def test_status_of_another_version_is_refused():
    """A key that this version does not know is an error, not a silent loss."""
    with pytest.raises(TypeError):
        Status.from_json({**status_of_a_run().to_json(), "mood": "good"})
