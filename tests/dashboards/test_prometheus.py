"""What is shipped for Prometheus."""

import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_prometheus_configuration_is_valid(require):
    """promtool finds nothing wrong with the scrape configuration."""
    done = subprocess.run(
        [require("promtool"), "check", "config", str(ROOT / "dashboards" / "prometheus.yml")],
        capture_output=True,
        check=False,
        timeout=30,
        text=True,
    )

    assert (0, "") == (done.returncode, done.stderr)


def test_compose_mounts_files_that_exist():
    """Every file that a service mounts from here is here, and there is no top-level name (old Compose refuses it)."""
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    mounts = [m.split(":")[0] for service in compose["services"].values() for m in service["volumes"]]

    assert "name" not in compose
    assert [] == [m for m in mounts if m.startswith("./") and not (ROOT / m).is_file()]
    assert [m for m in mounts if m.startswith("./")]
