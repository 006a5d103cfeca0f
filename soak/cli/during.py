"""Commands for a live run: ``status``, ``stop``, ``inject``. They speak to its daemon through the control socket."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from chaos.model import FaultOutcome
from soak.cli.arguments import RUN_NAME
from soak.cli.group import DURATION, SoakCommand, note, stdout_console
from soak.errors import EXIT_DIRTY, EXIT_FAIL, EXIT_INVALID, EXIT_PASS, ControlError
from soak.runs import find_live, lock_holder

STEPS = ("injected", "active", "reverted", "recovered")
_EXIT = {
    FaultOutcome.VERIFIED: EXIT_PASS,
    FaultOutcome.FAILED: EXIT_FAIL,
    FaultOutcome.INCONCLUSIVE: EXIT_INVALID,
    FaultOutcome.DIRTY: EXIT_DIRTY,
}


@click.command(cls=SoakCommand)
@click.argument("run_name", metavar="[RUN]", required=False, type=RUN_NAME)
@click.option("--json", "as_json", is_flag=True, help="Print the status as JSON.")
def status(*, run_name: str | None, as_json: bool) -> int:
    """Show how a live run is doing: rate held, latency, failures, faults.

    Examples:
      soak status
      soak status --json | jq .outcomes
      soak status 2026-12-01T08-00-00-nginx
    """
    from soak.liveview import event_text, render  # noqa: PLC0415 - keeps --help quick
    from soak.web.client import ControlClient  # noqa: PLC0415

    now = ControlClient(find_live(run_name)).status()
    if as_json:
        click.echo(json.dumps(now.to_json()))
        return 0
    events = tuple(
        f"{e.get('at_s', 0):>10.1f} s  {event_text(str(e.get('name', '')), e.get('data') or {})}"
        for e in now.last_events
    )
    console = stdout_console()
    console.print(render(now, events, console.width, 40))
    return 0


@click.command(cls=SoakCommand)
@click.argument("run_name", metavar="[RUN]", required=False, type=RUN_NAME)
@click.option("--no-wait", is_flag=True, help="Return at once instead of at the end of the run.")
@click.option("--exit-code", is_flag=True, help="Exit with the verdict's code instead of 0.")
def stop(*, run_name: str | None, no_wait: bool, exit_code: bool) -> int:
    """Stop a live run gracefully: heal, drain, judge; then print the verdict.

    Examples:
      soak stop
      soak stop --no-wait
      soak stop --exit-code || echo "not a pass"
    """
    from soak.cli.show import verdict_line  # noqa: PLC0415 - keeps --help quick
    from soak.web.client import ControlClient, RefusedError  # noqa: PLC0415

    run = find_live(run_name)
    client = ControlClient(run)
    client.ping()
    if not no_wait:
        note(f"stopping {run.id}: healing, draining, judging")
    code: int | None = None
    try:
        code = client.stop(wait=not no_wait)
    except RefusedError:
        raise
    except ControlError:
        if no_wait or lock_holder(run) is not None:
            raise  # else the daemon ended while we were waiting, which is what was asked for
    if no_wait:
        click.echo(f"{run.id} is stopping; 'soak report {run.id}' shows the verdict")
        return 0
    line, verdict_code = verdict_line(run)
    click.echo(line)
    return (verdict_code if code is None else code) if exit_code else 0


@click.command(cls=SoakCommand)
@click.argument("fault")
@click.option(
    "--target", metavar="T", help="What it is aimed at: b1, b2, ...; default: the next one in turn."
)
@click.option("--for", "hold_s", type=DURATION, metavar="30s", help="How long it holds; default: its own.")
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="A param of the fault: kind=full, kind=routing for reload; see 'soak faults'.",
)
@click.option("--run", "run_name", type=RUN_NAME, metavar="RUN", help="Which run, when several are live.")
@click.option("--no-wait", is_flag=True, help="Return as soon as it is accepted.")
@click.option("--overlap", is_flag=True, help="Let it begin while another fault is active.")
@click.option("--json", "as_json", is_flag=True, help="Print the final record as JSON.")
def inject(
    *,
    fault: str,
    target: str | None,
    hold_s: float | None,
    params: Sequence[str],
    run_name: str | None,
    no_wait: bool,
    overlap: bool,
    as_json: bool,
) -> int:
    """Inject a fault into a live run and show its life: injected, active, reverted, recovered.

    Exits with 0 when it was verified, 1 when it failed, 3 when nothing showed its effect, 4 when it could not be undone.

    Examples:
      soak inject backend-down --for 5s
      soak inject backend-hang --target b2 --for 30s --no-wait
      soak inject reload
      soak inject reload --param kind=full
    """
    from soak.web.client import ControlClient  # noqa: PLC0415 - keeps --help quick

    check_fault(fault, hold_s)
    asked = params_of(fault, params)
    run = find_live(run_name)
    teller = LifecycleTeller(silent=as_json)
    record = ControlClient(run).inject(
        fault,
        target=target,
        hold_s=hold_s,
        wait=not no_wait,
        overlap=overlap,
        params=asked,
        on_event=teller.event,
    )
    if record.get("outcome") == FaultOutcome.SKIPPED:
        raise ControlError(f"{fault} was not injected: {record.get('reason')}")
    if as_json:
        click.echo(json.dumps(record))
    elif no_wait:
        click.echo(f"{fault} is accepted; 'soak status {run.id}' shows it")
    else:
        teller.record(record)
    outcome = record.get("outcome")
    return 0 if no_wait or outcome is None else _EXIT[FaultOutcome(outcome)]


def check_fault(name: str, hold_s: float | None) -> None:
    """Refuse an unknown fault, and a hold for one that cannot hold, before anybody is asked."""
    from chaos.model import FaultShape  # noqa: PLC0415 - keeps --help quick
    from soak.errors import PlanError, nearest  # noqa: PLC0415
    from soak.planrules import known_faults  # noqa: PLC0415

    fault = known_faults().get(name)
    if fault is None:
        raise PlanError(f"there is no fault {name!r}{nearest(name, known_faults())}")
    if hold_s is not None and fault.shape is FaultShape.TRANSITION:
        raise PlanError(f"--for: {name} is a change without a way back and cannot hold; leave --for out")


def params_of(fault: str, words: Sequence[str]) -> dict[str, str]:
    """Return the params of ``["kind=full"]``. Raises ``PlanError`` for what the fault does not take; the run judges the values."""
    from chaos.fault import refused_params  # noqa: PLC0415 - keeps --help quick
    from soak.errors import PlanError  # noqa: PLC0415
    from soak.planrules import known_faults  # noqa: PLC0415

    params: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals or name in params:
            raise PlanError(f"--param {word!r}: write it like kind=full, each name once")
        params[name] = value
    if refusal := refused_params(known_faults()[fault], params, lambda _capability: True):
        raise PlanError(f"--param: {refusal}")
    return params


class LifecycleTeller:
    """Prints each step of a fault once, as it becomes known."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._told: set[str] = set()

    def event(self, line: Mapping[str, Any]) -> None:
        """Take one event line of the daemon."""
        if line.get("event") == "record" and isinstance(line.get("record"), Mapping):
            self.record(line["record"])
        elif line.get("event") == "waiting":
            self._say(f"{'waiting':<11}{line.get('reason', '')}", key=f"waiting {line.get('reason')}")

    def record(self, record: Mapping[str, Any]) -> None:
        """Take the record as it stands."""
        what = f"#{record.get('id')} {record.get('kind')} {record.get('target') or ''}".rstrip()
        began = record.get("injected_s")
        for step in STEPS:
            at_s = record.get(f"{step}_s")
            if isinstance(at_s, int | float):
                after = f"  +{at_s - began:.2f} s" if isinstance(began, int | float) and at_s > began else ""
                self._say(f"{step:<11}{at_s:9.2f} s  {what}{after}", key=step)
        if record.get("outcome") is not None:
            recovery = record.get("recovery_s")
            tail = f", recovery took {recovery:.2f} s" if isinstance(recovery, int | float) else ""
            why = f": {record['reason']}" if record.get("reason") else ""
            self._say(f"{'outcome':<11}{record['outcome']}{tail}{why}", key="outcome")

    def _say(self, text: str, *, key: str) -> None:
        if key not in self._told and not self._silent:
            click.echo(text)
        self._told.add(key)
