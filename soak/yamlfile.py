"""Reads a YAML file that a person wrote, and remembers on which line each value stands.

Owns what is refused before anything looks at the meaning: files too big or too deep, pipes that nobody writes to, aliases (a
few lines of them can expand to gigabytes), duplicate keys (YAML loaders keep the last in silence), keys that are not text,
numbers that are not finite, and those that YAML reads as another number than people do. Every refusal is one sentence with
file and line.
"""

from __future__ import annotations

import errno
import math
import os
import re
import select
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import yaml

from soak.errors import PlanError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 24
READ_TIMEOUT_S = 10.0
"""How long a pipe may keep us waiting for its end."""

_SURPRISING = re.compile(r"[-+]?(0[0-7_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)")
"""YAML 1.1: 0777 is octal, and 1:30 counts sixties."""

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """The content of one file: its values, and the line (from 1) of each of them by key path."""

    name: str
    data: dict[str, Any]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def place(self, path: KeyPath) -> str:
        """Return ``file:line`` of the value at ``path``, or of its closest parent that stands in the file."""
        for length in range(len(path), 0, -1):
            if line := self.lines.get(path[:length]):
                return f"{self.name}:{line}"
        return self.name


def key_path(path: KeyPath) -> str:
    """Return a key path as people write it: ``chaos.series[1].every``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{printable(part)}" if text else printable(part)
    return text


def read_yaml(path: Path) -> Document:
    """Read one file. Raises ``PlanError`` when it cannot be read or is refused."""
    name = printable(str(path))
    try:
        raw = _read(path)
    except OSError as error:
        raise PlanError(f"cannot read {str(path)!r}: {error.strerror}; {_way_out(path, error)}") from error
    if len(raw) > MAX_BYTES:
        raise PlanError(f"{name}: the file is larger than {MAX_BYTES // 1024} KiB; a plan is a page or two")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PlanError(f"{name}: byte {error.start} is not UTF-8; save the file as UTF-8 text") from error
    return parse_yaml(text, name)


def printable(text: str) -> str:
    """Return the text, between quotes and escaped when it would break the line of a message."""
    return text if text.isprintable() else repr(text)


def _read(path: Path) -> bytes:
    """Return the content, at most a byte more than a plan may have. A pipe that stays silent must not hang us."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        poll, end_s, raw = select.poll(), monotonic() + READ_TIMEOUT_S, b""
        poll.register(fd, select.POLLIN)
        while len(raw) <= MAX_BYTES:
            if not poll.poll(max(0.0, end_s - monotonic()) * 1000):
                raise OSError(errno.ETIMEDOUT, f"nothing came out of it for {READ_TIMEOUT_S:g} s")
            if not (chunk := os.read(fd, MAX_BYTES + 1 - len(raw))):
                break
            raw += chunk
        return raw
    finally:
        os.close(fd)


def _way_out(path: Path, error: OSError) -> str:
    """Return what to do about a file that cannot be read."""
    match error.errno:
        case errno.ENOENT:
            return f"'soak init {printable(path.name) or 'soak.yaml'}' writes a commented plan"
        case errno.EISDIR:
            return "name a file in it"
        case errno.EACCES:
            return "make it readable for you, or name another file"
    return "name another file"


def parse_yaml(text: str, name: str) -> Document:
    """Parse the text of a file called ``name`` (for messages). Raises ``PlanError``."""
    try:
        _refuse_dangers(text, name)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None or (isinstance(node, yaml.ScalarNode) and node.value == ""):
            raise PlanError(f"{name}: the file is empty; 'soak init' writes a commented plan")
        if not isinstance(node, yaml.MappingNode):
            raise PlanError(
                f"{name}:{_line(node)}: a plan is a mapping of keys to values, like 'rate: 1000'; "
                f"this file holds {_what(node)}"
            )
        lines: dict[KeyPath, int] = {}
        loader = yaml.SafeLoader("")
        try:
            data = _build(loader, node, (), lines, name)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise PlanError(_syntax(error, text, name)) from error
    assert isinstance(data, dict)
    return Document(name, data, lines)


