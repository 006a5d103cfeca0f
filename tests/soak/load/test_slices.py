"""A plan cut into slices: the same classes, disjoint slots, one bound on requests in flight."""

from __future__ import annotations

from soak.load.pacer import UniformPacer
from soak.load.slices import slices_of
from soak.load.traffic import LoadSlice, classes_of
from soak.plan import Plan


def cut(plan: Plan, open_files: int = 20_000) -> list[LoadSlice]:
    classes = classes_of(plan, host="127.0.0.1", http_port=80, https_port=443, authority="soak.test")
    return slices_of(plan, classes, t0_ns=0, ca_file="/ca.pem", open_files=open_files)


def test_the_workers_share_the_bound_on_requests_in_flight():
    """Rate times timeout by default, bounded by the open files of each worker; the rest is told to each as it is."""
    plan = Plan.model_validate({"rate": 1000, "workers": 2, "traffic": {"response_timeout": "4s"}})
    assert [2000, 2000] == [s.max_in_flight for s in cut(plan)]
    assert [900, 900] == [s.max_in_flight for s in cut(plan, open_files=1000)]
    asked = Plan.model_validate({"workers": 2, "traffic": {"max_in_flight": 50, "coalesce": "2ms"}})
    assert [(25, 0.002)] * 2 == [(s.max_in_flight, s.coalesce_s) for s in cut(asked)]


def test_the_slices_together_hold_every_slot_once():
    """Worker k takes k, k+N, ..."""
    slices = cut(Plan(rate=100, workers=3))
    pacers = [UniformPacer(s.classes[0].rate, 0, worker=s.worker, workers=s.workers) for s in slices]
    due = []
    for pacer in pacers:
        for _ in range(5):
            due.append(pacer.due_ns)
            pacer.advance()
    whole = UniformPacer(slices[0].classes[0].rate, 0)
    expected = []
    for _ in range(15):
        expected.append(whole.due_ns)
        whole.advance()
    assert expected == sorted(due)


def test_times_and_trust_come_from_the_plan():
    """Every limit of the traffic section reaches the worker."""
    plan = Plan.model_validate(
        {"length": 60, "traffic": {"max_age": "30s", "max_lag": "5ms", "arrivals": "poisson"}}
    )
    (load,) = cut(plan)
    assert (60, 30.0, 0.005, "poisson", "/ca.pem") == (
        load.seconds,
        load.max_age_s,
        load.max_lag_s,
        load.arrivals,
        load.ca_file,
    )
