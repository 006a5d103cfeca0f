"""A socket is reached however deep its directory is."""

import os
import socket
from pathlib import Path

import pytest

from soak.errors import ControlError
from soak.web.socketpath import MAX_SOCKET_PATH, short_path


@pytest.mark.parametrize("depth", [0, 12], ids=["short", "deep"])
def test_bind_and_connect_meet_at_the_real_path(tmp_path: Path, depth: int) -> None:
    """A server bound through the short path is found at the real one, and a client reaches it the same way."""
    directory = tmp_path.joinpath(*["a-rather-long-name"] * depth)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "control.sock"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        with short_path(path) as name:
            assert len(os.fsencode(name)) <= MAX_SOCKET_PATH
            server.bind(name)
        server.listen()
        assert path.is_socket()
        with short_path(path) as name:
            client.connect(name)
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"


def test_the_directory_is_closed_again(tmp_path: Path) -> None:
    """No descriptor is left open, also when the body fails."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(RuntimeError), short_path(tmp_path / "s"):
        raise RuntimeError
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """The error names the socket."""
    path = tmp_path / "gone" / "control.sock"
    with pytest.raises(ControlError, match=str(path)), short_path(path):
        pass


def test_a_name_too_long_is_refused(tmp_path: Path) -> None:
    """A socket's own name cannot be shortened."""
    with pytest.raises(ControlError, match="107 bytes"), short_path(tmp_path / ("s" * 100)):
        pass
