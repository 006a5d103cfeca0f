"""Varnish, with hitch before it for TLS: Debian's ``varnish`` and ``hitch``, or any varnishd from 7.0 on and hitch from 1.5 on.

What a reload does here: ``vcl.load`` compiles the new file (by the C compiler, which varnishd needs at run time), its probes look
at the backends, ``vcl.use`` makes it the one that new requests meet, and the old ones are discarded; no connection notices. A file
that is refused changes nothing. TLS is hitch's: a new certificate is read at HUP, by new workers; the old ones end with their
last connection. The marker and ``vcl.list`` prove the one, the serial proves the other.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGHUP, SIGTERM, Signals
from typing import Any

from soak.errors import LabError
from soak.model import WorkerEnd
from soak.proxies._asking import ask_version, find_binary
from soak.proxies._varnishcli import OK, VarnishCli, varnish_cli
from soak.proxies._varnishvcl import MAIN, render_vcl
from soak.proxies.base import (
    CRASHES,
    Capability,
    ContainerFacts,
    ProcessRole,
    ProxyModel,
    ReloadContext,
    Reloaded,
    ReloadKind,
    SeenProcess,
    output_of,
)
from soak.proxies.companion import Companion

_HITCH = "hitch"
_HITCH_FILE = "hitch.conf"
_LAUNCHER = "varnishd.sh"
_WORK = "work"
_OLDEST = (7, 0)
_LOOPBACK = "127.0.0.1"
_OPEN_FILES = 20_000
_UNPRIVILEGED = "nobody"
_PROBES_PASS_S = 1.2
"""How long a new configuration may look at its backends before it is used: two probes, the second after a timeout."""
_LOOK_S = 0.05
_QUICKLY = "cc_command=%D -O0 -g0"
"""The usual command of the compiler, but without making the result fast: 0.5 s of a core for 1,000 routes instead of 1.8 s."""
_DIED = re.compile(r"^Error: Child \((\d+)\) (died signal=(\d+).*)", re.MULTILINE)
_HOW_TO_GET = "install it with 'apt install varnish hitch', or set proxy.binary to the path of varnishd"

_HITCH_CONF = """\
# Rendered by soak. The certificate and the number of workers are on the command line.
frontend = {{
    host = "{host}"
    port = "{https_port}"
}}
backend = "[{loopback}]:{proxy_port}"
write-proxy-v2 = on
alpn-protos = "h2,http/1.1"
tls-protos = TLSv1.2 TLSv1.3
backlog = 4096
log-level = 1
ocsp-dir = ""
{user}"""


class VarnishAdapter:
    """The facts of Varnish and hitch.

    Each configuration looks at the backends itself, every 500 ms; one is out after two failures in a row and back after one good
    answer. A request that meets a dead one before that goes to the next; a hanging one costs it ``first_byte_timeout`` (2 s).
    A POST goes to the next only when the first refused to connect. So that a reload does not send traffic to a backend that is down, a
    new configuration is used once its own probes have passed, or have had the time for it.

    Websockets are piped, which hands the origin's 101 on as it is: that answer alone carries no generation. There is no second
    try in a pipe, so one that meets a dead backend before the probe did is closed without an answer. Nothing but
    ``/cache/`` is cached. Routes are a chain of comparisons in subroutines of 32, for VCL has no map.
    ``proxy.extra`` stands at the top level of the VCL, before the subroutines of soak, so that a subroutine of the same name runs first.

    A routing reload is that of the VCL; a full one makes hitch replace its workers as well.

    hitch 1.7.2 takes the numbers of closed pipes for open ones: a HUP that comes while workers of an earlier one still drain ends all of
    them, the new ones included, and every TLS connection with them. Nothing in its configuration prevents that.
    """

    name = "varnish"
    capabilities = frozenset(
        {
            Capability.RELOAD,
            Capability.CERT_ROTATE,
            Capability.MARKER,
            Capability.H2,
            Capability.WEBSOCKET,
        }
    )
    container = ContainerFacts(
        "varnish:7.7.3", "/etc/varnish", "varnishd", companions={_HITCH: "hitch:1.8.0-1"}
    )
    companion_names = (_HITCH,)
    extra_ports = ("cli", "proxy")
    limits: Mapping[str, str] = {
        "cert_rotate": "by hitch, which stands before it: it has no TLS of its own",
        "metrics": "varnishstat reads its shared memory; there is no endpoint",
        "tcp": "it reads HTTP",
    }
    reload_kinds = (ReloadKind.ROUTING, ReloadKind.FULL)

    def find_binary(self, configured: str | None) -> Path:
        """Return the configured varnishd, or the one of PATH or ``/usr/sbin``. hitch must be beside it, or there, too."""
        binary = find_binary("varnishd", configured, ("varnishd", "/usr/sbin/varnishd"), _HOW_TO_GET)
        _find_hitch(binary)
        return binary

    def version(self, binary: Path) -> str:
        """Ask ``varnishd -V``: ``7.1.1``. Raises ``LabError`` for one before 7.0, of which soak knows nothing."""
        version = ask_version([str(binary), "-V"], r"varnish-(\d+(?:\.\d+)+)", _HOW_TO_GET)
        if tuple(int(part) for part in version.split("."))[:2] < _OLDEST:
            raise LabError(f"{binary} is Varnish {version}; soak needs 7.0 or newer; {_HOW_TO_GET}")
        return version

    def render(self, model: ProxyModel) -> Mapping[str, str]:
        """Return the VCL, its routes if there are any, hitch's configuration, and how varnishd is started."""
        hitch = _HITCH_CONF.format(
            host=model.listen_host,
            https_port=model.https_port,
            loopback=_LOOPBACK,
            proxy_port=model.ports["proxy"],
            # It refuses to run workers as root. They need no file: the certificate is read by their parent.
            user=f'user = "{_UNPRIVILEGED}"\n' if os.geteuid() == 0 else "",
        )
        return {**render_vcl(model), _HITCH_FILE: hitch, _LAUNCHER: _render_launcher(model)}

    def validate_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return ``varnishd -C``, which runs the C compiler, too."""
        work = str(directory / _WORK)
        return [str(binary), "-C", "-j", "none", "-n", work, "-p", _QUICKLY, "-f", str(directory / MAIN)]

    def start_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return varnishd in the foreground, by a script that was rendered: where it listens is on its command line alone."""
        return ["/bin/sh", str(directory / _LAUNCHER), str(binary)]

    def companions(self, binary: Path, model: ProxyModel) -> Sequence[Companion]:
        """Return hitch. Its file cannot hold a path with quotes, so the certificate is named on the command line."""
        hitch = str(_find_hitch(binary))
        arguments = [
            f"--config={model.directory}/{_HITCH_FILE}",
            f"--workers={model.workers}",
            str(model.bundle),
        ]
        return [
            Companion(
                name=_HITCH,
                command=[
                    "/bin/sh",
                    "-c",
                    f'ulimit -n {_open_files()}; exec "$0" "$@"',
                    hitch,
                    *arguments,
                ],
                port=model.https_port,
                check=[hitch, "--test", *arguments],
                reads=[model.bundle],
                signal=SIGHUP,
                accepted=r"\{core\} Config reloaded in ",
                refused=r"Config reload failed|Error loading certificate file",
            )
        ]

    def reload_signal(self) -> Signals:
        """HUP is hitch's; varnishd has no such signal, ``reload`` is what is used."""
        return SIGHUP

    def stop_signal(self) -> Signals:
        """TERM to varnishd: at once."""
        return SIGTERM

    def error_log(self, directory: Path) -> Path:
        """Return the file of its standard error: varnishd has no log file."""
        return output_of(directory)

    def refusals(self, log_text: str) -> Sequence[str]:
        """Return what was found wrong, with the line above that says what was expected."""
        return [one for one in (_refusal(log_text),) if one]

    def acceptances(self, log_text: str) -> Sequence[str] | None:  # noqa: ARG002 - the contract's
        """Return None: that a VCL is in use is answered on the command line, and not logged."""
        return None

    async def reload(self, context: ReloadContext) -> Reloaded:
        """Load, wait for the probes, use, discard the others; and look whether it is the active one."""
        secret = (context.directory / _WORK / "_.secret").read_bytes()
        main = (context.inside or context.directory) / MAIN
        async with varnish_cli(context.host, context.ports["cli"], secret) as cli:
            name = _next_name(await _loaded(cli))
            status, said = await cli.ask("vcl.load", name, str(main))
            if status != OK:
                return Reloaded(
                    accepted=False, reason=_refusal(said) or said.strip(), detail={"answer": said[-2000:]}
                )
            healthy = await _probes_pass(cli, name)
            status, said = await cli.ask("vcl.use", name)
            loaded = await _loaded(cli)
            for other in loaded:
                if other["status"] == "available":
                    await cli.ask("vcl.discard", other["name"])
            left = await _loaded(cli)
        active = [one["name"] for one in left if one["status"] == "active"]
        detail = {
            "vcl": name,
            "healthy": healthy,
            "loaded": [f"{one['name']} {one['status']}" for one in left],
        }
        if status == OK and active == [name]:
            return Reloaded(accepted=True, detail=detail)
        return Reloaded(accepted=False, reason=f"{name} is not in use: {said.strip()}", detail=detail)

    def worker_ends(self, log_text: str) -> Mapping[int, WorkerEnd]:
        """Return what varnishd says of the child that works for it: ``died signal=6`` is a panic. hitch's words are in a log of its own."""
        return {
            int(pid): WorkerEnd(words, crashed=True if int(number) in CRASHES else None)
            for pid, words, number in _DIED.findall(log_text)
        }

    def role(self, cmdline: str) -> ProcessRole:
        """Tell Varnish and hitch from other processes; ``roles`` tells more."""
        return ProcessRole.WORKER if _program(cmdline.split()) else ProcessRole.OTHER

    def roles(self, processes: Sequence[SeenProcess]) -> Mapping[int, ProcessRole]:
        """Tell varnishd's two processes by kinship, and hitch's workers by age: those of now are its youngest ``--workers``.

        hitch forks new workers at HUP and titles none of them. Its parent works on nothing and is no master of the proxy: ``OTHER``.
        """
        named = {seen.pid: (seen, _program(seen.argv)) for seen in processes}
        told: dict[int, ProcessRole] = {}
        workers: list[SeenProcess] = []
        for pid, (seen, program) in named.items():
            parent = named.get(seen.ppid, (None, ""))[1]
            if program == "varnishd":
                told[pid] = ProcessRole.WORKER if parent == "varnishd" else ProcessRole.MASTER
            elif program == "hitch" and parent == "hitch":
                workers.append(seen)
        workers.sort(key=lambda seen: (seen.started, seen.pid), reverse=True)
        for i, seen in enumerate(workers):
            told[seen.pid] = ProcessRole.WORKER if i < _workers_of(seen.argv) else ProcessRole.OLD_WORKER
        return told


