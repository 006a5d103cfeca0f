"""Sessions of TLS connections, taken from OpenSSL itself: the one place that knows how Python's ``ssl`` lies in memory.

``ssl.SSLObject.session`` forgets a copy of the session, 6 KiB, at each read in every CPython 3.11, in 3.12 before 3.12.8 and
in 3.13.0 (python/cpython#116810), and reading and offering one costs 0.3 ms. So on those interpreters, whose layout is fixed for
good, the same functions of libssl are called by ctypes. Elsewhere, and where libssl cannot be reached, ``ssl`` is used as it is;
``LEAKS`` says when that loses memory.
"""

from __future__ import annotations

import _ssl
import ctypes
import ssl
import sys
from dataclasses import dataclass
from typing import Any

_BUG = sys.version_info < (3, 12, 8) or (3, 13) <= sys.version_info < (3, 13, 1)
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_HEAD = object.__basicsize__
_SSL_AT = _HEAD + _POINTER
"""``PySSLSocket`` (Modules/_ssl.c): the object's head, ``PyObject *Socket``, ``SSL *ssl``, ``PySSLContext *ctx``."""
_CONTEXT_AT = _SSL_AT + _POINTER
_VOID, _LONG, _INT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "SSL_get1_session": (_VOID, (_VOID,)),
    "SSL_set_session": (_INT, (_VOID, _VOID)),
    "SSL_SESSION_dup": (_VOID, (_VOID,)),
    "SSL_SESSION_free": (None, (_VOID,)),
    "SSL_SESSION_is_resumable": (_INT, (_VOID,)),
    "SSL_SESSION_get_ticket_lifetime_hint": (ctypes.c_ulong, (_VOID,)),
    "SSL_SESSION_get_timeout": (_LONG, (_VOID,)),
    "SSL_SESSION_get_id": (_VOID, (_VOID, ctypes.POINTER(ctypes.c_uint))),
}


class _Owned:
    """A session of OpenSSL's, freed when nobody holds it any more."""

    __slots__ = ("_free", "pointer")

    def __init__(self, pointer: int, free: Any) -> None:
        self.pointer = pointer
        self._free = free

    def __del__(self) -> None:
        self._free(self.pointer)


@dataclass(frozen=True, slots=True)
class TlsSession:
    """A session that can be offered."""

    handle: ssl.SSLSession | _Owned
    ident: bytes
    life_s: int
    """How long it may be offered from when it was received: the server's word, else the standard's for the version."""


def _reach() -> ctypes.CDLL | None:
    """Return the libssl of this interpreter, if the layout is the known one; None to use ``ssl`` as it is."""
    if not _BUG or sys.implementation.name != "cpython":
        return None
    try:
        library = ctypes.CDLL(getattr(_ssl, "__file__", None))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    probe = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="probe.invalid")
    found = _VOID.from_address(id(probe._sslobj) + _CONTEXT_AT).value  # type: ignore[attr-defined]  # noqa: SLF001 -- the point of this module
    return library if found == id(context) else None


_library = _reach()
LEAKS = _BUG and _library is None
"""Whether each session read loses 6 KiB, for want of a way around the interpreter's bug."""


def _ssl_of(tls: ssl.SSLObject) -> int:
    pointer = _VOID.from_address(id(tls._sslobj) + _SSL_AT).value  # type: ignore[attr-defined]  # noqa: SLF001 -- the point of this module
    assert pointer
    return int(pointer)


def offer(tls: ssl.SSLObject, session: TlsSession) -> None:
    """Offer a session in a handshake that has not begun. Raises ``ValueError`` for one of another context (``ssl`` alone checks)."""
    if isinstance(session.handle, _Owned):
        assert _library is not None
        copy = _library.SSL_SESSION_dup(session.handle.pointer)  # a connection that breaks spoils its own
        if not copy:
            raise MemoryError("OpenSSL could not copy a session")
        _library.SSL_set_session(_ssl_of(tls), copy)
        _library.SSL_SESSION_free(copy)
    else:
        tls.session = session.handle


def session_of(tls: ssl.SSLObject) -> TlsSession | None:
    """Return the newest session that the server gave on a connection, a copy; None if it gave none that can be resumed."""
    return _by_ssl(tls) if _library is None else _by_libssl(tls, _library)


def _by_ssl(tls: ssl.SSLObject) -> TlsSession | None:
    session = tls.session
    if session is None or not (session.has_ticket or session.id):
        return None
    return TlsSession(session, session.id, _life_s(session.ticket_lifetime_hint, session.timeout))


def _by_libssl(tls: ssl.SSLObject, library: ctypes.CDLL) -> TlsSession | None:
    shared = library.SSL_get1_session(_ssl_of(tls))
    if not shared:
        return None
    try:
        if not library.SSL_SESSION_is_resumable(shared):
            return None
        copy = library.SSL_SESSION_dup(shared)  # the connection's end may spoil the shared one
    finally:
        library.SSL_SESSION_free(shared)
    if not copy:
        raise MemoryError("OpenSSL could not copy a session")
    owned = _Owned(copy, library.SSL_SESSION_free)
    length = ctypes.c_uint()
    at = library.SSL_SESSION_get_id(copy, ctypes.byref(length))
    hint_s, timeout_s = (
        library.SSL_SESSION_get_ticket_lifetime_hint(copy),
        library.SSL_SESSION_get_timeout(copy),
    )
    return TlsSession(owned, ctypes.string_at(at, length.value), _life_s(hint_s, timeout_s))


def _life_s(hint_s: int, timeout_s: int) -> int:
    """Return the server's hint where it gave one (RFC 5077 section 3.3: 0 says nothing), else OpenSSL's own timeout."""
    return min(hint_s, timeout_s) if hint_s else timeout_s
