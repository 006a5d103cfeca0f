"""Fills placeholders into configuration files and commands that a plan brings: ``@{http_port}``, and nothing cleverer.

``@{name}`` is replaced, ``@{name|quoted}`` is replaced and put between double quotes, ``@@{`` stands for ``@{``. Lines
between a line ``@{each backend}`` and a line ``@{end}`` are repeated. That is all: no expressions, no conditions, no nesting.
``@{`` because no configuration language in use begins anything with it, while ``$``, ``{{`` and ``%`` belong to some.
Pure; what the names are and mean is the caller's business.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from soak.errors import PlanError, nearest

Loops = Mapping[str, Collection[str]]
"""What can be repeated, and the names that are known inside: ``{"backend": {"backend.host", "backend.port"}}``."""

_PLACEHOLDER = re.compile(r"@@\{|@\{([^{}\n]*)(\}?)")
_EACH = re.compile(r"\s*@\{each ([a-z]+)\}\s*")
_END = re.compile(r"\s*@\{end\}\s*")
_QUOTED = "quoted"


class TemplateError(PlanError):
    """A template that cannot be filled: a sentence with the line, what stands there, and the nearest known name."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Lines that stand once (``each`` is empty) or are repeated. Numbered from 1, with their ends."""

    each: str
    lines: Sequence[tuple[int, str]]


def check(text: str, names: Collection[str], loops: Loops | None = None) -> None:
    """Refuse what ``fill`` could not fill. Raises ``TemplateError`` for the first such line."""
    loops = loops or {}
    for block in _blocks(text, loops):
        known = {*names, *loops.get(block.each, ())}
        for number, line in block.lines:
            for name, _quoted in _placeholders(number, line):
                if name not in known:
                    raise TemplateError(_unknown(number, name, known, loops))


def used(text: str) -> Iterator[str]:
    """Yield the name of every placeholder of a text that was checked."""
    for match in _PLACEHOLDER.finditer(text):
        if match[1] is not None:
            yield match[1].partition("|")[0]


def fill(
    text: str, values: Mapping[str, str], loops: Mapping[str, Sequence[Mapping[str, str]]] | None = None
) -> str:
    """Return the text with its values. Raises ``TemplateError`` for what ``check`` refuses.

    A value of several lines keeps the indentation of a placeholder that stands alone on its line.
    """
    loops = loops or {}
    out: list[str] = []
    for block in _blocks(text, loops):
        for item in loops[block.each] if block.each else ({},):
            known = {**values, **item}
            out.extend(_filled(number, line, known) for number, line in block.lines)
    return "".join(out)


def fill_all(arguments: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return a command with its values: as many arguments as before, whatever is in them."""
    return [fill(argument, values) for argument in arguments]


def _blocks(text: str, loops: Collection[str]) -> Iterator[_Block]:
    """Cut a text at its loops. Raises ``TemplateError`` for one that is unknown, nested or not closed."""
    each, since, lines = "", 0, list[tuple[int, str]]()
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if opened := _EACH.fullmatch(line):
            if each:
                raise TemplateError(
                    f"line {number}: @{{each {opened[1]}}} stands inside that of line {since}; write @{{end}} first"
                )
            if opened[1] not in loops:
                known = nearest(opened[1], loops) if loops else "; nothing is repeated here"
                raise TemplateError(f"line {number}: there is no @{{each {opened[1]}}}{known}")
            yield _Block("", lines)
            each, since, lines = opened[1], number, []
        elif _END.fullmatch(line):
            if not each:
                raise TemplateError(f"line {number}: @{{end}} ends nothing; remove it")
            yield _Block(each, lines)
            each, lines = "", []
        else:
            lines.append((number, line))
    if each:
        raise TemplateError(f"line {since}: @{{each {each}}} has no @{{end}}; write one on a line of its own")
    yield _Block("", lines)


def _placeholders(number: int, line: str) -> Iterator[tuple[str, bool]]:
    """Yield each name on a line, and whether its value is to be quoted. Raises ``TemplateError`` for a malformed one."""
    for match in _PLACEHOLDER.finditer(line):
        if match[1] is None:
            continue
        if not match[2]:
            raise TemplateError(
                f"line {number}: {match[0][:40]!r} is not closed; write @{{name}}, or @@{{ for the two characters"
            )
        name, bar, how = match[1].partition("|")
        if bar and how != _QUOTED:
            raise TemplateError(
                f"line {number}: @{{{match[1]}}}: a value can be {_QUOTED!r} and nothing else"
            )
        yield name, bool(bar)


def _filled(number: int, line: str, values: Mapping[str, str]) -> str:
    for name, _quoted in _placeholders(number, line):
        if name not in values:
            raise TemplateError(_unknown(number, name, values, ()))

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return "@{"
        name, bar, _how = match[1].partition("|")
        text = values[name]
        if bar:
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        before = line[: match.start()]
        return text if before.strip() else text.replace("\n", f"\n{before}")

    return _PLACEHOLDER.sub(value, line)


def _unknown(number: int, name: str, known: Collection[str], loops: Collection[str]) -> str:
    loop, dot, _rest = name.partition(".")
    if dot and loop in loops:
        hint = f"; it is known between @{{each {loop}}} and @{{end}}, on lines of their own"
        return f"line {number}: @{{{name}}} stands outside its loop{hint}"
    return f"line {number}: there is no placeholder @{{{name}}}{nearest(name, known)}"
