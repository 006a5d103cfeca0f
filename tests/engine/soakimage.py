"""soak's own image from its real Dockerfile, on a stand-in for the base and without a network: wheels come from a wheelhouse."""

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tests.engine.dockerd import Dockerd
from tests.engine.images import ROOT, Rootfs, import_rootfs

BASE_IMAGE = "soak-test-python:local"
SOAK_IMAGE = "soakd:compose-test"
_TOOLS = ("sh", "mkdir", "chown", "sleep", "cat")
_LIBRARIES = ("librt", "libm", "libdl", "libpthread", "libutil", "libgcc_s", "libstdc++")
"""What wheels may expect of every Linux (manylinux)."""
_LEFT_OUT = ("site-packages/", "test/", "idlelib/", "tkinter/", "lib2to3/")


def build_soak(engine: Dockerd) -> str:
    """Build the image and return its name. Raises ``RuntimeError`` with the words of a step that failed."""
    _import_base(engine)
    with tempfile.TemporaryDirectory(prefix="soak-context-") as directory:
        context = Path(directory)
        for name in (
            "Dockerfile",
            ".dockerignore",
            "pyproject.toml",
            "constraints.txt",
            "README.md",
            "LICENSE",
        ):
            shutil.copy(ROOT / name, context)
        for name in ("soak", "chaos", "certs"):
            shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__"))
        _fill_wheelhouse(context)
        client = engine.client()
        said: list[str] = []
        for step in client.build(
            path=directory,
            tag=SOAK_IMAGE,
            rm=True,
            forcerm=True,
            decode=True,
            network_mode="none",
            buildargs={"BASE": BASE_IMAGE, "PIP_ARGS": "--no-index --find-links=wheelhouse"},
        ):
            said.append(str(step.get("stream", step.get("error", ""))))
            if "error" in step:
                raise RuntimeError("".join(said)[-4000:])
        client.close()
    return SOAK_IMAGE


def _fill_wheelhouse(context: Path) -> None:
    """Collect the wheels that the image needs, as the head of the Dockerfile says."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    command += ["--wheel-dir", "wheelhouse", "--constraint", "constraints.txt", ".", "setuptools", "wheel"]
    subprocess.run(command, cwd=context, check=True, capture_output=True, timeout=120)
    shutil.rmtree(context / "build", ignore_errors=True)


def _import_base(engine: Dockerd) -> None:
    """Import an image with the Python that runs the tests and what makes a virtual environment, and little else."""
    base, standard = Path(sys.base_prefix), Path(sysconfig.get_path("stdlib"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"

    def fill(rootfs: Rootfs) -> None:
        rootfs.program(Path(sys.executable).resolve(), f"{base}/bin/{version}")
        for name in ("python3", "python"):
            rootfs.link(f"usr/local/bin/{name}", f"{base}/bin/{version}")
        rootfs.tree(
            standard, str(standard), lambda name: not name.startswith(_LEFT_OUT) and "__pycache__" not in name
        )
        libc = next(Path("/").glob("lib*/**/libc.so.6"))
        for library in (found for name in _LIBRARIES for found in libc.parent.glob(f"{name}.so.*")):
            rootfs.file(library, f"usr/lib/{library.name}", 0o755)
        for tool in _TOOLS:
            rootfs.program(Path(str(shutil.which(tool, path="/bin:/usr/bin"))), f"bin/{tool}")

    path = "/usr/local/bin:/usr/bin:/bin"
    import_rootfs(engine, BASE_IMAGE, fill, {"PATH": path})
