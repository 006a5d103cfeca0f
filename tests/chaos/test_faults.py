"""Each fault, run whole against a lab in memory."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.fault import FaultContext
from chaos.faults.catalog import registry
from chaos.model import FaultOutcome, FaultShape
from chaos.target import BackendState, TargetError
from tests.chaos.harness import Rig


@pytest.mark.parametrize("kind", sorted(registry()))
async def test_every_fault_of_the_catalog_is_verified_on_a_healthy_lab(rig: Rig, kind: str):
    """Every fault of the catalog takes effect, is undone, leaves no open intent and its outcome is verified."""
    record = await rig.run(kind, hold_s=10.0)
    assert record.outcome is FaultOutcome.VERIFIED, record.reason
    assert record.reason == ""
    assert rig.steps()[0] == "intent"
    assert rig.steps()[-1] == "clean"
    assert set(rig.target.states.values()) == {BackendState.RUNNING}
    assert record.injected_s is not None
    assert record.active_s is not None
    assert record.recovered_s is not None
    assert record.injected_s <= record.active_s <= record.recovered_s
    if registry()[kind].shape is FaultShape.FAULT:
        assert record.reverted_s is not None
        assert record.reverted_s >= record.injected_s + 10.0


@pytest.mark.parametrize("kind", sorted(registry()))
async def test_every_fault_says_who_it_is(kind: str):
    """Every fault has a one-sentence summary and its name in the catalog is its own."""
    fault = registry()[kind]
    assert fault.name == kind
    assert fault.summary.endswith(".")
    assert fault.summary.count(". ") == 0


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        ("backend-down", ["backend_stop b1 TERM", "backend_start b1"]),
        ("backend-kill", ["backend_stop b1 KILL", "backend_start b1"]),
        ("backend-hang", ["backend_pause b1", "backend_resume b1"]),
        ("reload", ["apply_generation 2"]),
        ("reload-bad", ["apply_broken_config", "apply_generation 2"]),
        ("cert-rotate", ["install_certificate 2"]),
        ("backend-partition", ["backend_disconnect b1", "backend_reconnect b1"]),
        ("proxy-throttle", ["proxy_tighten 0.25 0", "proxy_loosen"]),
        ("noop", []),
    ],
)
async def test_a_fault_does_what_its_name_says_and_no_more(rig: Rig, kind: str, calls: list[str]):
    """A fault touches the lab with exactly the calls that it is made of."""
    await rig.run(kind)
    looks = ("backend_status", "proxy_identity", "backend_networks", "proxy_limits", "proxy_held_back_s")
    assert calls == [call for call in rig.target.calls if not call.startswith(looks)]


async def test_a_swallowed_reload_is_failed_in_the_words_of_the_report(rig: Rig):
    """A reload that traffic never shows fails, naming the generation, and the last good state is restored."""
    rig.target.reload_ignored = True
    record = await rig.run("reload")
    assert record.outcome is FaultOutcome.FAILED
    assert record.reason == "generation 2 was never seen in traffic within 10 s: the reload took no effect"
    assert "restore_proxy" in rig.target.calls
    assert rig.steps()[-1] == "clean"
    assert record.active_s is None


async def test_a_refused_reload_carries_the_proxys_own_words(rig: Rig):
    """What the proxy says of a refused configuration is the reason of the failure."""
    rig.target.reload_refused = "nginx: [emerg] unknown directive"
    record = await rig.run("reload")
    assert record.outcome is FaultOutcome.FAILED
    assert "nginx: [emerg] unknown directive" in record.reason
    assert "restore_proxy" in rig.target.calls


async def test_a_certificate_that_is_never_presented_is_failed(rig: Rig):
    """A serial that no fresh handshake shows fails the rotation, naming the serial."""
    rig.target.reload_ignored = True
    record = await rig.run("cert-rotate")
    assert record.outcome is FaultOutcome.FAILED
    assert record.reason == (
        "serial A2 was never presented by a fresh handshake within 10 s: the certificate is not in effect"
    )


async def test_a_rotation_tells_serials_for_the_record(rig: Rig):
    """The evidence of a rotation holds the old and the new serial and the fingerprint."""
    record = await rig.run("cert-rotate")
    applied = record.evidence["applied"]
    assert ("A2", "A0", "f" * 8) == (applied["serial"], applied["old_serial"], applied["fingerprint"])


async def test_a_proxy_that_ignores_reloads_is_clean_when_traffic_shows_the_old_generation(rig: Rig):
    """A restore that the proxy ignores as well leaves nothing dirty: it serves what it served before."""
    rig.target.reload_ignored = True
    rig.target.restore_ok = False
    record = await rig.run("reload")
    assert record.outcome is FaultOutcome.FAILED
    assert record.evidence["clean"]["generation"] == 1
    assert rig.runner.dirty == ""


async def test_a_proxy_that_serves_neither_generation_and_cannot_be_restored_is_dirty(rig: Rig):
    """When nothing shows the old state and the restore fails, the run is dirty."""
    rig.target.broken_kills = True
    rig.target.restore_ok = False
    record = await rig.run("reload-bad")
    assert record.outcome is FaultOutcome.DIRTY
    assert "the reload was not taken" in record.reason
    assert rig.dirty


@pytest.mark.parametrize(
    ("switch", "words"),
    [
        ("broken_accepted", "the proxy accepted a broken configuration: configuration test is successful"),
        ("broken_kills", "the old one stopped serving"),
        ("broken_wedges", "the good generation 2 was never seen in traffic within 10 s"),
    ],
)
async def test_a_bad_reload_fails_for_each_way_to_get_it_wrong(rig: Rig, switch: str, words: str):
    """Accepting the broken one, dropping the old one, or ignoring the good one after it: each is failed and said."""
    setattr(rig.target, switch, True)
    record = await rig.run("reload-bad")
    assert record.outcome is FaultOutcome.FAILED
    assert words in record.reason


async def test_a_good_config_refused_after_a_bad_one_is_failed(rig: Rig):
    """A proxy that refuses a good configuration after a bad one fails, in its words."""
    rig.target.reload_refused = "previous load is pending"
    record = await rig.run("reload-bad")
    assert record.outcome is FaultOutcome.FAILED
    assert "the good generation 2 was refused: previous load is pending" in record.reason


async def test_a_bad_reload_keeps_each_observation_as_evidence(rig: Rig):
    """Refusal, the old generation going on, and the good one being seen are all in the evidence."""
    record = await rig.run("reload-bad")
    seen = record.evidence["active"]
    assert seen["refused"] == {"word": "unknown directive"}
    assert seen["old_still_serving_s"] > record.injected_s
    assert seen["good_seen_s"] == record.active_s


async def test_a_backend_whose_answers_never_cease_is_inconclusive(rig: Rig):
    """When traffic saw no effect the fault touched nothing that matters, and that is what it says."""
    rig.observer.ghosts.add("b1")
    record = await rig.run("backend-down", target="b1")
    assert record.outcome is FaultOutcome.INCONCLUSIVE
    assert record.reason == "answers of backend b1 never ceased within 10 s: traffic saw no effect"
    assert set(rig.target.states.values()) == {BackendState.RUNNING}


async def test_a_backend_that_somebody_restarts_is_inconclusive(rig: Rig):
    """A backend that runs again before the effect was seen was brought back by somebody else."""
    task = rig.start("backend-down", target="b1")
    await rig.clock.advance(0)
    assert rig.target.states["b1"] is BackendState.STOPPED
    await rig.target.backend_start("b1")
    record = await rig.clock.drive(task)
    assert record.outcome is FaultOutcome.INCONCLUSIVE
    assert "backend b1 is running, not stopped: somebody else brought it back" in record.reason


async def test_a_backend_that_never_returns_to_rotation_is_failed_but_not_dirty(rig: Rig):
    """The process is as it was, so nothing is dirty; but the proxy never used it again, which is its failure."""
    rig.observer.out_of_rotation.add("b2")
    record = await rig.run("backend-down", target="b2")
    assert record.outcome is FaultOutcome.FAILED
    assert record.reason == "backend b2 never came back into rotation within 10 s of its revert"
    assert rig.steps()[-1] == "clean"
    assert rig.runner.dirty == ""


async def test_a_backend_at_another_address_is_dirty(rig: Rig):
    """A backend that comes back on another port is not as it was."""

    async def moves() -> None:
        rig.target.identities["b1"] = {**rig.target.identities["b1"], "port": 1}

    rig.target.plan("backend_start", moves, moves, moves)
    record = await rig.run("backend-down", target="b1")
    assert record.outcome is FaultOutcome.DIRTY
    assert "runs at {'port': 1}" in record.reason


async def test_a_hung_stranger_is_not_touched(rig: Rig):
    """When another process hangs under the name, it is not resumed, and the run is dirty."""
    task = rig.start("backend-hang", hold_s=5, target="b1")
    await rig.clock.advance(4)
    rig.target.identities["b1"] = {"pid": 999, "started": 9.0}
    record = await rig.clock.drive(task)
    assert record.outcome is FaultOutcome.DIRTY
    assert "backend_resume b1" not in rig.target.calls


async def test_a_hung_backend_that_died_is_started(rig: Rig):
    """A backend that died while it hung is brought back, since it ran before."""
    task = rig.start("backend-hang", hold_s=5, target="b1")
    await rig.clock.advance(4)
    rig.target.states["b1"] = BackendState.STOPPED
    await rig.clock.drive(task)
    assert rig.target.states["b1"] is BackendState.RUNNING
    assert "backend_start b1" in rig.target.calls


async def test_a_proxy_that_changes_under_a_noop_is_inconclusive(rig: Rig):
    """The template looks at the proxy, too: another process than before is not silence."""
    task = rig.start("noop", hold_s=5)
    await rig.clock.advance(2)
    rig.target.proxy["pid"] = 51
    record = await rig.clock.drive(task)
    assert record.outcome is FaultOutcome.INCONCLUSIVE
    assert "another process" in record.reason


async def test_only_a_running_backend_can_be_prepared(rig: Rig):
    """Preparing on a stopped backend is refused in a sentence, before anything is touched."""
    rig.target.states["b1"] = BackendState.STOPPED
    ctx = rig.runner._lifecycle.ctx
    with pytest.raises(TargetError, match="backend b1 is stopped; only a running backend"):
        await registry()["backend-down"].prepare(ctx, "b1")


@pytest.mark.parametrize(
    ("kind", "call"), [("full", "apply_generation 2 full"), ("routing", "apply_generation 2 routing")]
)
async def test_a_reload_is_of_the_kind_that_was_asked_for(rig: Rig, kind: str, call: str):
    """The record says which, and so does what is on disk before it begins."""
    rig.target.capabilities |= {"reload:full", "reload:routing"}
    record = await rig.run("reload", kind=kind)
    assert record.outcome is FaultOutcome.VERIFIED
    assert call in rig.target.calls
    assert kind == record.evidence["prepared"]["kind"]


@pytest.mark.parametrize(
    ("fault", "params", "says"),
    [
        ("reload", {"kind": "routing"}, "reload knows no kind 'routing' with this proxy; it knows full"),
        ("reload", {"kind": 7}, "reload knows no kind 7 with this proxy; it knows full"),
        ("reload", {"how": "full"}, "reload has no param 'how'; it takes kind"),
        ("backend-down", {"kind": "full"}, "backend-down has no param 'kind'; it takes none"),
    ],
)
async def test_a_param_that_makes_no_sense_is_refused_before_anything_is_touched(
    rig: Rig, fault: str, params: dict[str, Any], says: str
):
    """In a sentence with what is known; a fault without one takes none, but for the arbiter's own."""
    record = await rig.run(fault, **params)
    assert (FaultOutcome.SKIPPED, says) == (record.outcome, record.reason)
    assert [] == rig.target.calls
    assert (await rig.run("backend-down", overlap=True)).outcome is FaultOutcome.VERIFIED


