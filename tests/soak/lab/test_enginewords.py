"""What went wrong with the engine, as sentences, and as the errors that faults know."""

import pytest

from chaos.target import IdentityChangedError, TargetError
from soak.errors import LabError
from soak.lab.enginewords import (
    ContainerGoneError,
    EngineAwayError,
    EngineError,
    ImageMissingError,
    NameTakenError,
    for_faults,
    refused,
    unreachable,
)


@pytest.mark.parametrize(
    ("status", "words", "kind", "says"),
    [
        (404, "No such image: nginx:9", ImageMissingError, "docker pull nginx:9"),
        (404, "No such container: abc", ContainerGoneError, "somebody removed it"),
        (404, "No such exec instance: abc", ContainerGoneError, "ended meanwhile"),
        (
            409,
            'Conflict. The name "/x" is already in use by container "y"',
            NameTakenError,
            "docker rm -f NAME",
        ),
        (500, "something else", EngineError, "try: the engine at unix:///s says: something else"),
    ],
)
def test_an_answer_that_is_no_success(status, words, kind, says):
    """Each kind has its class and its fix."""
    error = refused(status, words, "try", "unix:///s")

    assert type(error) is kind
    assert says in str(error)


def test_the_reason_is_found_however_deep_it_lies():
    """Libraries wrap an errno in their own errors, as argument or as cause."""
    inner = ConnectionRefusedError(111, "refused")
    wrapped = RuntimeError("outer", ValueError("middle", inner))
    caused = RuntimeError("x")
    caused.__cause__ = PermissionError(13, "no")

    assert isinstance(unreachable(wrapped, "unix:///s"), EngineAwayError)
    assert "usermod -aG docker" in str(unreachable(caused, "unix:///s"))
    assert unreachable(RuntimeError("words"), "unix:///s") is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ContainerGoneError("gone"), IdentityChangedError),
        (EngineAwayError("away"), TargetError),
        (LabError("no"), TargetError),
    ],
)
def test_faults_get_errors_that_they_know(error, kind):
    """A container that is gone is not the one that was prepared; all else could not be done."""
    with pytest.raises(kind, match=str(error)) as caught, for_faults():
        raise error
    assert type(caught.value) is kind
