"""A lab hands what faults ask on to its parts, whole and with their answers."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from chaos.target import Backends, Proxy
from soak.lab.parts import CertifiedProxy, HasBackends, HasProxy


class Part:
    """Notes every call with its name and what it was given, and answers with its name."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def note(*args: Any, **kwargs: Any) -> str:
            self.calls.append((name, args, kwargs))
            return name

        async def answer(*args: Any, **kwargs: Any) -> str:
            return note(*args, **kwargs)

        return note if name in ("backend_names", "generation", "serial") else answer


class Lab(HasBackends, HasProxy):
    def __init__(self) -> None:
        self.part = Part()

    def _backend_part(self) -> Any:
        return self.part

    def _proxy_part(self) -> Any:
        return self.part


ASKED = sorted(
    {name for half in (Backends, CertifiedProxy, Proxy) for name in vars(half) if not name.startswith("_")}
)


@pytest.mark.parametrize("name", ASKED)
async def test_every_question_of_the_protocol_goes_to_the_part(name):
    """With its arguments, by position and by name; a method that is missing here would not be a target."""
    lab = Lab()
    method = getattr(lab, name)
    given = {p.name: object() for p in inspect.signature(method).parameters.values()}
    by_name = {
        p.name: given[p.name]
        for p in inspect.signature(method).parameters.values()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
    by_place = [given[key] for key in given if key not in by_name]
    found = method(*by_place, **by_name)
    answer = await found if inspect.isawaitable(found) else found
    assert [(name, tuple(by_place), by_name)] == lab.part.calls
    assert answer in (None, name)


async def test_half_a_target_cannot_be_made_without_its_part():
    """Forgetting to say who does it is an error at once."""
    with pytest.raises(TypeError, match="_backend_part"):
        type("Lame", (HasBackends,), {})()
