"""Errors that a person reads."""

import pytest

from soak import errors
from soak.errors import EXIT_USAGE, SoakError, nearest


def test_close_word_is_suggested():
    """A typo gets the word that was meant."""
    assert "; did you mean 'backend-down'?" == nearest("backend-dwon", ["reload", "backend-down"])


def test_all_words_are_listed_when_none_is_close():
    """A stranger's word gets the whole list, sorted."""
    assert "; known: backend-down, reload" == nearest("frobnicate", ["reload", "backend-down"])


@pytest.mark.parametrize(
    "name", ["PlanError", "LabError", "RunStateError", "StoreError", "ControlError", "SoakError"]
)
def test_every_error_is_the_users_to_fix(name):
    """All of them end a command with exit code 2 unless they say otherwise."""
    error = getattr(errors, name)

    assert issubclass(error, SoakError)
    assert EXIT_USAGE == error("x").exit_code
