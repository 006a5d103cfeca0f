"""Commands before a run: what they print, and that they run nothing."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from chaos.faults.catalog import registry
from soak.planfile import load_plan, preset_text, template


def test_faults_are_listed_with_what_they_do(soak):
    """Every one in the catalog, on a line of its own; the last says what the proxy can."""
    result = soak("faults")
    assert 0 == result.exit_code
    lines = result.stdout.splitlines()
    able, *partly = [line for line in lines if line.startswith("nginx can ")]
    assert ["metrics", "tcp"] == [line.split()[2].rstrip(",") for line in partly]
    assert {"cert_rotate", "h2", "marker", "reload", "websocket"} <= set(able[10:].split(", "))
    assert {line.split()[0] for line in lines} >= set(registry())
    (down,) = [line for line in lines if line.startswith("backend-down")]
    for words in ("b1, b2, b3", "30s", "yes", registry()["backend-down"].summary):
        assert words in down


def test_names_are_whole_in_a_narrow_terminal(soak, monkeypatch):
    """They are for copying."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = soak("faults").stdout.splitlines()
    assert {line.split()[0] for line in lines if line.strip()} >= set(registry())


def test_faults_as_json_say_what_is_supported(soak):
    """And what is lacking, and why."""
    said = json.loads(soak("faults", "--preset", "bouine", "--json").stdout)
    rows = {row["name"]: row for row in said["faults"]}
    assert ("bouine", "local") == (said["proxy"], said["lab"])
    assert rows["backend-down"]["supported"]
    assert (False, ["cert_rotate"]) == (rows["cert-rotate"]["supported"], rows["cert-rotate"]["lacking"])
    (rotate,) = [one for one in said["abilities"] if one["name"] == "cert_rotate"]
    assert (False, "it reads its certificate once, at start") == (rotate["able"], rotate["note"])
    words = soak("faults", "--preset", "bouine").stdout
    assert "no: lacks cert_rotate" in words
    assert "\nbouine cannot reload: it reads its configuration once, at start\n" in words


def test_a_plan_and_a_check_say_what_the_proxy_cannot_and_that_nobody_tried_it(soak):
    """Before hour zero; a binary that is missing is a sentence."""
    for name in ("bouine", "raddex", "reversedock"):
        shown = soak("plan", "--preset", name)
        assert 0 == shown.exit_code
        assert "\nnobody has run this plan yet: " in shown.stdout
        said = json.loads(soak("plan", "--preset", name, "--json").stdout)
        assert ["nobody has run this plan yet"] == [text.partition(":")[0] for text in said["warnings"]]
        assert {"proxy", "lab"} == {one["who"] for one in said["abilities"]}
        checked = soak("check", "--preset", name, "--json")
        found = {one["name"]: one for one in json.loads(checked.stdout)}
        assert (2, "warn") == (checked.exit_code, found["untried"]["level"])
        words = f"no {name} was found in this Python's packages nor on PATH; install it, or set proxy.binary to its path"
        assert ("block", words) == (found[name]["level"], found[name]["text"])
        assert f"{name} can" in found["abilities"]["text"]
    assert (
        "bouine cannot reload: it reads its configuration once, at start"
        in soak("plan", "--preset", "bouine").stdout
    )


def test_kinds_of_reload_are_listed(soak):
    """The usual one, and how to ask for another; as JSON beside what each fault takes."""
    told = soak("faults", "--proxy", "envoy").stdout.splitlines()
    assert "a reload of envoy is of kind routing, unless params or --param say kind=full" in told
    assert not any("of kind" in line for line in soak("faults", "--proxy", "caddy").stdout.splitlines())
    found = json.loads(soak("faults", "--proxy", "haproxy", "--json").stdout)
    assert ["full", "routing"] == found["reload_kinds"]
    takes = {row["name"]: list(row["params"]) for row in found["faults"]}
    assert (["kind"], []) == (takes["reload"], takes["noop"])


