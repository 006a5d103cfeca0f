"""The proxy of a local lab: rendered, validated, started, reloaded, given certificates and broken files.

Satisfies ``chaos.target.Proxy``. A file that goes live was accepted by the proxy's own validator before, except the one that
is broken on purpose; what is on disk and what is remembered as current change together or not at all.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certs.authority import Authority, Pair
from certs.install import fingerprint_of, install_pair, serial_of, write_atomically
from chaos.model import Evidence
from chaos.target import Identity, TargetError
from soak.clock import NS, Clock
from soak.errors import LabError
from soak.lab.checking import Checked, run_check
from soak.lab.companions import Companions, companions_of
from soak.lab.errorlog import ErrorLog
from soak.lab.prober import Probe, ProbeError, trust
from soak.lab.process import Child, exit_words, start_child, tail
from soak.lab.receiving import Receiver
from soak.lab.reloading import Said, by_call, by_signal, chosen_kind
from soak.lab.state import LabState, marker_of, output_of
from soak.lab.topology import LOOPBACK, Topology
from soak.lab.vitals import Subject, executables_of
from soak.plan import ProxyPlan
from soak.proxies.base import (
    SERVER_NAME,
    Capability,
    ProxyAdapter,
    ProxyModel,
    ReloadContext,
    ReloadKind,
    ReloadsByCall,
    TellsProcesses,
)
from soak.proxies.companion import Companion
from soak.rundir import RunDir

VALIDATE_TIMEOUT_S = 15.0
SAY_TIMEOUT_S = 2.0
"""How long a proxy may take to say in its log what it made of a reload; traffic judges, so silence is no refusal."""
CALL_TIMEOUT_S = 10.0
"""How long an adapter's call for a reload may take: Caddy and HAProxy answer when the new configuration serves."""
_LOOK_TIMEOUT_S = 1.5
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Setting:
    """What the proxy is told: a config generation and a certificate."""

    generation: int
    pair: Pair
    full_generation: int = 1
    """The last one that came by a full reload."""

    @property
    def serial(self) -> str:
        """Serial of the leaf."""
        return serial_of(self.pair.chain_pem)


