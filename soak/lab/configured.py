"""A proxy that soak configures, whoever runs it: rendered, validated, reloaded, given certificates and broken files.

Satisfies ``chaos.target.Proxy``. A file that goes live was accepted by the proxy's own validator before, except the one that
is broken on purpose; what is on disk and what is remembered as current change together or not at all. What a lab adds is how its
proxy is started, asked and looked at: a child of ours (``soak.lab.proxy``), or one that is known by its identity (``soak.lab.identified``).
"""

from __future__ import annotations

import asyncio
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certs.authority import Authority, Pair
from certs.install import fingerprint_of, install_pair, serial_of, write_atomically
from chaos.model import Evidence
from chaos.target import Identity, TargetError
from soak.clock import NS, Clock
from soak.errors import LabError
from soak.lab.checking import Checked
from soak.lab.errorlog import ErrorLog
from soak.lab.prober import Probe, ProbeError, trust
from soak.lab.process import exit_words, tail
from soak.lab.reloading import Said, chosen_kind
from soak.lab.state import output_of
from soak.lab.topology import LOOPBACK, Topology
from soak.model import WorkerEnd
from soak.plan import ProxyPlan
from soak.proxies.base import SERVER_NAME, Capability, ProxyAdapter, ProxyModel, ReloadKind, TellsEnds
from soak.proxies.companion import Companion
from soak.rundir import RunDir

VALIDATE_TIMEOUT_S = 15.0
_LOOK_TIMEOUT_S = 1.5
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ProxySetup:
    """What a lab knows of its proxy before there is one."""

    run: RunDir
    plan: ProxyPlan
    topology: Topology
    clock: Clock
    adapter: ProxyAdapter
    binary: Path
    """Where the proxy runs: of a container, the program inside."""
    authority: Authority
    start_timeout_s: float
    version: str = ""
    routes: int = 0


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


class ConfiguredProxy(ABC):
    """A proxy and its configuration."""

    def __init__(self, setup: ProxySetup) -> None:
        run, authority = setup.run, setup.authority
        self._run = run
        self._plan = setup.plan
        self._version = setup.version
        self._routes = setup.routes
        self._topology = setup.topology
        self._clock = setup.clock
        self._adapter = setup.adapter
        self._binary = setup.binary
        self._authority = authority
        self._start_timeout_s = setup.start_timeout_s
        self._directory = run.lab / "proxy"
        self._candidate = run.lab / "candidate"
        self._output = output_of(run)
        self._current = Setting(1, authority.leaf(*self._names()))
        self._seen_to_work = self._current
        self._lock = asyncio.Lock()
        self.log = ErrorLog(setup.adapter.error_log(self._directory))
        self.ca_file = authority.ca_pem
        self.certificate = run.certs / "site.pem"
        self.key = run.certs / "site.key"
        self.bundle = run.certs / "site.bundle.pem"

    # chaos.target.Proxy

    @abstractmethod
    async def proxy_identity(self) -> Identity:
        """Return the identity of what was started or attached to. Raises ``TargetError`` when it has ended."""

    def generation(self) -> int:
        """Return the config generation that was last asked for and not refused."""
        return self._current.generation

    def serial(self) -> str:
        """Return the serial of the certificate that is installed."""
        return self._current.serial

    async def worker_ends(self) -> Mapping[int, WorkerEnd]:
        """Return how workers ended lately, by pid, as the end of the log tells it; nothing when this proxy's log does not."""
        if not isinstance(self._adapter, TellsEnds):
            return {}
        return self._adapter.worker_ends(await asyncio.to_thread(self.log.since, 0))

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

    # what a lab adds

    @abstractmethod
    async def _check(self, command: Sequence[str], *, companion: str = "") -> Checked:
        """Run the validator where the proxy runs, or that of a companion where that one does."""

    @abstractmethod
    async def _reload(self, kind: ReloadKind | None = None) -> Said:
        """Ask for a reload, None: of the usual kind. Returns what the proxy made of it."""

    @abstractmethod
    async def _has_ended(self) -> bool:
        """Whether it is in vain to wait for it."""

    @abstractmethod
    async def _given_up(self, why: str) -> str:
        """Return the sentence that says that it does not serve, ``why``, and what is known beside."""

    @abstractmethod
    def _end_words(self) -> str:
        """Say how it ended and what it said last."""

    def _companions_in(self, directory: Path, setting: Setting) -> Sequence[Companion]:
        """Return the companions that read what is rendered into this directory, in the words of where they run."""
        del directory, setting
        return ()

    # inside

    def _names(self) -> Sequence[str]:
        """Return what certificates are for: the site, its routes, and the addresses that a person types."""
        host = self._topology.proxy.host
        return tuple(dict.fromkeys((SERVER_NAME, f"*.{SERVER_NAME}", host, LOOPBACK, "localhost")))

    async def _put_valid_in_place(self) -> None:
        """Put the first configuration in place. Raises ``LabError`` with the words of a proxy that refuses it."""
        await self._require_valid()
        await asyncio.to_thread(self._put_in_place, self._current)

    async def _require_valid(self) -> None:
        refused = await self._validate(self._current)
        if refused is not None:
            raise LabError(f"{self._adapter.name} refuses its configuration:\n{refused}")

    async def _until_it_serves(self) -> None:
        """Wait until a fresh client sees all as configured. Raises ``LabError`` when it has ended, and when it takes too long."""
        deadline = self._clock.monotonic_ns() + int(self._start_timeout_s * NS)
        while (missing := await self._look(_LOOK_TIMEOUT_S)) is not None:
            late = self._clock.monotonic_ns() > deadline
            if late or await self._has_ended():
                why = f"it is not ready after {self._start_timeout_s:g} s ({missing})" if late else "it ended"
                raise LabError(await self._given_up(why))
            await self._clock.sleep(_POLL_S)

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
        checks = [("", command)]
        checks += [
            (one.name, one.check) for one in self._companions_in(self._candidate, setting) if one.check
        ]
        for companion, check in checks:
            done = await self._check(check, companion=companion)
            if done.code != 0:
                words = done.words or tail(self._adapter.error_log(self._candidate))
                return words or f"'{' '.join(check)}' ended with {exit_words(done.code)} and said nothing"
        await asyncio.to_thread(shutil.rmtree, self._candidate, ignore_errors=True)  # it holds a key
        return None

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
                await self._take_back()
        detail = {"generation": generation, "serial": setting.serial, "kind": str(kind), **said.detail}
        return Evidence(ok=taken, detail=detail, reason="" if taken else self._reason(said, "refused"))

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

    async def _take_back(self) -> None:
        """Put what was current back in place."""
        await asyncio.to_thread(self._put_in_place, self._current)

    def _reason(self, said: Said, otherwise: str) -> str:
        if said.verdict == "gone":
            return f"the proxy has ended: {self._end_words()}"
        return said.refusals[-1] if said.refusals and otherwise == "refused" else otherwise