def test_faults_of_an_unknown_proxy_are_refused(soak):
    """With the nearest."""
    result = soak("faults", "--proxy", "ngnix")
    assert (2, "soak: --proxy: proxy.kind: 'ngnix' is not known; did you mean 'nginx'?\n") == (
        result.exit_code,
        result.stderr,
    )


def test_a_plan_shows_its_whole_timeline(soak):
    """Every instant, what was moved, and the counts."""
    result = soak("plan", "--preset", "quick")
    assert 0 == result.exit_code
    assert "1,000 req/s for 2m (120,000 requests)" in result.stdout
    assert "tls-reused  85%    850" in result.stdout
    assert "00:00:20  reload" in result.stdout
    assert "2 backend-down, 3 cert-rotate, 5 reload · 0 skipped" in result.stdout


def test_skipped_faults_are_listed_with_their_reason(soak):
    """Never silence."""
    result = soak("plan", "--preset", "quick", "--every", "backend-hang=40s:25s", "--minutes", "1")
    assert "  skipped backend-hang due at 00:00:40: too late: it could not end by 50 s" in result.stdout


def test_a_plan_without_faults_says_so(soak):
    """An empty table would look like a mistake."""
    Path("p.yaml").write_text("length: 90s\nrate: 0.5\n")
    result = soak("plan", "p.yaml")
    assert "plan: 0.5 req/s for 1m30s (45 requests)" in result.stdout
    assert "no faults · 0 skipped" in result.stdout


def test_a_plan_shows_what_each_shape_asks_for_and_over_what(soak):
    """Hosts, objects, streams and sockets, not only a path."""
    result = soak("plan", "--preset", "shapes")
    assert 0 == result.exit_code
    rows = {line.split()[0]: " ".join(line.split()) for line in result.stdout.splitlines() if "/" in line}
    for name, words in (
        ("many-routes", "GET /bytes/1024 of 1,000 hosts reuse"),
        ("cache-mixed", "GET /cache, 2,000 objects reuse"),
        ("h2", "GET /bytes/1024 TLS, h2, 16 x 16"),
        ("websocket", "GET /ws TLS, 100 websockets"),
        ("tls-resumed", "GET /bytes/1024 TLS, resume"),
    ):
        assert rows[name].endswith(words)


def test_instants_below_a_second_are_shown(soak):
    """Jitter makes them."""
    Path("p.yaml").write_text(
        "length: 10m\nseed: 3\nchaos: {series: [{fault: reload, every: 1m, first: 4.5s}, {fault: noop, every: 5m}]}"
    )
    result = soak("plan", "p.yaml")
    assert "00:00:04.5  reload" in result.stdout
    assert "noop" in result.stdout


def test_the_same_seed_gives_the_same_timeline(soak):
    """And another one another."""
    Path("p.yaml").write_text("length: 1h\nchaos: {series: [{fault: reload, every: 5m, jitter: 1m}]}")
    first, again, other = (soak("plan", "p.yaml", "--json", "--seed", s).stdout for s in ("1", "1", "2"))
    assert first == again
    assert json.loads(first)["timeline"] != json.loads(other)["timeline"]


def test_the_schema_is_json(soak):
    """With the faults by name; no plan is read for it."""
    schema = json.loads(soak("plan", "gone.yaml", "--schema").stdout)
    assert "soak plan" == schema["title"]


def test_check_prints_every_look(soak, home):
    """All fine or warned of: exit 0; nothing is created."""
    result = soak("check", "--preset", "quick")
    assert 0 == result.exit_code, result.stdout
    for look in (
        "platform",
        "nginx",
        "open files",
        "ports",
        "disk",
        "memory",
        "processors",
        "clock",
        "leftovers",
    ):
        assert look in result.stdout
    assert not home.exists()
    assert "nginx" == json.loads(soak("check", "--json").stdout)[1]["name"]


def test_check_as_json_blocks_with_its_exit_code(soak):
    """The findings are the answer; stderr is silent."""
    Path("p.yaml").write_text("proxy: {binary: /nonexistent}")
    result = soak("check", "p.yaml", "--json")
    assert (2, "") == (result.exit_code, result.stderr)
    assert "block" == json.loads(result.stdout)[1]["level"]


