"""What a plan says of a proxy that soak knows no adapter for: its files as templates, its commands, signals and patterns.

Commands are argument lists, never a shell string. Everything that can be wrong before the proxy runs is refused here: unknown
placeholders, patterns that do not compile, abilities that nothing in the plan provides. ``soak.proxies.command`` carries it out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from signal import Signals
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from soak.plantypes import Duration, Frozen
from soak.template import TemplateError, check, used

ABILITIES = ("reload", "cert_rotate", "marker", "h2", "websocket", "tcp")
"""What a plan may declare, in the words of ``soak.proxies.base.Capability``."""
IN_COMMANDS = frozenset({"binary", "directory", "config"})
"""Placeholders in every command."""
IN_FILES = IN_COMMANDS | {
    *(
        "generation",
        "host",
        "http_port",
        "https_port",
        "tcp_port",
        "server_name",
        "workers",
        "routes",
        "extra",
    ),
    *("certificate", "key", "bundle", "version", "first.name", "first.host", "first.port"),
}
"""Placeholders in files; ``first`` is the first backend, to which /single/ goes. Ports of the plan's own are ``port.NAME``, in files and in the reload command."""
LOOPS = {
    "backend": frozenset(f"backend.{name}" for name in ("name", "host", "port", "tls_port", "comma")),
    "route": frozenset(f"route.{name}" for name in ("name", "host", "comma")),
}
"""What may be repeated in files. ``comma`` is a comma after each but the last."""
_PORT = re.compile(r"port\.[a-z][a-z0-9_]*")


def _ports_in(text: str) -> set[str]:
    """Return the placeholders that look like ports; which ports there are is known to the whole plan alone."""
    return {name for match in re.finditer(r"@\{(port\.[a-z][a-z0-9_]*)", text) if (name := match[1])}


def _file(text: str) -> str:
    check(text, IN_FILES | _ports_in(text), LOOPS)
    return text


def _argument(text: str) -> str:
    check(text, IN_FILES | {"pid"} | _ports_in(text))  # which of them a command knows, the whole plan judges
    return text


def _refused(validate: object, text: str) -> str:
    """Turn a template's complaint into one that pydantic places."""
    assert callable(validate)
    try:
        validate(text)
    except TemplateError as error:
        raise ValueError(str(error)) from error
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


def _signal(text: str) -> str:
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    if name not in Signals.__members__:
        raise ValueError(f"{text!r} is no signal; write one like HUP, USR1 or TERM")
    return name


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/") or "\0" in path or not path.strip("/."):
        raise ValueError(f"{path!r} must be a path inside the proxy's own directory, like conf/gateway.yaml")
    return path


Argument = Annotated[str, AfterValidator(lambda text: _refused(_argument, text))]
FileTemplate = Annotated[str, AfterValidator(lambda text: _refused(_file, text))]
InsidePath = Annotated[str, AfterValidator(_inside)]
Pattern = Annotated[str, AfterValidator(_pattern)]
SignalName = Annotated[str, AfterValidator(_signal)]
Command = Annotated[tuple[Argument, ...], Field(min_length=1, max_length=200)]


class ReloadPlan(Frozen):
    """How the proxy is made to read its files again. Exactly one of the three."""

    command: Command | None = Field(
        None, description="Run this; a status other than 0 means refused, in the words of its output."
    )
    signal: SignalName | None = Field(None, description="Send this to the proxy (or to pid_file): HUP.")
    watch: bool = Field(False, description="Nothing is to be done: the proxy watches its files.")

    @model_validator(mode="after")
    def _check(self) -> ReloadPlan:
        if self.signal in ("SIGKILL", "SIGSTOP"):
            raise ValueError(
                f"no program can act on {self.signal}; write the one that makes it reload, like HUP or USR2"
            )
        if (self.command is not None) + (self.signal is not None) + self.watch != 1:
            raise ValueError("give exactly one of command, signal and watch: true")
        return self


class StopPlan(Frozen):
    """How the proxy is asked to end."""

    signal: SignalName = "SIGTERM"
    grace: Duration = Field(
        1.0, le=60, description="How long it may take to end by itself; then it is killed."
    )


class VersionPlan(Frozen):
    """How the binary is asked for its version."""

    command: Command
    pattern: Pattern = Field(
        r"(\d+(?:\.\d+)+)", description="A regular expression; its first group is the version."
    )

    @model_validator(mode="after")
    def _check(self) -> VersionPlan:
        if re.compile(self.pattern).groups < 1:
            raise ValueError(f"pattern {self.pattern!r} has no group; put the version between parentheses")
        return self