async def test_a_partitioned_backend_that_somebody_put_back_is_inconclusive(rig: Rig):
    """What is on the network was not taken off it, whatever its answers did."""

    async def put_back() -> None:
        rig.target.networks["b1"] = {"lab": "b1"}

    rig.target.plan("backend_networks", settled, put_back)
    record = await rig.run("backend-partition", target="b1")
    assert record.outcome is FaultOutcome.INCONCLUSIVE
    assert record.reason == "backend b1 is on lab: somebody else put it back"


async def settled() -> None:
    """Do nothing first."""


async def test_a_backend_on_another_address_after_a_partition_is_dirty(rig: Rig):
    """The networks of before are the networks of after, addresses included."""

    async def lose() -> None:
        rig.target.networks["b1"] = {"lab": "elsewhere"}

    rig.target.plan("backend_networks", *[settled] * 2, *[lose] * 9)
    record = await rig.run("backend-partition", target="b1")
    assert record.outcome is FaultOutcome.DIRTY
    assert "on {'lab': 'elsewhere'} after the revert, not on {'lab': 'b1'}" in record.reason


async def test_a_backend_that_dies_in_a_partition_is_started_again(rig: Rig):
    """Back on the network, and back alive."""

    async def die() -> None:
        rig.target.states["b1"] = BackendState.STOPPED

    rig.target.plan("backend_reconnect", die)
    record = await rig.run("backend-partition", target="b1")
    assert record.outcome is FaultOutcome.VERIFIED, record.reason
    assert "backend_start b1" in rig.target.calls