class LocalProxy:
    """The proxy as a process on loopback."""

    def __init__(
        self,
        run: RunDir,
        plan: ProxyPlan,
        topology: Topology,
        state: LabState,
        clock: Clock,
        *,
        adapter: ProxyAdapter,
        binary: Path,
        authority: Authority,
        on_event: Callable[[str, Mapping[str, Any]], None],
        start_timeout_s: float,
        version: str = "",
        routes: int = 0,
    ) -> None:
        self._run = run
        self._plan = plan
        self._version = version
        self._routes = routes
        self._topology = topology
        self._state = state
        self._clock = clock
        self._adapter = adapter
        self._binary = binary
        self._authority = authority
        self._on_event = on_event
        self._start_timeout_s = start_timeout_s
        self._directory = run.lab / "proxy"
        self._candidate = run.lab / "candidate"
        self._output = output_of(run)
        self._current = Setting(1, authority.leaf(*self._names()))
        self._seen_to_work = self._current
        self._child: Child | None = None
        self._companions = Companions(
            run,
            state,
            clock,
            host=topology.proxy.host,
            on_event=on_event,
            start_timeout_s=start_timeout_s,
        )
        self._lock = asyncio.Lock()
        self.log = ErrorLog(adapter.error_log(self._directory))
        self.ca_file = authority.ca_pem
        self.certificate = run.certs / "site.pem"
        self.key = run.certs / "site.key"
        self.bundle = run.certs / "site.bundle.pem"

    # lifecycle

    async def start(self) -> None:
        """Render, validate, install, start; returns once a checked answer came through it over TLS. Raises ``LabError``."""
        await asyncio.to_thread(self._prepare_directories)
        refused = await self._validate(self._current)
        if refused is not None:
            raise LabError(f"{self._adapter.name} refuses its configuration:\n{refused}")
        await asyncio.to_thread(self._put_in_place, self._current)
        companions = self._companions_in(self._directory, self._current)
        await self._companions.start(companions, first=True)
        argv = list(self._adapter.start_command(self._binary, self._directory))
        self._state.intend("proxy", argv)
        with marker_of(self._run).open("rb") as marker:
            self._child = await start_child(
                "proxy",
                argv,
                directory=self._run.lab,
                run_id=self._run.id,
                log=self._output,
                stdin=marker,
                stdout=None,
                on_end=self._on_end,
            )
        self._state.started("proxy", self._child.identity)
        await self._companions.start(companions, first=False)
        await self._until_ready(self._child)
        seen = await asyncio.to_thread(executables_of, self.subject())
        self._state.started("proxy", self._child.identity, seen)

    def children(self) -> list[Child]:
        """Return the processes started, if any."""
        return [*([] if self._child is None else [self._child]), *self._companions.children()]

    def trim_logs(self) -> int:
        """Keep the logs bounded; returns the bytes cut."""
        return self.log.trim() + self._companions.trim()

    def subject(self) -> Subject:
        """Return what the census of vitals looks at: the main process, its session, all descendants, and its companions."""
        identity: Identity = {} if self._child is None else self._child.identity
        roles = self._adapter.roles if isinstance(self._adapter, TellsProcesses) else None
        more = self._companions.identities()
        return Subject("proxy", identity, tree=True, role=self._adapter.role, roles=roles, more=more)

    # chaos.target.Proxy

    async def proxy_identity(self) -> Identity:
        """Return the identity of the process that was started. Raises ``TargetError`` when it has ended."""
        if self._child is None or not self._child.alive or self._companions.ended():
            raise TargetError(f"the proxy has ended: {self._end_words()}")
        return self._child.identity

    def generation(self) -> int:
        """Return the config generation that was last asked for and not refused."""
        return self._current.generation

    def serial(self) -> str:
        """Return the serial of the certificate that is installed."""
        return self._current.serial

    async def apply_generation(self, generation: int, *, kind: str = "") -> Evidence:
        """Render this generation, validate it, put it in place and reload. ``ok`` is False when it was refused."""
        async with self._lock:
            await self._note_if_working()
            return await self._apply(generation, self._current.pair, kind)

    async def apply_broken_config(self) -> Evidence:
        """Put a broken file in place, ask for a reload, see it refused, put the good file back.

        ``ok`` says that the validator or the log refused it and that the proxy did not take it.
        """
        async with self._lock:
            words = await self._validate(self._current, broken=True)
            try:
                await asyncio.to_thread(self._write_files, self._directory, self._current, broken=True)
                said = await self._reload()
            finally:
                await asyncio.to_thread(self._write_files, self._directory, self._current)
            if said.verdict == "accepted":
                await self._reload()
        refused = said.verdict == "refused" or (words is not None and said.verdict == "nothing")
        return Evidence(
            ok=refused,
            detail={"validator_refused": words is not None, "validator": words or "", **said.detail},
            reason="" if refused else self._reason(said, "the broken configuration was not refused"),
        )

    async def install_certificate(self, generation: int) -> Mapping[str, Any]:
        """Issue a leaf, install it atomically, reload with this generation. Raises ``TargetError`` when it was refused."""
        async with self._lock:
            await self._note_if_working()
            old = self._current.serial
            pair = await asyncio.to_thread(self._authority.leaf, *self._names())
            evidence = await self._apply(generation, pair)
        if not evidence.ok:
            raise TargetError(f"the new certificate was not taken: {evidence.reason}")
        return {
            "serial": serial_of(pair.chain_pem),
            "fingerprint": fingerprint_of(pair.chain_pem),
            "old_serial": old,
            "reload": dict(evidence.detail),
        }

    async def restore_proxy(self) -> Evidence:
        """Put the last configuration and certificate that a fresh client saw work back in place and reload."""
        async with self._lock:
            setting = self._seen_to_work
            await asyncio.to_thread(self._put_in_place, setting)
            said = await self._reload()
            self._current = setting
        ok = said.verdict in ("accepted", "nothing")
        detail = {"generation": setting.generation, "serial": setting.serial, **said.detail}
        return Evidence(ok=ok, detail=detail, reason="" if ok else self._reason(said, "refused"))

    # inside

    def _names(self) -> Sequence[str]:
        """Return what certificates are for: the site, its routes, and the addresses that a person types."""
        host = self._topology.proxy.host
        return tuple(dict.fromkeys((SERVER_NAME, f"*.{SERVER_NAME}", host, LOOPBACK, "localhost")))

    def _prepare_directories(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        marker_of(self._run).touch()

    def _companions_in(self, directory: Path, setting: Setting) -> Sequence[Companion]:
        return companions_of(self._adapter, self._binary, self._model(setting, directory, broken=False))

    def _model(self, setting: Setting, directory: Path, *, broken: bool) -> ProxyModel:
        in_place = directory == self._directory
        return ProxyModel(
            generation=setting.generation,
            full_generation=setting.full_generation,
            listen_host=self._topology.proxy.host,
            http_port=self._topology.proxy.http_port,
            https_port=self._topology.proxy.https_port,
            server_name=SERVER_NAME,
            certificate=self.certificate if in_place else directory / "candidate.pem",
            key=self.key if in_place else directory / "candidate.key",
            backends=self._topology.backends,
            workers=self._plan.workers,
            directory=directory,
            extra=self._plan.extra,
            broken=broken,
            routes=self._routes,
            version=self._version,
            bundle=self.bundle if in_place else directory / "candidate.bundle.pem",
            ports=self._topology.ports,
            tcp_port=self._topology.proxy.tcp_port,
        )

    def _write_files(self, directory: Path, setting: Setting, *, broken: bool = False) -> None:
        """Write the rendered files, each atomically, the main one last."""
        files = self._adapter.render(self._model(setting, directory, broken=broken))
        for name, text in reversed(list(files.items())):
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text.encode(), mode=0o644)

    def _put_in_place(self, setting: Setting) -> None:
        install_pair(setting.pair.chain_pem, setting.pair.key_pem, certificate=self.certificate, key=self.key)
        write_atomically(self.bundle, setting.pair.chain_pem + setting.pair.key_pem, mode=0o600)
        self._write_files(self._directory, setting)

    async def _validate(self, setting: Setting, *, broken: bool = False) -> str | None:
        """Let the proxy check the files in a directory apart. Returns None when it takes them, else its words."""
        command = self._adapter.validate_command(self._binary, self._candidate)
        if command is None:
            return None
        await asyncio.to_thread(self._write_candidate, setting, broken=broken)
        checks = [one.check for one in self._companions_in(self._candidate, setting) if one.check]
        for check in (command, *checks):
            done = await self._check(check)
            if done.code != 0:
                words = done.words or tail(self._adapter.error_log(self._candidate))
                return words or f"'{' '.join(check)}' ended with {exit_words(done.code)} and said nothing"
        await asyncio.to_thread(shutil.rmtree, self._candidate, ignore_errors=True)  # it holds a key
        return None

    async def _check(self, command: Sequence[str]) -> Checked:
        """Run the validator where the proxy runs."""
        return await run_check(
            command, directory=self._run.lab, run_id=self._run.id, timeout_s=VALIDATE_TIMEOUT_S
        )

    def _write_candidate(self, setting: Setting, *, broken: bool) -> None:
        shutil.rmtree(self._candidate, ignore_errors=True)
        self._candidate.mkdir(mode=0o700)
        install_pair(
            setting.pair.chain_pem,
            setting.pair.key_pem,
            certificate=self._candidate / "candidate.pem",
            key=self._candidate / "candidate.key",
        )
        bundle = setting.pair.chain_pem + setting.pair.key_pem
        write_atomically(self._candidate / "candidate.bundle.pem", bundle, mode=0o600)
        self._write_files(self._candidate, setting, broken=broken)

    async def _apply(self, generation: int, pair: Pair, wanted: str = "") -> Evidence:
        try:
            kind = chosen_kind(self._adapter, wanted)
        except LabError as error:
            return Evidence(ok=False, detail={"kind": wanted}, reason=str(error))
        full = generation if kind is ReloadKind.FULL else self._current.full_generation
        setting = Setting(generation, pair, full)
        refused = await self._validate(setting)
        if refused is not None:
            return Evidence(
                ok=False, detail={"validator": refused}, reason=f"refused by validation: {refused}"
            )
        taken = False
        try:
            await asyncio.to_thread(self._put_in_place, setting)
            said = await self._reload(kind)
            taken = said.verdict in ("accepted", "nothing")
        finally:
            if taken:
                self._current = setting
            else:
                await asyncio.to_thread(self._put_in_place, self._current)
                await self._companions.refresh()
        detail = {"generation": generation, "serial": setting.serial, "kind": str(kind), **said.detail}
        return Evidence(ok=taken, detail=detail, reason="" if taken else self._reason(said, "refused"))

    async def _reload(self, kind: ReloadKind | None = None) -> Said:
        """Ask for a reload, first the companions whose files have changed; returns what they and the proxy made of it."""
        return await self._companions.reload(lambda: self._ask(kind), everyone=kind is ReloadKind.FULL)

    async def _ask(self, kind: ReloadKind | None) -> Said:
        """Ask the proxy itself, by a call of the adapter's or by signal."""
        child = self._child
        assert child is not None
        if not isinstance(self._adapter, ReloadsByCall):
            receiver = Receiver(self._adapter, child, self._directory)
            return await by_signal(self._adapter, receiver, self.log, self._clock, SAY_TIMEOUT_S)
        ports = self._topology.ports
        context = ReloadContext(self._directory, int(child.identity["pid"]), ports, CALL_TIMEOUT_S, kind)
        return await by_call(self._adapter, context, child, self.log)

    async def _note_if_working(self) -> None:
        """Remember the current setting as one to go back to, if a fresh client sees it work right now."""
        if await self._look(_LOOK_TIMEOUT_S) is None:
            self._seen_to_work = self._current

    async def _look(self, timeout_s: float) -> str | None:
        """Make one checked request over a fresh connection; returns None when all is as configured, else what is not."""
        context = await asyncio.to_thread(trust, self._authority.ca_pem)
        probe = Probe(self._topology.proxy, SERVER_NAME, context, timeout_s, timeout_s)
        try:
            serial = await probe.handshake()
            answer = await probe.ask()
        except ProbeError as error:
            return str(error)
        finally:
            probe.close()
        if serial != self._current.serial:
            return f"the certificate with serial {serial} is served instead of {self._current.serial}"
        expected = str(self._current.generation)
        if Capability.MARKER in self._adapter.capabilities and answer.generation != expected:
            return f"config generation {answer.generation!r} is served instead of {expected!r}"
        return None

    async def _until_ready(self, child: Child) -> None:
        deadline = self._clock.monotonic_ns() + int(self._start_timeout_s * NS)
        while True:
            missing = await self._look(_LOOK_TIMEOUT_S)
            if missing is None:
                return
            late = self._clock.monotonic_ns() > deadline
            if not child.alive or late or self._companions.ended():
                child.expected_to_end = True
                for one in (child, *self._companions.children()):
                    await one.settled()
                why = f"it is not ready after {self._start_timeout_s:g} s ({missing})" if late else "it ended"
                raise LabError(f"{self._adapter.name} did not come up: {why}: {self._end_words()}")
            await self._clock.sleep(_POLL_S)

    def _reason(self, said: Said, otherwise: str) -> str:
        if said.verdict == "gone":
            return f"the proxy has ended: {self._end_words()}"
        return said.refusals[-1] if said.refusals and otherwise == "refused" else otherwise

    def _end_words(self) -> str:
        """Say how the process ended and what it said last, in its log and on its output."""
        words = self._child.words(self.log.path, self._output) if self._child is not None else ""
        return "\n".join(filter(None, (self._companions.ended(), words)))

    def _on_end(self, child: Child) -> None:
        if child.expected_to_end:
            return
        self._on_event("proxy.died", {**child.end(), "words": self._end_words()})
