"""Commands for a live run, against a socket that answers as a daemon does."""

import json
import os
from contextlib import ExitStack, contextmanager

import pytest

from soak.cli.during import LifecycleTeller
from soak.plan import Plan
from soak.runs import create_run, hold
from tests.soak.synthetic import SyntheticRun
from tests.soak.web.answering import lines, serving
from tests.soak.web.fakes import status_of_a_run

OK = lines({"ok": True})
RECORD = {
    "id": 7,
    "kind": "backend-down",
    "target": "b2",
    "source": "inject",
    "planned_s": 10.0,
    "injected_s": None,
    "active_s": None,
    "reverted_s": None,
    "recovered_s": None,
    "recovery_s": None,
    "outcome": None,
    "reason": "",
}


@contextmanager
def live(home, *answers):
    """A run that is held and answers one request for each of ``answers``."""
    run = create_run(Plan(), "", home=home)
    with hold(run), serving(run, *answers) as requests:
        yield run, requests


def step(**known):
    return {"event": "record", "record": {**RECORD, **known}}


def test_status_shows_the_picture(soak, home):
    """The same as the live view, with the last events."""
    with live(home, lines({"ok": True, "status": status_of_a_run().to_json()})):
        result = soak("status")
    assert 0 == result.exit_code
    for words in (
        "rate held  99.998%",
        "#3 backend-down b2 for 2 s",
        "60.0 s  fault.injected fault=backend-down",
    ):
        assert words in result.stdout


def test_status_as_json_is_the_record(soak, home):
    """On one line, for jq."""
    status = status_of_a_run().to_json()
    with live(home, lines({"ok": True, "status": status})) as (run, _):
        result = soak("status", run.id, "--json")
    assert status == json.loads(result.stdout)


def test_inject_tells_each_step_once(soak, home):
    """As it happens, with seconds since the start of the run and since the injection."""
    done = {
        "injected_s": 10.0,
        "active_s": 10.5,
        "reverted_s": 15.25,
        "recovered_s": 16.0,
        "recovery_s": 0.75,
    }
    with live(
        home,
        lines(
            {"event": "waiting", "reason": "reload is active until 9.0 s"},
            {"event": "waiting", "reason": "reload is active until 9.0 s"},
            {"event": "unheard-of"},
            step(),
            step(injected_s=10.0),
            step(injected_s=10.0, active_s=10.5),
            step(**{**done, "recovered_s": None, "recovery_s": None}),
            step(**done),
            {"ok": True, "record": {**RECORD, **done, "outcome": "verified"}},
        ),
    ) as (run, requests):
        result = soak("inject", "backend-down", "--for", "5s", "--target", "b2", "--run", run.id, "--overlap")
    assert 0 == result.exit_code
    assert [
        "waiting    reload is active until 9.0 s",
        "injected       10.00 s  #7 backend-down b2",
        "active         10.50 s  #7 backend-down b2  +0.50 s",
        "reverted       15.25 s  #7 backend-down b2  +5.25 s",
        "recovered      16.00 s  #7 backend-down b2  +6.00 s",
        "outcome    verified, recovery took 0.75 s",
    ] == result.stdout.splitlines()
    assert [
        {
            "cmd": "inject",
            "fault": "backend-down",
            "target": "b2",
            "hold_s": 5.0,
            "wait": True,
            "overlap": True,
            "params": {},
        }
    ] == requests


def test_inject_takes_params_for_the_fault(soak, home):
    """They go to the run, whose proxy knows what they mean."""
    record = {**RECORD, "injected_s": 10.0, "outcome": "verified"}
    with live(home, lines({"ok": True, "record": record})) as (_, requests):
        result = soak("inject", "reload", "--param", "kind=full")
    assert 0 == result.exit_code
    assert {"kind": "full"} == requests[0]["params"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["reload", "--param", "full"], "--param 'full': write it like kind=full"),
        (["reload", "--param", "kind=a", "--param", "kind=b"], "each name once"),
        (["reload", "--param", "how=full"], "--param: reload has no param 'how'; it takes kind"),
        (["noop", "--param", "kind=full"], "--param: noop has no param 'kind'; it takes none"),
    ],
)
def test_inject_refuses_a_param_that_the_fault_does_not_take(soak, words, says):
    """Before any run is looked for."""
    result = soak("inject", *words)
    assert (2, "") == (result.exit_code, result.stdout)
    assert says in result.stderr