def _find_hitch(binary: Path) -> Path:
    if not binary.is_absolute():
        return Path(_HITCH)  # of an image, which has it on its own PATH
    for candidate in (binary.parent / "hitch", "hitch", "/usr/sbin/hitch"):
        if found := shutil.which(candidate):
            return Path(found).absolute()
    raise LabError(
        f"no hitch, which speaks TLS for Varnish, was found beside {binary} nor on PATH; {_HOW_TO_GET}"
    )


def _render_launcher(model: ProxyModel) -> str:
    options = [
        "-F",
        # The sandbox of root is one of users who may not enter a private run directory.
        *("-j", "none"),
        *("-n", str(model.directory / _WORK)),
        *("-f", str(model.directory / MAIN)),
        *("-a", f"http={model.listen_host}:{model.http_port},HTTP"),
        *("-a", f"tls={_LOOPBACK}:{model.ports['proxy']},PROXY"),
        *("-T", f"{model.listen_host}:{model.ports['cli']}"),
        # Small on purpose: a working set can be larger. Objects that live shortly count, too.
        *("-s", "malloc,8m"),
        *("-p", "shortlived=0"),
        # Its log lives in memory whether somebody reads it or not; it is no leak while it fills, so it fills soon.
        *("-l", "8m"),
        *("-p", "feature=+http2"),
        *("-p", "timeout_idle=75"),
        *("-p", "listen_depth=4096"),
        # A load that shares the machine must not be in want of the core for seconds at each reload.
        *(("-p", _QUICKLY) if model.routes else ()),
    ]
    return f'ulimit -n {_open_files()}\nexec "$1" {shlex.join(options)}\n'


