"""From file, preset and flags to a plan; and the way back."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.faults.catalog import registry
from soak.errors import PlanError
from soak.plan import Plan
from soak.planfile import (
    PRESETS,
    Overrides,
    dump_plan,
    load_objectives,
    load_plan,
    load_saved,
    plan_schema,
    preset_text,
    template,
)
from soak.planrules import timeline_of
from soak.proxies.base import Capability
from soak.proxies.catalog import adapters
from soak.shapes import SHAPES
from soak.yamlfile import parse_yaml


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "soak.yaml"
        path.write_text(text)
        return path

    return write


def refusal(*args, **kwargs) -> str:
    with pytest.raises(PlanError) as refused:
        load_plan(*args, **kwargs)
    return str(refused.value)


def test_without_anything_it_is_the_mission():
    """24 hours, 1,000 a second, and the three series of the day."""
    plan = load_plan()
    assert (86_400.0, 1000.0) == (plan.length, plan.rate)
    assert [("reload", 300.0, 0.0), ("backend-down", 900.0, 60.0), ("cert-rotate", 1800.0, 0.0)] == [
        (s.fault, s.every, s.hold) for s in plan.chaos.series
    ]


def test_the_quick_preset_finds_a_slot_for_every_fault():
    """At least 5 reloads, 2 lost backends, 3 rotations, none skipped."""
    plan = load_plan(preset="quick")
    timeline = timeline_of(plan)
    assert 120.0 == plan.length
    assert {"reload": 5, "backend-down": 2, "cert-rotate": 3} == Counter(
        p.request.kind for p in timeline.planned
    )
    assert () == timeline.skipped


@pytest.mark.parametrize("preset", PRESETS)
def test_a_dumped_plan_loads_to_the_same_plan(preset, write):
    """What is saved with the run is the run."""
    plan = load_plan(preset=preset)
    assert plan == load_saved(write(dump_plan(plan)))


@given(seconds=st.floats(min_value=1e-6, max_value=10, allow_nan=False))
def test_a_dump_never_rounds_a_duration(seconds):
    """Spelled out where the spelling is exact, else the number."""
    plan = Plan.model_validate({"traffic": {"max_lag": seconds}})
    assert plan == Plan.model_validate(parse_yaml(dump_plan(plan), "x").data)


def test_the_template_is_the_day(write):
    """The commented file says what the defaults are, truly."""
    assert load_plan(preset="day") == load_plan(write(template()))


def test_a_preset_has_every_shape():
    """In one run, with nothing broken; but for the byte pipe, which not every proxy has."""
    plan = load_plan(preset="shapes")
    assert [name for name in SHAPES if name != "l4"] == [c.shape for c in plan.traffic.classes]
    assert () == plan.chaos.series


def test_a_preset_leaves_out_what_the_proxy_cannot_and_says_so(monkeypatch):
    """The series and the classes; what is left keeps its proportions, and what a flag asks for is refused."""

    class Dull:
        name = "dull"
        capabilities = frozenset({Capability.CERT_ROTATE})

    monkeypatch.setattr("soak.abilities.adapter_of", lambda _plan: Dull())
    quick = load_plan(preset="quick")
    assert ["backend-down", "cert-rotate"] == [one.fault for one in quick.chaos.series]
    (told,) = quick.left_out
    assert (
        told == "reload every 20s is left out: nginx cannot marker (not declared) and reload (not declared)"
    )
    shapes = load_plan(preset="shapes")
    names = [one.name for one in shapes.traffic.classes]
    assert "h2" not in names
    assert "websocket" not in names
    left_out = [text.partition(" is left out")[0] for text in shapes.left_out]
    assert ["traffic class h2", "traffic class websocket"] == left_out
    single, tls_new = (next(c for c in shapes.traffic.classes if c.name == n) for n in ("single", "tls-new"))
    assert single.share / tls_new.share == pytest.approx(10 / 3)
    with pytest.raises(PlanError, match=r"^--every reload=1m: .* needs marker, reload, and nginx cannot"):
        load_plan(preset="quick", overrides=Overrides(every=("reload=1m",)))


def test_a_file_is_the_users_and_nothing_of_it_is_left_out(write):
    """What cannot be done is refused, with its line."""
    text = preset_text("bouine").replace("fault: backend-hang", "fault: reload")
    with pytest.raises(
        PlanError, match=r"yaml:12: chaos.series\[1\].fault: reload needs marker, reload, and bouine"
    ):
        load_plan(write(text.replace("hold: 20s", "hold: 0s")))


def test_flags_override_the_file(write):
    """Each of them, and nothing else."""
    path = write("rate: 5\nlength: 1h\nseed: 3\nlab: {backends: 4}\n")
    plan = load_plan(path, overrides=Overrides(600.0, "--minutes", 50.0, 9, "nginx", "local"))
    assert (600.0, 50.0, 9, "nginx", "local", 4) == (
        plan.length,
        plan.rate,
        plan.seed,
        plan.proxy.kind,
        plan.lab.kind,
        plan.lab.backends,
    )
    assert () == plan.chaos.series


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (
            ("reload=1m",),
            [("reload", 60.0, 0.0), ("backend-down", 900.0, 60.0), ("cert-rotate", 1800.0, 0.0)],
        ),
        (
            ("backend-down=1m", "noop=2m:7s"),
            [
                ("reload", 300.0, 0.0),
                ("backend-down", 60.0, 30.0),
                ("cert-rotate", 1800.0, 0.0),
                ("noop", 120.0, 7.0),
            ],
        ),
        (
            ("reload=1m", "reload=2m"),
            [("reload", 120.0, 0.0), ("backend-down", 900.0, 60.0), ("cert-rotate", 1800.0, 0.0)],
        ),
    ],
)
def test_every_replaces_the_series_of_its_fault_or_adds_one(every, expected):
    """The last word counts; a missing hold is filled."""
    plan = load_plan(overrides=Overrides(every=every))
    assert expected == [(s.fault, s.every, s.hold) for s in plan.chaos.series]


def test_every_replaces_all_series_of_its_fault(write):
    """Two reload series in the file become the one of the flag."""
    path = write(
        "chaos: {series: [{fault: reload, every: 1m}, {fault: noop, every: 1m}, {fault: reload, every: 7m}]}"
    )
    plan = load_plan(path, overrides=Overrides(every=("reload=3m",)))
    assert [("reload", 180.0), ("noop", 60.0)] == [(s.fault, s.every) for s in plan.chaos.series]


@pytest.mark.parametrize("text", ["reload", "=5m", "reload=", ""])
def test_every_must_be_spelled_as_told(text):
    """The form is in the sentence."""
    assert f"--every: {text!r} is not FAULT=PERIOD[:HOLD]" in refusal(overrides=Overrides(every=(text,)))


@pytest.mark.parametrize(
    ("overrides", "start"),
    [
        (Overrides(rate=-5), "--rate: rate: -5 must be more than 0"),
        (Overrides(length_s=0.0, length_flag="--minutes"), "--minutes: length: 0 must be more than 0"),
        (Overrides(proxy="ngin"), "--proxy: proxy.kind: 'ngin' is not known; did you mean 'nginx'?"),
        (Overrides(lab="podmann"), "--lab: lab.kind: 'podmann' is not known"),
        (
            Overrides(every=("reload=soon",)),
            "--every reload=soon: chaos.series[0].every: 'soon' is not a duration",
        ),
        (
            Overrides(every=("bakend-down=5m",)),
            "--every bakend-down=5m: chaos.series[3].fault: there is no fault",
        ),
    ],
)
def test_a_bad_flag_is_named_as_the_place(overrides, start):
    """Not the file: the user looks at the command line."""
    assert refusal(overrides=overrides).startswith(start)


@pytest.mark.parametrize("text", ["lab: 3", "chaos: 3", "chaos: {series: 3}"])
def test_flags_over_a_broken_file_leave_the_file_to_be_refused(write, text):
    """A flag must neither hide the mistake nor stumble over it."""
    path = write(text)
    overrides = Overrides(lab="local", every=("reload=5m",))
    assert refusal(path, overrides=overrides).startswith(f"{path}:1: ")


def test_each_problem_is_a_line_with_its_own_place(write):
    """Nobody likes to mend one mistake a try."""
    path = write("rate: -1\nseed: x\nlab:\n  backends: 0\n")
    lines = refusal(path).splitlines()
    assert [f"{path}:1: rate", f"{path}:2: seed", f"{path}:4: lab.backends"] == [
        ": ".join(line.split(": ")[:2]) for line in lines
    ]


def test_a_broken_rule_has_its_line_too(write):
    """Not only what pydantic finds."""
    path = write("chaos:\n  series:\n    - fault: relaod\n      every: 5m\n")
    assert f"{path}:3: chaos.series[0].fault: there is no fault 'relaod'; did you mean 'reload'?" == refusal(
        path
    )


def test_yes_is_refused_as_a_number(write):
    """YAML makes it true, pydantic would make it 1."""
    assert "rate: true must be a number" in refusal(write("rate: yes"))


def test_file_and_preset_exclude_each_other(write):
    """Neither silently wins."""
    assert "give one of them" in refusal(write("rate: 5"), "quick")


def test_an_unknown_preset_is_named_with_the_known():
    """All of them: they are few."""
    assert "--preset: there is no preset 'dayy'; did you mean 'day'?" == refusal(preset="dayy")


def test_the_schema_knows_faults_and_proxies_and_the_spelling_of_keys():
    """So that an editor completes all three."""
    schema = plan_schema()
    assert sorted(registry()) == schema["$defs"]["FaultSeriesPlan"]["properties"]["fault"]["enum"]
    assert sorted(adapters()) == schema["$defs"]["ProxyPlan"]["properties"]["kind"]["enum"]
    assert "self" in schema["properties"]
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("text", ["success: 0.5\n", "rate: 7\nobjectives:\n  success: 0.5\n"])
def test_objectives_are_read_alone_or_from_a_plan(write, text):
    """A strict copy of a plan is enough to judge by."""
    assert 0.5 == load_objectives(write(text)).success


def test_bad_objectives_have_their_line(write):
    """Also inside a plan."""
    path = write("rate: 7\nobjectives:\n  sucess: 0.5\n")
    with pytest.raises(PlanError, match=rf"^{path}:3: unknown key 'sucess'; did you mean 'success'\?$"):
        load_objectives(path)


def test_flags_name_the_images_of_a_docker_lab():
    """Beside the plan's own; without the lab they are refused."""
    plan = load_plan(preset="quick", overrides=Overrides(lab="docker", proxy_image="a:1", origin_image="b:2"))
    assert plan.lab.docker is not None
    assert ("a:1", "b:2") == (plan.lab.docker.proxy_image, plan.lab.docker.origin_image)
    with pytest.raises(PlanError, match="the section 'docker' is for kind docker"):
        load_plan(preset="quick", overrides=Overrides(proxy_image="a:1"))
