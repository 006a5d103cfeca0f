"""From YAML, presets and flags to a valid ``Plan``; every refusal is one sentence a person can act on.

Owns merging (preset or file, then flags), the wording of errors (file and line, key path, value, rule, nearest known
name), the checks that need the catalog of faults, and the way back: the plan as run, its JSON Schema, the template.
What a plan may say is ``soak.plan``; what it means is everybody else's business.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from soak.abilities import misfits
from soak.errors import PlanError, nearest
from soak.plan import ObjectivesPlan, Plan, parse_duration
from soak.planerrors import sentences, wrong_booleans
from soak.planrules import broken_rules, fill_holds, known_faults
from soak.proxies.catalog import adapters
from soak.yamlfile import Document, KeyPath, parse_yaml, printable, read_yaml

PRESETS = ("day", "quick", "shapes", "command", "reversedock", "raddex", "bouine")
DEFAULT_PRESET = "day"

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Overrides:
    """What flags say over the plan; None leaves the plan's value. Durations in seconds."""

    length_s: float | None = None
    length_flag: str = "--hours"
    """The flag that gave the length, for messages."""
    rate: float | None = None
    seed: int | None = None
    proxy: str | None = None
    lab: str | None = None
    every: tuple[str, ...] = ()
    """``FAULT=PERIOD[:HOLD]``: adds a series, or replaces all series of that fault."""
    proxy_image: str | None = None
    origin_image: str | None = None


def load_plan(
    path: Path | None = None, preset: str | None = None, overrides: Overrides | None = None
) -> Plan:
    """Return the plan of a file or a preset (default: ``day``) with flags applied over it.

    Raises ``PlanError``: one sentence, or one line for each thing that is wrong.
    """
    if path is not None and preset is not None:
        raise PlanError(
            f"both the plan {str(path)!r} and --preset {preset} were given; give one of them, flags adjust either"
        )
    document = read_yaml(path) if path is not None else _preset(DEFAULT_PRESET if preset is None else preset)
    wanted = overrides or Overrides()
    if path is None:
        _fit(document, wanted)
    flags = _apply(document.data, wanted)
    plan = _validate(Plan, document, flags)
    if problems := list(broken_rules(plan)):
        raise _refusal(document, flags, problems)
    return fill_holds(plan)


def load_objectives(path: Path) -> ObjectivesPlan:
    """Return the objectives of a file: a mapping of limits, alone or under the key ``objectives`` of a plan."""
    document = read_yaml(path)
    inner = document.data.get("objectives")
    if isinstance(inner, dict):
        lines = {p[1:]: n for p, n in document.lines.items() if p[:1] == ("objectives",) and len(p) > 1}
        document = Document(document.name, inner, lines)
    return _validate(ObjectivesPlan, document, {})


def dump_plan(plan: Plan) -> str:
    """Return the plan as YAML with everything spelled out; loading it again gives an equal plan."""
    spelled = plan.model_dump(mode="json", by_alias=True)
    exact = plan.model_dump(mode="python", by_alias=True)
    text: str = yaml.safe_dump(_exact(spelled, exact), sort_keys=False, allow_unicode=True, width=110)
    return text


def load_saved(path: Path) -> Plan:
    """Return the plan that a run saved."""
    return _validate(Plan, read_yaml(path), {})


def plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan, with the names of faults and proxies, for completion in editors."""
    schema = Plan.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "soak plan"
    schema["$defs"]["FaultSeriesPlan"]["properties"]["fault"]["enum"] = sorted(known_faults())
    schema["$defs"]["ProxyPlan"]["properties"]["kind"]["enum"] = sorted(adapters())
    return schema


def template() -> str:
    """Return the commented plan that ``soak init`` writes. It is the 24 h run."""
    return _resource("template.yaml")


def _resource(name: str) -> str:
    return Path(__file__).with_name("presets").joinpath(name).read_text(encoding="utf-8")


def preset_text(name: str) -> str:
    """Return a preset as it is written. Raises ``PlanError`` naming the nearest known one."""
    if name not in PRESETS:
        raise PlanError(f"--preset: there is no preset {name!r}{nearest(name, PRESETS)}")
    return _resource(f"{name}.yaml")


def _preset(name: str) -> Document:
    return parse_yaml(preset_text(name), f"preset {name}")


def _fit(document: Document, wanted: Overrides) -> None:
    """Leave out of a preset what its proxy and lab cannot do, and say so in ``left_out``. What flags ask for stays."""
    tried = Document(document.name, copy.deepcopy(document.data), document.lines)
    plan = _validate(Plan, tried, _apply(tried.data, replace(wanted, every=())))
    if plan.proxy.kind not in adapters():
        return  # the rules of the plan say so, with the nearest
    found = misfits(plan, known_faults())
    for i in sorted(found.series, reverse=True):
        del document.data["chaos"]["series"][i]
    if found.classes:
        classes = [one for i, one in enumerate(plan.traffic.classes) if i not in found.classes]
        whole = sum(one.share for one in classes)
        rows = [one.model_dump(mode="json") | {"share": one.share / whole} for one in classes]
        document.data.setdefault("traffic", {})["classes"] = rows
    if told := [*found.series.values(), *found.classes.values()]:
        document.data["left_out"] = told


def _exact(spelled: object, exact: object) -> object:
    """Keep the number where the spelling of a duration would round it."""
    if isinstance(spelled, dict) and isinstance(exact, Mapping):
        return {key: _exact(value, exact[key]) for key, value in spelled.items()}
    if isinstance(spelled, list) and isinstance(exact, list | tuple):
        return [_exact(a, b) for a, b in zip(spelled, exact, strict=True)]
    if isinstance(spelled, str) and isinstance(exact, float):
        try:
            return spelled if parse_duration(spelled) == exact else exact
        except ValueError:
            return exact
    return spelled


def _apply(data: dict[str, Any], flags: Overrides) -> dict[KeyPath, str]:
    """Write the flags into the data; return which flag set which key path, for messages."""
    origin: dict[KeyPath, str] = {}
    for value, flag, path in (
        (flags.length_s, flags.length_flag, ("length",)),
        (flags.rate, "--rate", ("rate",)),
        (flags.seed, "--seed", ("seed",)),
        (flags.proxy, "--proxy", ("proxy", "kind")),
        (flags.lab, "--lab", ("lab", "kind")),
        (flags.proxy_image, "--proxy-image", ("lab", "docker", "proxy_image")),
        (flags.origin_image, "--origin-image", ("lab", "docker", "origin_image")),
    ):
        if value is None:
            continue
        inner = data
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
            if not isinstance(inner, dict):
                break  # validation refuses it with its line
        else:
            inner[path[-1]] = value
            origin[path] = flag
    for text in flags.every:
        _apply_every(data, text, origin)
    return origin


def _apply_every(data: dict[str, Any], text: str, origin: dict[KeyPath, str]) -> None:
    fault, equals, rest = text.partition("=")
    if not equals or not fault or not rest:
        raise PlanError(f"--every: {text!r} is not FAULT=PERIOD[:HOLD]; write it like backend-down=15m:60s")
    every, colon, hold = rest.partition(":")
    if colon and _is_zero(hold):
        raise PlanError(
            f"--every: the hold {hold!r} of {text!r} must be longer than 0; leave it out for the default"
        )
    series = {"fault": fault.strip(), "every": every.strip()} | ({"hold": hold.strip()} if colon else {})
    chaos = data.setdefault("chaos", {})
    rows = chaos.setdefault("series", []) if isinstance(chaos, dict) else None
    if not isinstance(rows, list):
        return  # validation refuses it with its line
    same = [i for i, row in enumerate(rows) if isinstance(row, dict) and row.get("fault") == series["fault"]]
    at = same[0] if same else len(rows)
    rows[at : at + 1] = [series]
    for i in reversed(same[1:]):
        del rows[i]
    origin["chaos", "series", at] = f"--every {printable(text)}"


def _is_zero(duration: str) -> bool:
    """Whether this is a duration of nothing, which a series would take for the fault's default."""
    try:
        return parse_duration(duration) == 0
    except ValueError:
        return False  # validation refuses it in its own words


def _validate(model: type[M], document: Document, flags: Mapping[KeyPath, str]) -> M:
    try:
        valid = model.model_validate(document.data)
    except ValidationError as error:
        raise _refusal(document, flags, sentences(model, document.data, error)) from error
    if wrong := list(wrong_booleans(document.data, valid.model_dump(by_alias=True))):
        raise _refusal(document, flags, wrong)
    return valid


def _refusal(
    document: Document, flags: Mapping[KeyPath, str], problems: Iterable[tuple[KeyPath, str]]
) -> PlanError:
    """Return the error that lists every problem on a line of its own, each with the place it comes from."""
    return PlanError("\n".join(f"{_place(document, flags, path)}: {text}" for path, text in problems))


def _place(document: Document, flags: Mapping[KeyPath, str], path: KeyPath) -> str:
    """Return the flag that set a value or a parent of it, else file and line."""
    for length in range(len(path), 0, -1):
        if flag := flags.get(path[:length]):
            return flag
    return document.place(path)
