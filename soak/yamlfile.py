"""Reads a YAML file that a person wrote, and remembers on which line each value stands.

Owns what is refused before anything looks at the meaning: files too big or too deep, aliases (a few lines of them can
expand to gigabytes), duplicate keys (YAML loaders keep the last in silence), keys that are not text, numbers that are not
finite. Every refusal is one sentence with file and line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from soak.errors import PlanError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 24

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
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_yaml(path: Path) -> Document:
    """Read one file. Raises ``PlanError`` when it cannot be read or is refused."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PlanError(
            f"cannot read {str(path)!r}: {error.strerror}; 'soak init {path.name or 'soak.yaml'}' writes a commented plan"
        ) from error
    if len(raw) > MAX_BYTES:
        raise PlanError(f"{path}: the file is larger than {MAX_BYTES // 1024} KiB; a plan is a page or two")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8 text") from error
    return parse_yaml(text, str(path))


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
    value: object = loader.construct_object(node, deep=True)
    if isinstance(value, float) and not math.isfinite(value):
        raise PlanError(f"{name}:{_line(node)}: {key_path(path)}: {node.value} is not a finite number")
    return value


def _key(loader: yaml.SafeLoader, node: yaml.Node, path: KeyPath, name: str) -> str:
    if isinstance(node, yaml.ScalarNode):
        key = loader.construct_object(node)
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
