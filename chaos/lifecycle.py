"""One fault instance, from ``prepare`` to recovery. Acts; decides nothing about whether it may begin.

Whatever happens after the intent is in the journal (an error, a timeout, a cancellation, a second one), the fault is
undone before control returns. What cannot be undone is ``dirty``. Callbacks that fail are raised at the very end: a
full disk must not leave a backend down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from chaos.bounded import shielded, unless, within
from chaos.fault import Disturbance, FaultContext, Finding, Transition
from chaos.instance import Instance
from chaos.journal import Intent, Journal, JournalError, Step
from chaos.model import Evidence, FaultOutcome
from chaos.target import RecoveryWatch, Scopes

T = TypeVar("T")

SHORTEST_LOOK_S = 3.0
"""An effect is looked for at least this long, even when the hold is shorter."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things may take, in seconds."""

    max_defer_s: float = 60.0
    """A fault that cannot begin waits at most this long, then is skipped."""
    effect_timeout_s: float = 10.0
    """For each wait until an effect shows in traffic."""
    step_timeout_s: float = 15.0
    """For each call that prepares, injects or applies."""
    revert_timeout_s: float = 15.0
    """For each try to revert or restore."""
    revert_tries: int = 3
    revert_backoff_s: float = 1.0
    """Before the second try; it grows by as much with each further one."""
    recovery_timeout_s: float = 30.0
    """How long traffic may take to recover before it is given up."""


class StepFailedError(Exception):
    """A step raised or took too long. The message is a sentence that names the step."""