def test_init_writes_a_plan_that_loads(soak):
    """soak.yaml, or what one says."""
    result = soak("init")
    assert (0, "") == (result.exit_code, result.stdout)
    assert "wrote soak.yaml; 'soak plan soak.yaml' shows its timeline" in result.stderr
    assert load_plan() == load_plan(Path("soak.yaml"))
    assert 0 == soak("init", "other.yaml").exit_code
    assert template() == Path("other.yaml").read_text()


def test_init_writes_a_preset_to_start_from(soak):
    """With its comments; a plan of one's own proxy begins there."""
    assert 0 == soak("init", "mine.yaml", "--preset", "command").exit_code
    assert preset_text("command") == Path("mine.yaml").read_text()
    assert load_plan(preset="command") == load_plan(Path("mine.yaml"))
    result = soak("init", "other.yaml", "--preset", "comand")
    assert (2, "soak: --preset: there is no preset 'comand'; did you mean 'command'?\n") == (
        result.exit_code,
        result.stderr,
    )
    assert not Path("other.yaml").exists()


def test_init_never_overwrites_unasked(soak):
    """Work may be in it."""
    Path("soak.yaml").write_text("mine")
    result = soak("init")
    assert (2, "soak: 'soak.yaml' exists already; choose another name, or --force to overwrite it\n") == (
        result.exit_code,
        result.stderr,
    )
    assert "mine" == Path("soak.yaml").read_text()
    assert 0 == soak("init", "--force").exit_code
    assert template() == Path("soak.yaml").read_text()


@pytest.mark.parametrize("place", ["/proc/soak.yaml", "gone/soak.yaml"])
def test_init_says_why_it_cannot_write(soak, place):
    """In the system's words."""
    result = soak("init", place)
    assert 2 == result.exit_code
    assert (
        f"soak: cannot write '{place}': No such file or directory; choose a file in a directory that exists and can be written\n"
    ) == result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_init_on_a_full_disk_leaves_neither_half_a_file_nor_takes_the_old_one(soak, tmp_path):
    """On a real file system with hardly a byte left."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"this host forbids mounting: {mounted.stderr.decode().strip()}")
    try:
        (place / "old.yaml").write_text("mine")
        (place / "filler").write_bytes(b"x" * 4096)
        for args in (["new.yaml"], ["old.yaml", "--force"]):
            result = soak("init", str(place / args[0]), *args[1:])
            assert (2, "") == (result.exit_code, result.stdout)
            assert f"soak: cannot write '{place / args[0]}': No space left on device; choose" in result.stderr
        assert ["filler", "old.yaml"] == sorted(p.name for p in place.iterdir())
        assert "mine" == (place / "old.yaml").read_text()
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_init_by_force_keeps_a_symlink_and_writes_to_a_device(soak):
    """What stands at the end of the link is replaced, what cannot be replaced is written to."""
    Path("real.yaml").write_text("mine")
    Path("link.yaml").symlink_to("real.yaml")
    assert 0 == soak("init", "link.yaml", "--force").exit_code
    assert Path("link.yaml").is_symlink()
    assert template() == Path("real.yaml").read_text()
    assert 0 == soak("init", "/dev/null", "--force").exit_code
    assert Path("/dev/null").is_char_device()


def test_a_series_that_never_comes_is_named(soak):
    """It is in the plan, so somebody expects it."""
    Path("p.yaml").write_text(
        "length: 2m\nchaos:\n  series:\n    - {fault: reload, every: 5m}\n"
        "    - {fault: cert-rotate, every: 1m, first: 9d}\n    - {fault: noop, every: 1m, first: 10s}\n"
    )
    lines = soak("plan", "p.yaml").stdout.splitlines()
    assert [
        "never reload: it is first due at 5m, and the run ends at 2m",
        "never cert-rotate: it is first due at 9d, and the run ends at 2m",
    ] == [line.strip() for line in lines if line.startswith("  never")]
