"""Words pydantic's complaints about a plan as sentences: the value, the rule it broke, the nearest known key.

Pure: takes a model and what it refused, returns text. Where it stands in the file is ``soak.planfile``'s business.
"""

from __future__ import annotations

import ast
import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from soak.errors import nearest
from soak.plantypes import format_duration
from soak.yamlfile import KeyPath, key_path

RATE_REASON = "; past that, slots are closer together than a timer of this host can pace, so the rate would be a fiction"

_BOUNDS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}

_TYPES = {
    "float": "a number",
    "int": "a whole number",
    "string": "text",
    "bool": "true or false",
    "tuple": "a list, one '- ' a line",
    "list": "a list, one '- ' a line",
    "dict": "a mapping of keys to values",
    "model": "a mapping of keys to values",
}


def sentences(
    model: type[BaseModel], data: Mapping[str, Any], error: ValidationError
) -> Iterator[tuple[KeyPath, str]]:
    """Yield ``(key path, sentence)`` for each complaint; the sentence begins with the key path."""
    details = error.errors(include_url=False)
    places = [tuple(detail["loc"]) for detail in details]
    for detail, place in zip(details, places, strict=True):
        inside = any(len(other) > len(place) and other[: len(place)] == place for other in places)
        if detail["type"] == "too_short" and inside:
            continue  # only short because an item of it was refused, which has its own sentence
        yield place, _sentence(model, data, detail, place)


def wrong_booleans(written: object, valid: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield a sentence for each ``true``/``yes``/``on`` that became a number: pydantic reads it as 1."""
    if isinstance(written, bool) and isinstance(valid, int | float) and not isinstance(valid, bool):
        yield path, f"{key_path(path)}: {str(written).lower()} must be a number"
    elif isinstance(written, Mapping) and isinstance(valid, Mapping):
        for key, value in written.items():
            yield from wrong_booleans(value, valid.get(key), (*path, key))
    elif isinstance(written, list) and isinstance(valid, Sequence):
        for i, (a, b) in enumerate(zip(written, valid, strict=True)):
            yield from wrong_booleans(a, b, (*path, i))


@dataclass(frozen=True, slots=True)
class _Complaint:
    """One complaint of pydantic, taken apart."""

    model: type[BaseModel]
    kind: str
    place: KeyPath
    where: str
    """The key path as people write it; empty for the whole plan."""
    value: str
    """The value as it was written."""
    raw: object
    context: Mapping[str, Any]
    message: str


def _sentence(model: type[BaseModel], data: Mapping[str, Any], detail: ErrorDetails, place: KeyPath) -> str:
    raw = _written(data, place, detail["input"])
    complaint = _Complaint(
        model, detail["type"], place, key_path(place), _show(raw), raw, detail.get("ctx", {}), detail["msg"]
    )
    word = _WORDS.get(complaint.kind) or (_bound if complaint.kind in _BOUNDS else _other)
    return word(complaint)


def _unknown_key(c: _Complaint) -> str:
    key, inside = str(c.place[-1]), key_path(c.place[:-1])
    return f"unknown key {key!r}{f' in {inside}' if inside else ''}{nearest(key, keys_of(c.model, c.place[:-1]))}"


def _missing(c: _Complaint) -> str:
    return f"the key {str(c.place[-1])!r} is missing in {key_path(c.place[:-1]) or 'the plan'}"


def _own_words(c: _Complaint) -> str:
    text = str(c.context["error"])
    return f"{c.where}: {text}" if c.where else text


def _bound(c: _Complaint) -> str:
    if isinstance(c.raw, float) and not math.isfinite(c.raw):
        return _not_finite(c)
    name, rule = _BOUNDS[c.kind]
    reason = RATE_REASON if c.place == ("rate",) and c.kind == "less_than_equal" else ""
    return f"{c.where}: {c.value} {rule} {_limit(c, c.context[name])}{reason}"


def _limit(c: _Complaint, limit: float) -> str:
    """Return the limit as its value was written: ``31d`` for a duration, else a number."""
    text = c.raw.strip() if isinstance(c.raw, str) else ""
    return format_duration(limit) if limit and text[-1:].isalpha() else _number(limit)


def _not_finite(c: _Complaint) -> str:
    return f"{c.where}: {c.value} is not a finite number"


def _unknown_value(c: _Complaint) -> str:
    return f"{c.where}: {c.value} is not known{nearest(str(c.raw), _quoted(c.context['expected']))}"


def _pattern(c: _Complaint) -> str:
    return f"{c.where}: {c.value} does not match the pattern {c.context['pattern']}"


def _length(c: _Complaint) -> str:
    if c.kind == "too_long":
        return f"{c.where}: {c.value} must have at most {c.context['max_length']} items"
    return f"{c.where}: it must have at least {c.context['min_length']} item(s)"


def _too_long(c: _Complaint) -> str:
    return f"{c.where}: {c.value} must be text of at most {c.context['max_length']} characters"


def _other(c: _Complaint) -> str:
    if c.kind == "int_from_float":
        return f"{c.where}: {c.value} must be a whole number"
    if wanted := _TYPES.get(c.kind.split("_")[0]):
        return f"{c.where}: {c.value} must be {wanted}"
    return f"{c.where}: {c.value}: {c.message[:1].lower()}{c.message[1:]}"


_WORDS: Mapping[str, Callable[[_Complaint], str]] = {
    "extra_forbidden": _unknown_key,
    "missing": _missing,
    "value_error": _own_words,
    "literal_error": _unknown_value,
    "finite_number": _not_finite,
    "string_pattern_mismatch": _pattern,
    "string_too_long": _too_long,
    "too_long": _length,
    "too_short": _length,
}


def keys_of(model: type[BaseModel], path: KeyPath) -> Iterable[str]:
    """Return the keys that may stand at a key path of a model, as people write them."""
    for part in path:
        if isinstance(part, int):
            continue
        for name, field in model.model_fields.items():
            if part in {name, field.alias}:
                inner = _model_in(field.annotation)
                if inner is None:
                    return ()
                model = inner
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the model that an annotation is or holds (``tuple[Model, ...]``)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(argument) for argument in get_args(annotation))
    return next((model for model in found if model is not None), None)


def _written(data: object, place: KeyPath, default: object) -> object:
    """Return what stands in the file at a key path: validators may have changed it before the complaint."""
    for part in place:
        try:
            data = data[part]  # type: ignore[index]  # whatever cannot be indexed is caught
        except (LookupError, TypeError):
            return default
    return data


def _show(value: object) -> str:
    if value is None:
        return "nothing (an empty value)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"a mapping ({', '.join(map(str, list(value)[:4]))})"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dt.date):
        return f"the date {value.isoformat()}"
    text = repr(int(value)) if isinstance(value, float) and value.is_integer() else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def _quoted(expected: str) -> list[str]:
    """Return the names in pydantic's ``'a', 'b' or 'c'``."""
    parts = expected.replace(" or ", ", ").split(", ")
    return [str(ast.literal_eval(part)) for part in parts]