class ProcessesPlan(Frozen):
    """Which process is what, by a regular expression that is searched in its command line or title."""

    master: Pattern | None = None
    worker: Pattern | None = None
    old_worker: Pattern | None = Field(
        None, description="One of an earlier configuration that still lives: those that pile up are a leak."
    )


class CommandPlan(Frozen):
    """A proxy known by the plan alone. ``@{...}`` are placeholders; see docs/ADDING_A_PROXY.md."""

    name: str = Field(
        "", pattern=r"^([a-z][a-z0-9-]{0,31})?$", description="What reports call it; default: command."
    )
    can: tuple[Literal["reload", "cert_rotate", "marker", "h2", "websocket", "tcp"], ...] = Field(
        (), description="What it can, and its files configure. Nothing is assumed."
    )
    limits: dict[str, str] = Field(
        default_factory=dict, description="Why it cannot do something, or only in part: {reload: ...}."
    )
    untried: str = Field("", description="Why nobody has run this plan yet; told by 'soak plan' and 'check'.")
    files: dict[InsidePath, FileTemplate] = Field(
        min_length=1, max_length=100, description="Its configuration, by path; the first is the main file."
    )
    broken: str = Field(
        'soak_refuse_this ] } {"',
        min_length=1,
        description="Appended to the main file to make it one that must be refused (reload-bad).",
    )
    start: Command = Field(description="Runs it in the foreground, in the directory above its own.")
    check_command: Command | None = Field(
        None, alias="validate", description="Checks the files without applying them; status 0: they are good."
    )
    reload: ReloadPlan | None = Field(None, description="Without it the proxy cannot be reloaded.")
    stop: StopPlan = Field(default_factory=StopPlan)
    version: VersionPlan | None = None
    pid_file: InsidePath | None = Field(
        None, description="Where the pid for signals stands; default: the process that was started."
    )
    log: InsidePath | None = Field(None, description="Where it complains; default: its output.")
    refused: Pattern | None = Field(
        None, description="Finds the lines of the log that say that a configuration was refused."
    )
    accepted: Pattern | None = Field(
        None, description="Finds the lines of the log that say that a configuration is in effect."
    )
    processes: ProcessesPlan = Field(default_factory=ProcessesPlan)
    ports: tuple[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], ...] = Field(
        (), description="Further free ports, as @{port.NAME}: an admin page."
    )

    @model_validator(mode="after")
    def _check(self) -> CommandPlan:
        for problem in self._problems():
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        """Yield what does not fit together."""
        yield from self._unknown_in_commands()
        told = set(used("".join([*self.files.values(), *self.start])))
        for name in sorted(n for n in told if _PORT.fullmatch(n) and n[5:] not in self.ports):
            yield f"@{{{name}}} is used, but ports does not list {name[5:]!r}; add it"
        if (self.reload is not None) != ("reload" in self.can):
            there, missing = ("can", "reload") if self.reload is None else ("reload", "can")
            yield f"reload stands in {there!r} but not in {missing!r}; a proxy that can be reloaded needs both"
        if "cert_rotate" in self.can and self.reload is None:
            yield "can: cert_rotate needs reload; for a proxy that watches its files, reload: {watch: true}"
        if "marker" in self.can and "generation" not in told:
            yield "can: marker needs @{generation} in a file: the value of the response header X-Soak-Generation"
        if "https_port" not in told:
            yield "nothing tells the proxy its HTTPS port; put @{https_port} into a file"
        if not told & {"certificate", "bundle"}:
            yield "nothing tells the proxy its certificate; put @{certificate} and @{key}, or @{bundle}, into a file"
        if "metrics" in self.ports:
            yield "ports: 'metrics' is a name of soak's own; call it otherwise"
        if unknown := sorted(set(self.limits) - set(ABILITIES)):
            yield f"limits: {unknown[0]!r} is no ability; known: {', '.join(ABILITIES)}"

    def _unknown_in_commands(self) -> Iterator[str]:
        """Yield placeholders that a command does not know."""
        version = () if self.version is None else self.version.command
        reload = () if self.reload is None else self.reload.command or ()
        for where, command, known in (
            ("start", self.start, IN_COMMANDS),
            ("validate", self.check_command or (), IN_COMMANDS),
            ("version", version, IN_COMMANDS),
            ("reload", reload, IN_COMMANDS | {"pid"} | {f"port.{port}" for port in self.ports}),
        ):
            for name in sorted(set(_used_in(command)) - known):
                yield (
                    f"{where}: @{{{name}}} is not known there; known: {', '.join(sorted(known))}. What the proxy "
                    "must be told by its arguments, tell it by a script among the files, and start that"
                )


def _used_in(command: Iterable[str]) -> Iterator[str]:
    for argument in command:
        yield from used(argument)
