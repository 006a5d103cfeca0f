"""The first configuration of a proxy that somebody else is to start: generation 0, first certificates, the origins' table.

A proxy starts before a run does. What it starts with is rendered here, into the directory that the run will render into; the run
keeps it, and puts it back at its end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from certs.authority import Authority
from certs.install import install_pair, write_atomically
from soak.errors import PlanError
from soak.lab.attachedfiles import first_model, pair_of, program_of
from soak.lab.attachedtls import certify, origin_tls_of
from soak.lab.companions import companions_of
from soak.lab.shared import Shared, create
from soak.labplan import AttachLabPlan
from soak.plan import Plan
from soak.proxies.base import SERVER_NAME, ProxyModel, output_of
from soak.proxies.catalog import adapter_of
from soak.proxies.companion import companion_output_of

_MARK = ".rendered-by-soak"
_CA = "ca.pem"


@dataclass(frozen=True, slots=True)
class Rendered:
    """What was written, and how everything is started with it."""

    directory: Path
    files: Sequence[str]
    """By name, in the directory; the main one first."""
    proxy: Sequence[str]
    """The command that starts the proxy, in the parent of ``directory``."""
    output: Path | None
    """The file that must get the proxy's output; None: it has a log of its own."""
    origins: Sequence[Sequence[str]]
    """The command of each origin."""
    companions: Mapping[str, Sequence[str]]
    """The command of what the proxy is not whole without, by name, in the same directory; its output goes to ``companion_output_of``."""


def render_first(plan: Plan, *, force: bool = False) -> Rendered:
    """Write all of it. Raises ``PlanError`` for a plan that attaches to nothing, and for files that are not soak's, unless ``force``."""
    where = plan.lab.attach
    if where is None:
        raise PlanError(
            f"the lab of this plan is {plan.lab.kind}, whose proxy is started by soak itself; 'soak render' is for kind attach"
        )
    known = adapter_of(plan.proxy)
    model = first_model(plan, where)
    files = known.render(model)
    try:
        _write(model, files, force=force)
        if where.shared is not None:
            _share(Path(where.shared))
        tls = origin_tls_of(where.proxy)
        if model.tcp_port:
            certify(tls)
        output = output_of(model.directory)
        has_output = known.error_log(model.directory) == output
        if has_output:
            output.touch()
        binary = program_of(known, plan.proxy.binary)
        beside = companions_of(known, binary, model)
        for one in beside:
            companion_output_of(model.directory, one.name).touch()
    except OSError as error:
        raise PlanError(
            f"{error.filename or where.proxy.directory} cannot be written: {error.strerror or error}; "
            "run soak as a user who may, or set another lab.attach.proxy.directory"
        ) from error
    return Rendered(
        model.directory,
        (
            *files,
            *(path.name for path in pair_of(where.proxy)),
            _CA,
            *((path.name for path in (tls.certificate, tls.key, tls.root)) if model.tcp_port else ()),
        ),
        tuple(known.start_command(binary, model.directory)),
        output if has_output else None,
        tuple(_origin(where, number) for number in range(len(where.backends))),
        {one.name: tuple(one.command) for one in beside},
    )


def _share(path: Path) -> None:
    """Make the table unless there is one: origins that run have it mapped, and a file that shrinks under them kills them."""
    try:
        Shared.open(path, 0)
    except (OSError, ValueError):
        path.parent.mkdir(parents=True, exist_ok=True)
        create(path)


def _write(model: ProxyModel, files: Mapping[str, str], *, force: bool) -> None:
    directory = model.directory
    directory.mkdir(parents=True, exist_ok=True)
    mark = directory / _MARK
    strangers = [name for name in files if (directory / name).exists() and not mark.exists()]
    if strangers and not force:
        raise PlanError(
            f"{directory} holds {', '.join(strangers)}, which soak did not render; "
            "give lab.attach.proxy.directory another one, or --force to overwrite"
        )
    mark.touch()
    with (
        tempfile.TemporaryDirectory() as apart
    ):  # the run makes an authority of its own: nobody needs this one's key
        authority = Authority.create(Path(apart) / "certs")
        pair = authority.leaf(SERVER_NAME, f"*.{SERVER_NAME}", model.listen_host, "127.0.0.1", "localhost")
        write_atomically(directory / _CA, authority.ca_pem.read_bytes(), mode=0o644)
    install_pair(pair.chain_pem, pair.key_pem, certificate=model.certificate, key=model.key)
    write_atomically(model.bundle, pair.chain_pem + pair.key_pem, mode=0o600)
    for name, text in reversed(list(files.items())):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode(), mode=0o644)


def _origin(where: AttachLabPlan, number: int) -> Sequence[str]:
    one = where.backends[number]
    command = ["python3", "-m", "soak.lab.origin", "--name", f"b{number + 1}"]
    command += ["--host", one.host, "--port", str(one.port), "--stay"]
    if one.tls_port is not None:
        tls = origin_tls_of(where.proxy)
        command += ["--tls-port", str(one.tls_port)]
        command += ["--certificate", str(tls.certificate), "--key", str(tls.key)]
    command += [] if where.shared is None else ["--shared", where.shared, "--row", str(number)]
    return [*command, *([] if one.pid_file is None else ["--pid-file", one.pid_file])]
