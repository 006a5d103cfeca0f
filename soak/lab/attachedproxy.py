"""The proxy of an attach lab: rendered into its own directory, reloaded, given certificates, and given back at the end.

Somebody else started it and will end it; soak changes its files and asks it to read them again. What lay there before is kept first
(``soak.lab.originals``) and is put back by the end of the run, by the guardian, or by ``soak heal``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from certs.install import write_atomically
from chaos.model import Evidence
from chaos.target import BackendState, Identity, TargetError
from soak.clock import Clock
from soak.errors import LabError
from soak.lab.attached import Thing, changed
from soak.lab.attachedcompanions import AttachedCompanions, Beside
from soak.lab.attachedfiles import RENDERED_GENERATION, pair_of
from soak.lab.attachedtls import origin_tls_of, trust_both
from soak.lab.checking import Checked
from soak.lab.companions import companions_of
from soak.lab.configured import VALIDATE_TIMEOUT_S, ProxySetup, Setting
from soak.lab.errorlog import ErrorLog
from soak.lab.identified import Identified, ask_for_reload
from soak.lab.identifiedproxy import IdentifiedProxy
from soak.lab.originals import Originals
from soak.lab.process import tail
from soak.labplan import AttachedProxyPlan
from soak.proxies.base import ProxyAdapter, ProxyModel, ReadsAtStart, ReloadKind, reload_kinds_of
from soak.proxies.companion import Companion


class AttachedProxy(IdentifiedProxy):
    """The proxy of somebody else."""

    def __init__(
        self,
        setup: ProxySetup,
        where: AttachedProxyPlan,
        *,
        thing: Thing,
        originals: Originals,
        beside: Mapping[str, Thing],
    ) -> None:
        """``beside`` are its companions, by the name of the part."""
        companions = AttachedCompanions(
            Path(where.directory), setup.clock, beside, host=where.host, start_timeout_s=setup.start_timeout_s
        )
        super().__init__(setup, thing, companions)
        run, adapter = setup.run, setup.adapter
        if reload_kinds_of(adapter)[:1] != (ReloadKind.FULL,):
            # It is taken over by a reload of its usual kind, so what only a full one may change is as it was rendered first.
            self._current = replace(self._current, full_generation=RENDERED_GENERATION)
            self._seen_to_work = self._current
        self._where = where
        self._originals = originals
        self._directory = Path(where.directory)
        # A container sees this directory alone; a process of this host may look anywhere, and need not be shown a candidate.
        self._candidate = (run.lab if where.pid_file else self._directory) / "soak-candidate"
        self.certificate, self.key, self.bundle = pair_of(where)
        if where.tcp_port is not None:
            self.ca_file = run.certs / "trusted.pem"
        self.log = ErrorLog(adapter.error_log(self._directory))

    async def start(self) -> None:
        """Take it over: keep its files, put ours in place, reload; returns once a checked answer came over TLS. Raises ``LabError``."""
        state = await self._identify()
        if state is not BackendState.RUNNING:
            raise LabError(f"the proxy is {state}; start it, for soak never does")
        if not await asyncio.to_thread(self._directory.is_dir):
            raise LabError(
                f"lab.attach.proxy.directory {self._directory} does not exist; it is where the proxy's configuration is, "
                "and 'soak render' makes a first one"
            )
        if self._where.tcp_port is not None:
            await asyncio.to_thread(
                trust_both, self._authority.ca_pem, origin_tls_of(self._where), self.ca_file
            )
        beside = self._companions_in(self._directory, self._current)
        for first in (True, False):
            await self._beside.start(beside, first=first)
        await self._require_valid()
        files = await asyncio.to_thread(
            self._adapter.render, self._model(self._current, self._directory, broken=False)
        )
        if stale := await asyncio.to_thread(self._stale, files):
            raise LabError(
                f"{self._adapter.name} reads {stale} only when it starts, and {self._directory / stale} is not what this plan "
                "renders; run 'soak render' with this plan, and start it anew"
            )
        try:
            await asyncio.to_thread(
                self._originals.keep,
                [*(self._directory / name for name in files), self.certificate, self.key, self.bundle],
            )
            await asyncio.to_thread(self._put_in_place, self._current)
        except OSError as error:
            raise LabError(
                f"{error.filename or self._directory} cannot be written: {error.strerror or error}; "
                "run soak as a user who may write there, or set another lab.attach.proxy.directory"
            ) from error
        said = await self._reload()
        if said.verdict not in ("accepted", "nothing"):
            raise LabError(
                f"{self._adapter.name} did not take soak's configuration: {self._reason(said, 'refused')}"
            )
        await self._until_it_serves()

    async def look(self) -> bool:
        """Look whether the proxy, with its companions, is still the one that was attached to."""
        return not await self._has_ended()

    async def proxy_identity(self) -> Identity:
        """Return who was attached to. Raises ``IdentityChangedError`` when that is another one now."""
        attached = self._running()
        if not await attached.look():
            raise changed("the proxy", attached.identity, (await self._thing.look()).identity)
        await self._beside.look()
        if ended := self._beside.ended():
            raise TargetError(f"the proxy is not whole any more: {ended}")
        return attached.identity

    # inside: where this proxy differs from others

    def _stale(self, files: Mapping[str, str]) -> str:
        """Return which file it was started with that no reload can change any more; "": none."""
        names = self._adapter.read_at_start if isinstance(self._adapter, ReadsAtStart) else ()
        for name in names:
            path = self._directory / name
            if not path.is_file() or path.read_bytes() != files[name].encode():
                return name
        return ""

    def _model(self, setting: Setting, directory: Path, *, broken: bool) -> ProxyModel:
        model = super()._model(setting, directory, broken=broken)
        return replace(model, listen_host=self._where.listen or self._where.host)

    def _put_in_place(self, setting: Setting) -> None:
        super()._put_in_place(setting)
        # The run's record reads it where every lab has it.
        write_atomically(self._run.certs / "site.pem", setting.pair.chain_pem, mode=0o644)

    async def _check(self, command: Sequence[str], *, companion: str = "") -> Checked:
        if companion:
            return await self._beside.check(companion, command, timeout_s=VALIDATE_TIMEOUT_S)
        return await self._thing.run(command, timeout_s=VALIDATE_TIMEOUT_S)

    def _companions_in(self, directory: Path, setting: Setting) -> Sequence[Companion]:
        # In a container its own PATH knows where they are, for their image is another one.
        binary = self._binary if self._where.pid_file else Path(self._binary.name)
        return companions_of(self._adapter, binary, self._model(setting, directory, broken=False))

    async def _given_up(self, why: str) -> str:
        return (
            f"{self._adapter.name} does not serve soak's configuration: {why}; "
            f"was it started with the files in {self._directory}? 'soak render' says how"
        )

    def _end_words(self) -> str:
        if ended := self._beside.ended():
            return ended
        said = tail(self.log.path)
        return f"it is not the one any more that soak attached to; its log says:\n{said}" if said else (
            "it is not the one any more that soak attached to"
        )  # fmt: skip


async def give_back(
    originals: Originals,
    thing: Thing,
    identity: Identity,
    *,
    adapter: ProxyAdapter,
    clock: Clock,
    where: AttachedProxyPlan,
    beside: Sequence[Beside] = (),
) -> Evidence:
    """Put back what lay in the proxy's directory, and have it read that. Idempotent; ``ok``: it is as it was before the run."""
    if not originals.kept:
        return Evidence(ok=True)
    if failed := await asyncio.to_thread(originals.put_back):
        return Evidence(ok=False, detail={"failed": failed}, reason="; ".join(failed))
    directory = Path(where.directory)
    log = ErrorLog(adapter.error_log(directory))
    for one in beside:
        if (heard := await one.tell(clock)).verdict == "refused":
            return Evidence(
                ok=False,
                detail={"files": "put back", **heard.detail},
                reason=f"its own files are back, but {one.wanted.name} refuses to read them: {heard.refusals[-1]}",
            )
    said = await ask_for_reload(
        adapter,
        Identified(thing, identity),
        log,
        clock,
        directory=directory,
        ports=where.ports,
        host=where.host,
    )
    detail: dict[str, Any] = {"files": "put back", **said.detail}
    if said.verdict == "refused":
        reason = said.refusals[-1] if said.refusals else "it gave no reason"
        return Evidence(
            ok=False, detail=detail, reason=f"its own files are back, but it refuses to read them: {reason}"
        )
    await asyncio.to_thread(originals.forget)
    if said.verdict == "gone":
        return Evidence(
            ok=True,
            detail=detail,
            reason="its own files are back; the proxy was started anew since, so it was not asked to read them",
        )
    return Evidence(ok=True, detail=detail, reason="the proxy has its own files again")
