"""The rules of the arbiter, a sentence a row."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.arbiter import ActiveFault, Arbiter, ChaosState, Decision, Granted, Refused, Wait
from chaos.faults.catalog import registry
from chaos.model import FaultRequest, Source

B1_DOWN = ActiveFault(1, "backend-down", "b1", frozenset({"backend:b1"}), takes_backend_away=True)
B2_HUNG = ActiveFault(2, "backend-hang", "b2", frozenset({"backend:b2"}), takes_backend_away=True)
RELOADING = ActiveFault(3, "reload", "proxy", frozenset({"proxy"}), takes_backend_away=False)
ALL = ("b1", "b2", "b3")


def world(**changes: Any) -> ChaosState:
    return ChaosState(**{"backends": ALL, "healthy": frozenset(ALL), **changes})


def ask(
    kind: str, target: str | None = None, *, active: tuple[ActiveFault, ...] = (), now: float = 100.0, overlap: bool = False,
    source: Source = Source.INJECT, **state: Any,
) -> Decision:  # fmt: skip
    request = FaultRequest(kind, source, now, 10.0, target, {"overlap": True} if overlap else {})
    return Arbiter(gap_s=4.0).request(request, registry()[kind], now, active, world(**state))


ROWS: list[tuple[str, Decision, Decision]] = [
    (
        "a reload of an idle run is granted on the proxy",
        Granted("proxy", "proxy is free"),
        ask("reload"),
    ),
    (
        "a noop needs no target",
        Granted("none", "none is free"),
        ask("noop"),
    ),
    (
        "a backend fault without a target takes the first in turn",
        Granted("b1", "b1 is healthy, free and its turn"),
        ask("backend-down"),
    ),
    (
        "after one turn it is the next one's",
        Granted("b2", "b2 is healthy, free and its turn"),
        ask("backend-down", turn=1),
    ),
    (
        "turns wrap around",
        Granted("b1", "b1 is healthy, free and its turn"),
        ask("backend-down", turn=3),
    ),
    (
        "a backend that is not running is passed over in turn",
        Granted("b2", "b2 is healthy, free and its turn"),
        ask("backend-down", healthy=frozenset({"b2", "b3"})),
    ),
    (
        "a backend that was asked for but is not running is refused",
        Refused("no backend for backend-down: b1 is not running"),
        ask("backend-down", "b1", healthy=frozenset({"b2", "b3"})),
    ),
    (
        "the last healthy backend is never taken",
        Refused("no backend for backend-down: b3 is the last healthy backend; one must remain"),
        ask("backend-down", "b3", healthy=frozenset({"b3"})),
    ),
    (
        "a lab with one backend cannot lose it",
        Refused("no backend for backend-kill: b1 is the last healthy backend; one must remain"),
        ask("backend-kill", backends=("b1",), healthy=frozenset({"b1"})),
    ),
    (
        "the last backend beside an active loss waits, since the other one returns",
        Wait(None, "b3 is the last healthy backend; one must remain"),
        ask("backend-down", "b3", overlap=True, active=(B1_DOWN, B2_HUNG), healthy=frozenset({"b3"})),
    ),
    (
        "a look that still calls a stopped backend healthy does not help",
        Wait(None, "b3 is the last healthy backend; one must remain"),
        ask("backend-down", "b3", overlap=True, active=(B1_DOWN, B2_HUNG)),
    ),
    (
        "two faults at a time are not allowed",
        Wait(
            None, "#1 backend-down on b1 is still active, and faults run one at a time unless told to overlap"
        ),
        ask("reload", active=(B1_DOWN,)),
    ),
    (
        "an injection may overlap a fault with other resources",
        Granted("proxy", "proxy is free"),
        ask("reload", overlap=True, active=(B1_DOWN,)),
    ),
    (
        "the schedule may not overlap, whatever its parameters say",
        Wait(
            None, "#1 backend-down on b1 is still active, and faults run one at a time unless told to overlap"
        ),
        ask("reload", overlap=True, source=Source.SCHEDULE, active=(B1_DOWN,)),
    ),
    (
        "no overlap ever shares a resource",
        Wait(None, "proxy is held by #3 reload on proxy"),
        ask("cert-rotate", overlap=True, active=(RELOADING,)),
    ),
    (
        "no overlap ever shares a backend",
        Wait(None, "b1 is held by #1 backend-down on b1"),
        ask("backend-hang", "b1", overlap=True, active=(B1_DOWN,)),
    ),
    (
        "an overlapping fault in turn takes a free backend",
        Granted("b2", "b2 is healthy, free and its turn"),
        ask("backend-hang", overlap=True, active=(B1_DOWN,), healthy=frozenset({"b2", "b3"})),
    ),
    (
        "within the gap after a recovery the wait has an end",
        Wait(102.0, "traffic recovered at 98.0 s and the gap is 4 s"),
        ask("reload", recovered_s=98.0),
    ),
    (
        "at the end of the gap it is granted",
        Granted("proxy", "proxy is free"),
        ask("reload", recovered_s=96.0),
    ),
    (
        "an overlapping injection ignores the gap",
        Granted("proxy", "proxy is free"),
        ask("reload", overlap=True, recovered_s=99.9),
    ),
    (
        "a missing capability is named",
        Refused("cert-rotate needs cert_rotate, which this lab and its proxy cannot do"),
        ask("cert-rotate", missing=frozenset({"cert_rotate"})),
    ),
    (
        "an unknown backend is answered with the nearest",
        Refused("backend-down has no target 'backend1'; did you mean 'backend-1'?"),
        ask("backend-down", "backend1", backends=("backend-1", "other-2")),
    ),
    (
        "an unknown backend that is near to none is answered with all",
        Refused("backend-down has no target 'paris'; known: b1, b2, b3"),
        ask("backend-down", "paris"),
    ),
    (
        "a lab without backends cannot lose one",
        Refused("backend-down needs a backend, and this lab has none"),
        ask("backend-down", backends=(), healthy=frozenset()),
    ),
    (
        "a dirty run refuses everything",
        Refused("the run is dirty: b1 is gone"),
        ask("noop", stopped="the run is dirty: b1 is gone"),
    ),
    (
        "even what overlaps is refused when chaos is stopped",
        Refused("chaos is stopped"),
        ask("noop", overlap=True, stopped="chaos is stopped"),
    ),
]


@pytest.mark.parametrize(("expected", "actual"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_rule(expected: Decision, actual: Decision):
    """Each row is a rule."""
    assert expected == actual
