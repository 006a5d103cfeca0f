"""What the engine and its SDK complain about, in sentences for people: the value and the fix.

Called once, at the edge (``soak.lab.engine``). Labs and faults know only these errors.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from chaos.target import IdentityChangedError, TargetError
from soak.errors import LabError

OWN_IMAGE = "soakd"
"""Repository name of soak's own image: it is built, not pulled."""


class EngineError(LabError):
    """The engine refused, or could not do it. Carries its own words."""


class EngineAwayError(EngineError):
    """Nobody answers at the engine's socket, or not in time."""


class ContainerGoneError(EngineError):
    """The container is not there any more: somebody removed it."""


class ImageMissingError(EngineError):
    """The image is not on this machine."""


class NameTakenError(EngineError):
    """Something else already has this name."""


@contextmanager
def for_faults() -> Iterator[None]:
    """Let what a fault asked for end in the errors that chaos knows."""
    try:
        yield
    except ContainerGoneError as error:
        raise IdentityChangedError(str(error)) from error
    except LabError as error:
        raise TargetError(str(error)) from error


def image_missing(image: str, host: str) -> ImageMissingError:
    """Say how to get an image: the own one is built, others are pulled."""
    repository = image.rpartition("/")[2].partition(":")[0].partition("@")[0]
    verb = f"docker build -t {image} ." if repository == OWN_IMAGE else f"docker pull {image}"
    how = "build it in soak's source directory" if repository == OWN_IMAGE else "get it"
    return ImageMissingError(f"the image {image!r} is not on the engine at {host}; {how}: {verb}")


def unreachable(error: BaseException, host: str) -> EngineError | None:
    """Return what it means when the engine could not be talked to at all; None when it did answer."""
    numbers = {e.errno for e in _chain(error) if isinstance(e, OSError) and e.errno is not None}
    path = host.removeprefix("unix://")
    if numbers & {errno.EACCES, errno.EPERM}:
        return EngineError(
            f"no permission for the engine's socket {path}; join the group that owns it "
            "(usually: sudo usermod -aG docker $USER, then log in again), or name another socket in lab.docker.host"
        )
    if numbers & {errno.ENOENT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE, errno.ENOTDIR}:
        return EngineAwayError(
            f"no container engine answers at {host}; start it (systemctl start docker), "
            "or name its socket in lab.docker.host or DOCKER_HOST"
        )
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error with everything it was raised from or carries: libraries hide the errno deep inside."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__, *one.args, getattr(one, "reason", None)]


def refused(status: int | None, words: str, what: str, host: str) -> EngineError:
    """Return what an answer of the engine's that is no success means."""
    low = words.lower()
    if status == 404 and "no such image" in low:
        return image_missing(words.rpartition("image: ")[2].strip() or "?", host)
    if status == 404 and "no such container" in low:
        return ContainerGoneError(f"{what}: the container is gone ({words}); somebody removed it")
    if status == 404 and "no such exec" in low:
        return ContainerGoneError(f"{what}: the container ended meanwhile ({words})")
    if status == 409 and "already in use" in low:
        return NameTakenError(
            f"{what}: that name is taken ({words}); remove what has it (docker rm -f NAME) and try again"
        )
    return EngineError(f"{what}: the engine at {host} says: {words}")