async def test_a_backend_on_no_network_is_not_partitioned(rig: Rig):
    """There is nothing to take it off."""
    rig.target.networks["b1"] = {}
    record = await rig.run("backend-partition", target="b1")
    assert record.outcome is FaultOutcome.FAILED
    assert "backend b1 is on no network" in record.reason


async def test_a_throttle_has_the_params_that_were_asked_for(rig: Rig):
    """CPUs and memory, and afterwards exactly what was before."""
    before = dict(rig.target.limits)
    record = await rig.run("proxy-throttle", cpus=0.5, memory="64MiB")
    assert record.outcome is FaultOutcome.VERIFIED, record.reason
    assert f"proxy_tighten 0.5 {64 << 20}" in rig.target.calls
    assert before == rig.target.limits


async def test_a_throttle_that_holds_nothing_back_is_inconclusive(rig: Rig):
    """A limit above what the proxy needs touches nothing."""
    rig.target.held_back = False
    record = await rig.run("proxy-throttle")
    assert record.outcome is FaultOutcome.INCONCLUSIVE
    assert "needs less than 0.25 CPUs: it was never held back within 10 s" in record.reason


async def test_a_throttle_whose_effect_cannot_be_seen_is_judged_by_the_limits(rig: Rig):
    """Where the kernel's counter is out of sight, the limits in force are what there is."""
    rig.target.held_back_s = None
    record = await rig.run("proxy-throttle")
    assert record.outcome is FaultOutcome.VERIFIED, record.reason