class Report(Protocol):
    """Told of each change. May raise; the fault is undone all the same."""

    def __call__(self, name: str, instance: Instance, data: Mapping[str, Any]) -> None:
        """Take a dotted event of this instance, whose record has just changed."""
        ...


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Runs instances with what it was given."""

    ctx: FaultContext
    journal: Journal
    scopes: Scopes
    recovery: RecoveryWatch
    limits: Limits
    report: Report
    on_dirty: Callable[[str], object]
    """Told, once, why an instance could not be undone."""
    hurry: asyncio.Event
    """Set when the run ends at once: waits for traffic are cut, undoing is not."""

    async def live(self, it: Instance) -> None:
        """Run one instance to its end. On return the record has an outcome and nothing is left undone but ``dirty``.

        Raises ``ExceptionGroup`` with what the callbacks raised, after the end.
        """
        try:
            if isinstance(it.fault, Transition):
                await self._transition(it, it.fault)
            else:
                assert isinstance(it.fault, Disturbance)
                await self._disturbance(it, it.fault)
            await self._recover(it)
        finally:
            await shielded(lambda: self._close(it), name=f"close #{it.id}")
        if it.trouble:
            raise ExceptionGroup(
                f"fault #{it.id} {it.record.kind} ended, but its records did not", it.trouble
            )

    async def _begin(self, it: Instance) -> bool:
        """Stamp traffic, read the original state, and put the intent on disk. Nothing is touched yet.

        Returns whether to go on; not when the run was told to heal in the meantime.
        """
        await self._bounded("the load workers", self.scopes.fault(it.id), self.limits.step_timeout_s)
        target = it.record.target
        ctx = replace(self.ctx, params=it.request.params)
        undo = await self._bounded("prepare", it.fault.prepare(ctx, target), self.limits.step_timeout_s)
        if it.end.is_set():
            it.conclude(FaultOutcome.SKIPPED, "the run was told to heal before anything was touched")
            return False
        it.undo = undo
        it.update(evidence={"prepared": {"identity": dict(undo.identity), **undo.state}})
        request = it.request
        intent = Intent(
            it.id, it.fault.name, it.fault.shape, undo, request.source, request.planned_s, request.hold_s
        )
        try:
            self.journal.intent(intent, self.ctx.clock.now())
        except JournalError as error:
            raise StepFailedError(f"{error}; nothing is touched without it") from error
        return True

    async def _disturbance(self, it: Instance, fault: Disturbance) -> None:
        touched = False
        try:
            if not await self._begin(it):
                return
            touched = True
            self._note(it, Step.INJECTING)
            it.update(injected_s=self.ctx.clock.now())
            await self._bounded("inject", fault.inject(self.ctx, it.prepared), self.limits.step_timeout_s)
            self._note(it, Step.INJECTED)
            self._tell("fault.injected", it)
            await self._see_active(it, fault)
            await self._hold(it)
        except StepFailedError as error:
            self._failed(it, error)
        finally:
            if touched:
                await shielded(lambda: self._revert(it, fault), name=f"revert #{it.id}")

    async def _see_active(self, it: Instance, fault: Disturbance) -> None:
        """Look for the effect while it holds; an early end (``soak stop``) cuts the look."""
        timeout_s = min(self.limits.effect_timeout_s, max(it.request.hold_s, SHORTEST_LOOK_S))
        ctx = replace(self.ctx, effect_timeout_s=timeout_s)
        look = self._bounded(
            "verify_active", fault.verify_active(ctx, it.prepared), timeout_s + self.limits.step_timeout_s
        )
        self._take_effect(it, await unless(it.end, look))

    def _take_effect(self, it: Instance, finding: Finding | None) -> None:
        if finding is None:
            return
        it.saw("active", finding.evidence)
        it.conclude(finding.outcome, finding.evidence.reason)
        if finding.ok:
            injected_s = it.record.injected_s or 0.0
            it.update(active_s=max(injected_s, finding.at_s or injected_s))
            self._note(it, Step.ACTIVE)
            self._tell("fault.active", it)
        else:
            self._tell("fault.not_seen", it, reason=finding.evidence.reason)

    async def _hold(self, it: Instance) -> None:
        left_s = (it.record.injected_s or 0.0) + it.request.hold_s - self.ctx.clock.now()
        if left_s > 0 and not it.end.is_set():
            await unless(it.end, self.ctx.clock.sleep(left_s))

    async def _revert(self, it: Instance, fault: Disturbance) -> None:
        """Undo until a look shows that the target is as it was, or the tries are used up."""

        async def once() -> Finding:
            await self._bounded("revert", fault.revert(self.ctx, it.prepared), self.limits.revert_timeout_s)
            self._note(it, Step.REVERTED)
            it.update(reverted_s=self.ctx.clock.now())
            self._tell("fault.reverted", it)
            await self._stamp(it, self.scopes.recovery(it.id))
            return await self._look_clean(it, fault)

        self._note(it, Step.REVERTING)
        await self._insist(it, once)

    async def _look_clean(self, it: Instance, fault: Disturbance) -> Finding:
        timeout_s = self.limits.effect_timeout_s + self.limits.step_timeout_s
        if not self.hurry.is_set():
            look = self._bounded("verify_clean", fault.verify_clean(self.ctx, it.prepared), timeout_s)
            if (finding := await unless(self.hurry, look)) is not None:
                return finding
        blind = replace(self.ctx, blind=True)
        return await self._bounded("verify_clean", fault.verify_clean(blind, it.prepared), timeout_s)

    async def _transition(self, it: Instance, fault: Transition) -> None:
        touched = good = False
        try:
            if not await self._begin(it):
                return
            touched = True
            self._note(it, Step.INJECTING)
            it.update(injected_s=self.ctx.clock.now())
            applied = await self._bounded(
                "apply", fault.apply(self.ctx, it.prepared), self.limits.step_timeout_s
            )
            it.saw("applied", applied)
            if not applied.ok:
                raise StepFailedError(applied.reason or f"the proxy refused {fault.name}")  # noqa: TRY301  (one way out)
            self._note(it, Step.INJECTED)
            self._tell("fault.injected", it)
            timeout_s = 3 * self.limits.effect_timeout_s + self.limits.step_timeout_s
            look = self._bounded(
                "verify_effect", fault.verify_effect(self.ctx, it.prepared, applied), timeout_s
            )
            self._take_effect(it, await unless(self.hurry, look))
            good = it.outcome is FaultOutcome.VERIFIED
        except StepFailedError as error:
            self._failed(it, error)
        finally:
            if good:
                self._note(it, Step.CLEAN)
            elif touched:
                await shielded(lambda: self._restore(it, fault), name=f"restore #{it.id}")

    async def _restore(self, it: Instance, fault: Transition) -> None:
        """Put the last good state back after a transition that took no effect."""
        timeout_s = self.limits.revert_timeout_s + self.limits.effect_timeout_s

        async def once() -> Finding:
            word = await self._bounded("restore", fault.restore(self.ctx, it.prepared), timeout_s)
            if not word.ok:
                return Finding.dirty(f"the proxy could not be restored: {word.reason}", **word.detail)
            it.update(reverted_s=self.ctx.clock.now())
            self._tell("fault.reverted", it)
            return Finding(it.outcome, word)

        self._note(it, Step.REVERTING)
        await self._insist(it, once)

    async def _insist(self, it: Instance, once: Callable[[], Coroutine[Any, Any, Finding]]) -> None:
        """Call ``once`` until it finds the target clean; when the tries are used up the run is dirty."""
        problem = ""
        for attempt in range(1, self.limits.revert_tries + 1):
            try:
                finding = await once()
            except StepFailedError as error:
                problem = str(error)
            else:
                it.saw("clean", finding.evidence)
                if finding.outcome is not FaultOutcome.DIRTY:
                    it.conclude(finding.outcome, finding.evidence.reason)
                    self._note(it, Step.CLEAN)
                    return
                problem = finding.evidence.reason
            self._tell("fault.revert_failed", it, attempt=attempt, reason=problem)
            if attempt < self.limits.revert_tries:
                await self.ctx.clock.sleep(self.limits.revert_backoff_s * attempt)
        it.conclude(FaultOutcome.DIRTY, f"{problem} ({self.limits.revert_tries} tries)")
        self._note(it, Step.DIRTY, reason=problem)
        self._call(it, lambda: self.on_dirty(f"#{it.id} {it.fault.name} on {it.record.target}: {problem}"))

    async def _recover(self, it: Instance) -> None:
        """Wait until traffic has recovered from every edge: injection, revert, and a transition's taking effect."""
        record = it.record
        if record.injected_s is None or it.dirty:
            return
        await self._stamp(it, self.scopes.recovery(it.id))
        in_effect_s = record.active_s if isinstance(it.fault, Transition) else None
        edges = sorted(s for s in (record.injected_s, in_effect_s, record.reverted_s) if s is not None)
        timeout_s = self.limits.recovery_timeout_s
        watch = self._bounded(
            "recovery watch",
            self.recovery.recovered(it.id, edges, timeout_s),
            timeout_s + self.limits.step_timeout_s,
        )
        try:
            recovery = await unless(self.hurry, watch)
        except StepFailedError as error:
            it.saw("recovery", Evidence(ok=False, reason=str(error)))
            return
        if recovery is None:
            it.saw("recovery", Evidence(ok=False, reason="the end of the run cut the watch short"))
            return
        it.saw("recovery", Evidence(ok=recovery.recovered_s is not None, detail=recovery.detail))
        it.update(recovered_s=recovery.recovered_s, recovery_s=recovery.recovery_s)
        self._tell("fault.recovered" if recovery.recovered_s is not None else "fault.not_recovered", it)

    async def _close(self, it: Instance) -> None:
        """Give the record its outcome. A dirty fault goes on explaining what traffic shows."""
        if not it.dirty:
            await self._stamp(it, self.scopes.done(it.id))
        if it.outcome is FaultOutcome.VERIFIED and it.record.active_s is None:
            it.conclude(FaultOutcome.INCONCLUSIVE, "it was ended before its effect could be seen")
        if not it.record.finished:
            it.update(outcome=it.outcome, reason=it.reason)
            self._tell("fault.finished", it)

    async def _bounded(self, step: str, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Await one step. Raises ``StepFailedError`` for whatever goes wrong in it."""
        try:
            return await within(self.ctx.clock, timeout_s, work)
        except TimeoutError:
            raise StepFailedError(f"{step} did not finish within {timeout_s:g} s") from None
        except Exception as error:  # a lab or a fault may raise anything, and the fault must still be undone
            raise StepFailedError(f"{step}: {error or type(error).__name__}") from error

    async def _stamp(self, it: Instance, work: Coroutine[Any, Any, None]) -> None:
        try:
            await self._bounded("the load workers", work, self.limits.step_timeout_s)
        except StepFailedError as error:
            self._tell("scopes.failed", it, reason=str(error))

    def _failed(self, it: Instance, error: StepFailedError) -> None:
        it.conclude(FaultOutcome.FAILED, str(error))
        if it.record.injected_s is not None:
            self._note(it, Step.FAILED, reason=str(error))
        self._tell("fault.failed", it, reason=str(error))

    def _note(self, it: Instance, step: Step, **data: Any) -> None:
        """Journal a step. The intent is on disk already, so an error here must not stop the undoing."""
        try:
            self.journal.step(it.id, step, self.ctx.clock.now(), **data)
        except JournalError as error:
            self._tell("journal.failed", it, reason=str(error))

    def _tell(self, name: str, it: Instance, **data: Any) -> None:
        self._call(it, lambda: self.report(name, it, data))

    @staticmethod
    def _call(it: Instance, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception as error:  # noqa: BLE001  (kept, and raised by live() once nothing is left undone)
            it.trouble.append(error)