def _refuse_dangers(text: str, name: str) -> None:
    """Refuse aliases and deep nesting on the stream of events, before any tree is built."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise PlanError(
                f"{name}:{_mark(event.start_mark)}: the alias '*{event.anchor}' is refused; write the value out"
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise PlanError(
                    f"{name}:{_mark(event.start_mark)}: nested deeper than {MAX_DEPTH} levels; no plan needs that"
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _build(
    loader: yaml.SafeLoader, node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], name: str
) -> object:
    """Turn a node into plain values, noting the line of each."""
    lines.setdefault(path, _line(node))
    if isinstance(node, yaml.SequenceNode):
        return [_build(loader, child, (*path, i), lines, name) for i, child in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = _key(loader, key_node, path, name)
            here = (*path, key)
            if key in mapping:
                raise PlanError(
                    f"{name}:{_line(key_node)}: the key '{key_path(here)}' stands twice "
                    f"(first on line {lines[here]}); keep one"
                )
            lines[here] = _line(key_node)
            mapping[key] = _build(loader, value_node, here, lines, name)
        return mapping
    return _scalar(loader, node, f"{name}:{_line(node)}: {key_path(path)}")


def _scalar(loader: yaml.SafeLoader, node: yaml.Node, place: str) -> object:
    """Return a single value. PyYAML checks only by its patterns: 2026-13-45 and ``!!int abc`` make its constructors fail."""
    shown = _short(str(node.value))
    try:
        value: object = loader.construct_object(node, deep=True)
    except (ValueError, ArithmeticError, LookupError, AttributeError) as error:
        kind = str(node.tag).rpartition(":")[2]
        what = _KINDS.get(kind, kind)
        raise PlanError(f"{place}: {shown!r} is no {what}; put it between quotes if it is text") from error
    if isinstance(value, float) and not math.isfinite(value):
        raise PlanError(f"{place}: {node.value} is not a finite number")
    if isinstance(value, str) and "\0" in value:  # no path, argument or configuration may hold one
        raise PlanError(f"{place}: {shown!r} holds a NUL character; remove it")
    if isinstance(value, int | float) and _SURPRISING.fullmatch(str(node.value)):
        raise PlanError(
            f"{place}: YAML reads {shown} as {value}; write {value} if you mean that, durations like 1m30s"
        )
    return value


_KINDS = {"int": "whole number that can be", "float": "number", "timestamp": "date that exists"}


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _key(loader: yaml.SafeLoader, node: yaml.Node, path: KeyPath, name: str) -> str:
    if isinstance(node, yaml.ScalarNode):
        key = _scalar(loader, node, f"{name}:{_line(node)}: a key")
        if isinstance(key, str):
            return key
    spelled = node.value if isinstance(node, yaml.ScalarNode) else _what(node)
    where = key_path(path)
    raise PlanError(
        f"{name}:{_line(node)}: the key {spelled!r}{f' in {where!r}' if where else ''} is not text; keys are words"
    )


def _line(node: yaml.Node) -> int:
    return _mark(node.start_mark)


def _mark(mark: object) -> int:
    """Return the line, from 1, of a mark of PyYAML; its stubs allow None, its parser always sets one."""
    return int(getattr(mark, "line", 0)) + 1


def _what(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "a mapping" if isinstance(node, yaml.MappingNode) else f"just {str(node.value)[:60]!r}"


def _syntax(error: yaml.YAMLError, text: str, name: str) -> str:
    """Word a syntax error with its line and the text that stands there."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    if str(problem).startswith("but "):  # the problem ends a sentence that the context began
        problem = f"{getattr(error, 'context', None)}, {problem}"
    if mark is None:
        return f"{name}: not valid YAML: {problem}"
    lines = text.splitlines()
    near = lines[mark.line].strip()[:80] if mark.line < len(lines) else "the end of the file"
    return f"{name}:{mark.line + 1}: not valid YAML: {problem}, at {near!r}"