async def test_limits_that_somebody_else_put_back_are_inconclusive(rig: Rig):
    """The fault was over before it was looked at."""

    async def put_back() -> None:
        rig.target.limits["cpus"] = 2.0

    rig.target.plan("proxy_limits", settled, put_back)
    record = await rig.run("proxy-throttle")
    assert record.outcome is FaultOutcome.INCONCLUSIVE
    assert "somebody else put them back" in record.reason


async def test_limits_that_are_not_those_of_before_are_dirty(rig: Rig):
    """Close is not enough."""

    async def drift() -> None:
        rig.target.limits["exact"] = {"quota": 199}

    rig.target.plan("proxy_limits", settled, settled, *[drift] * 9)
    record = await rig.run("proxy-throttle")
    assert record.outcome is FaultOutcome.DIRTY
    assert "199" in record.reason


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"cpus": 2}, "may use 2 CPUs and 2 is no less"),
        ({"memory": "1GiB"}, "bytes of memory and 1073741824 is no less"),
        ({"cpus": 0}, "cpus 0 is no number of CPUs"),
        ({"cpus": "many"}, "cpus 'many' is no number of CPUs"),
        ({"cpus": True}, "cpus True is no number of CPUs"),
        ({"memory": "much"}, "memory 'much' is no size of 8MiB or more"),
        ({"memory": 4096}, "memory 4096 is no size of 8MiB or more"),
        ({"swap": 1}, "has no param 'swap'; it takes cpus, memory"),
    ],
)
async def test_a_throttle_that_would_be_none_is_refused(rig: Rig, params: dict[str, Any], says: str):
    """Before anything is touched, with the value and the rule."""
    record = await rig.run("proxy-throttle", **params)
    assert record.outcome in (FaultOutcome.FAILED, FaultOutcome.SKIPPED)
    assert says in record.reason
    assert not [call for call in rig.target.calls if call.startswith("proxy_tighten")]


@pytest.mark.parametrize("kind", ["backend-partition", "proxy-throttle"])
async def test_a_lab_of_processes_refuses_what_takes_containers(rig: Rig, kind: str):
    """A lab that does not declare it is not asked; one that declares it and lacks the methods is found out."""
    rig.target.capabilities -= {"backend_partition", "proxy_throttle"}
    record = await rig.run(kind)
    assert record.outcome is FaultOutcome.SKIPPED
    assert f"{kind.replace('-', '_')}" in record.reason
    bare = Bare(rig.target)
    ctx = FaultContext(bare, rig.observer, rig.clock, lambda: 2)  # type: ignore[arg-type]  # it lacks methods on purpose
    with pytest.raises(TargetError, match="this lab cannot"):
        await registry()[kind].prepare(ctx, "b1")


class Bare:
    """A lab that can only be looked at."""

    def __init__(self, target: Any) -> None:
        self.backend_status = target.backend_status