@pytest.mark.parametrize(
    ("outcome", "code"), [("verified", 0), ("failed", 1), ("inconclusive", 3), ("dirty", 4)]
)
def test_inject_exits_with_what_became_of_the_fault(soak, home, outcome, code):
    """And says why."""
    record = {**RECORD, "injected_s": 10.0, "outcome": outcome, "reason": "because"}
    with live(home, lines({"ok": True, "record": record})):
        result = soak("inject", "backend-down")
    assert code == result.exit_code
    assert f"outcome    {outcome}: because" in result.stdout


def test_inject_that_was_skipped_is_an_error_with_its_reason(soak, home):
    """It never began."""
    record = {**RECORD, "outcome": "skipped", "reason": "backend-down has no target 'b9'; known: b1, b2, b3"}
    with live(home, lines({"ok": True, "record": record})):
        result = soak("inject", "backend-down", "--target", "b9")
    assert (2, "") == (result.exit_code, result.stdout)
    assert (
        "soak: backend-down was not injected: backend-down has no target 'b9'; known: b1, b2, b3\n"
        == result.stderr
    )


def test_inject_as_json_prints_the_record_alone(soak, home):
    """No lifecycle around it."""
    record = {**RECORD, "injected_s": 10.0, "outcome": "verified"}
    with live(home, lines(step(injected_s=10.0), {"ok": True, "record": record})):
        result = soak("inject", "backend-down", "--json")
    assert record == json.loads(result.stdout)


def test_inject_without_waiting_returns_when_accepted(soak, home):
    """The outcome is not known yet, so it is no failure."""
    with live(home, lines({"ok": True, "record": RECORD})) as (run, requests):
        result = soak("inject", "backend-down", "--no-wait")
    assert (0, f"backend-down is accepted; 'soak status {run.id}' shows it\n") == (
        result.exit_code,
        result.stdout,
    )
    assert requests[0]["wait"] is False


def test_a_refusal_is_printed_with_its_code(soak, home):
    """The daemon's own words."""
    with live(home, lines({"ok": False, "error": "the run is dirty: no more faults", "code": 4})):
        result = soak("inject", "reload")
    assert (4, "soak: the run is dirty: no more faults\n") == (result.exit_code, result.stderr)


@pytest.mark.parametrize(("args", "code"), [([], 0), (["--exit-code"], 1)])
def test_stop_waits_and_prints_the_verdict(soak, home, args, code):
    """Its exit code is the verdict's only when asked."""
    with live(home, OK, lines({"ok": True, "exit_code": 1})) as (run, requests):
        SyntheticRun().write(run.db)
        result = soak("stop", *args)
    assert code == result.exit_code
    assert result.stdout.startswith("PASS  nginx 1.31.3 · local lab")
    assert f"stopping {run.id}: healing, draining, judging\n" == result.stderr
    assert [{"cmd": "ping"}, {"cmd": "stop", "wait": True}] == requests


def test_stop_without_waiting_says_where_the_verdict_will_be(soak, home):
    """At once."""
    with live(home, OK, OK) as (run, _):
        result = soak("stop", "--no-wait")
    assert (0, f"{run.id} is stopping; 'soak report {run.id}' shows the verdict\n") == (
        result.exit_code,
        result.stdout,
    )


def test_a_daemon_that_ends_before_it_answers_has_stopped(soak, home):
    """It hung up because it is gone: that is what was asked for."""
    run = create_run(Plan(), "", home=home)
    SyntheticRun().write(run.db)
    with ExitStack() as daemon:
        held = ExitStack()
        held.enter_context(hold(run))
        daemon.enter_context(serving(run, OK, lambda _connection: held.close()))
        result = soak("stop", "--exit-code")
    assert 0 == result.exit_code
    assert result.stdout.startswith("PASS  ")


def test_a_daemon_that_hangs_up_and_lives_on_is_an_error(soak, home):
    """It is not known what it will do."""
    with live(home, OK, lambda _connection: None):
        result = soak("stop")
    assert 2 == result.exit_code
    assert "hung up before it had answered" in result.stderr


def test_a_refused_stop_is_an_error(soak, home):
    """In the daemon's words."""
    with live(home, OK, lines({"ok": False, "error": "not now"})):
        result = soak("stop")
    assert (2, "soak: not now") == (result.exit_code, result.stderr.splitlines()[-1])


def test_a_transition_is_told_without_a_revert(capsys):
    """Only steps that happened."""
    teller = LifecycleTeller()
    teller.record({**RECORD, "kind": "reload", "target": None, "injected_s": 1.0, "recovered_s": 1.0})
    assert "injected        1.00 s  #7 reload\nrecovered       1.00 s  #7 reload\n" == capsys.readouterr().out


def test_the_pid_of_the_test_is_the_holder(home):
    """The premise of this file: a live run is one whose lock is held."""
    with live(home) as (run, _):
        assert f'"pid": {os.getpid()}' in run.lock.read_text()