def _open_files() -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)


async def _loaded(cli: VarnishCli) -> Sequence[Mapping[str, Any]]:
    return await cli.ask_json("vcl.list", "-j")


def _next_name(loaded: Sequence[Mapping[str, Any]]) -> str:
    """Return a name that no configuration has yet, not even one that is discarded and still in use."""
    numbers = [int(n) for one in loaded if (n := str(one["name"]).removeprefix("soak")).isdigit()]
    return f"soak{max(numbers, default=0) + 1}"


async def _probes_pass(cli: VarnishCli, name: str) -> Sequence[str]:
    """Wait until every backend of a loaded configuration was seen healthy, or could have been. Returns those that were."""
    healthy: list[str] = []
    for _ in range(int(_PROBES_PASS_S / _LOOK_S)):
        (listed,) = await cli.ask_json("backend.list", "-j", f"{name}.*")
        states = {
            full.partition(".")[2]: one["probe_message"][2]
            for full, one in listed.items()
            if one["type"] == "backend"
        }
        healthy = sorted(backend for backend, state in states.items() if state == "healthy")
        if len(healthy) == len(states):
            break
        await asyncio.sleep(_LOOK_S)
    return healthy


def _refusal(text: str) -> str:
    """Return the complaint in a message of the compiler, without the hints around it."""
    lines = [line.strip() for line in text.splitlines()]
    if not any(line.startswith("Message from ") for line in lines):
        return ""
    told = [line for line in lines if line and not line.startswith(("Message from ", "Running ", "#"))]
    return " ".join(told)[:500]


def _program(argv: Sequence[str]) -> str:
    """Return which of the two a command line is; "": neither."""
    name = os.path.basename(argv[0]) if argv else ""  # noqa: PTH119 - a title, not a path
    return name if name in ("varnishd", "hitch") else ""


def _workers_of(argv: Sequence[str]) -> int:
    given = [a.removeprefix("--workers=") for a in argv if a.startswith("--workers=")]
    return int(given[-1]) if given and given[-1].isdigit() else 1


ADAPTER = VarnishAdapter()
