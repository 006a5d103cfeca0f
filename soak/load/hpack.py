"""HPACK (RFC 7541): decodes header blocks that a peer sent, and writes literals for our own requests.

The decoder is bounded in every direction: integers, strings, the list of a block, the dynamic table. Nothing that we
send uses the peer's table, so a request is the same bytes every time and there is no encoder with state. Pure; knows no
connection.
"""

from __future__ import annotations

from collections import deque

MAX_LIST_BYTES = 64 * 1024
"""A header list may be so long, each field counted with 32 bytes more (RFC 9113 section 6.5.2)."""
TABLE_BYTES = 4096
"""Default of SETTINGS_HEADER_TABLE_SIZE: how large a dynamic table we keep for the peer."""

Field = tuple[bytes, bytes]

_OVERHEAD = 32
_MAX_INTEGER = 1 << 28
_MAX_REMEMBERED = 256
_MAX_REMEMBERED_BYTES = 128


class HpackError(ValueError):
    """A header block that cannot be decoded; the compression state of the connection is lost (RFC 9113 section 4.3)."""


_STATIC: tuple[Field, ...] = tuple(
    (name.encode(), value.encode())
    for name, _, value in (
        line.partition(" ")
        for line in """\
:authority
:method GET
:method POST
:path /
:path /index.html
:scheme http
:scheme https
:status 200
:status 204
:status 206
:status 304
:status 400
:status 404
:status 500
accept-charset
accept-encoding gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate""".splitlines()
    )
)
"""RFC 7541 appendix A; entry 1 is the first."""

_CODE_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a080b08060606"
    "0505050606060606060607080f060c0a0d06070707070707070707070707070707070707070707070807080d130d0e06"
    "0f05060506050606060507070606060506070605050607070707070f0b0e0d1c14161414161616171617171717171817"
    "181816171817171717151617161717181615141616171715171616181516171715151615171617171416161617161617"
    "1a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b14181415161515171616191918181a17"
    "1a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a1e"
)
"""Bits of each symbol's Huffman code, the last of all being EOS. RFC 7541 appendix B is canonical: codes follow from lengths."""
_EOS = 256


def _codes() -> list[tuple[int, int]]:
    """Return code and length of each symbol: shorter codes first, equal lengths by symbol, each one more than the last."""
    codes = [(0, 0)] * (_EOS + 1)
    code = previous = 0
    for symbol in sorted(range(_EOS + 1), key=lambda s: (_CODE_LENGTHS[s], s)):
        length = _CODE_LENGTHS[symbol]
        code <<= length - previous
        codes[symbol] = (code, length)
        code += 1
        previous = length
    return codes


def _machine() -> tuple[list[tuple[int, int]], frozenset[int]]:
    """Return the decoder's steps and the states in which a string may end.

    A state is an inner node of the code tree, times 16. ``steps[state + nibble]`` is the next state and the symbol that
    the four bits complete, or -1; no code is shorter than five bits. State -1: EOS came, which is an error.
    """
    children: list[list[int]] = [[0, 0]]  # of each node: index of the next one, or -1 - symbol
    for symbol, (code, length) in enumerate(_codes()):
        node = 0
        for bit in range(length - 1, 0, -1):
            side = code >> bit & 1
            if not children[node][side]:
                children.append([0, 0])
                children[node][side] = len(children) - 1
            node = children[node][side]
        children[node][code & 1] = -1 - symbol
    steps: list[tuple[int, int]] = []
    for start in range(len(children)):
        for nibble in range(16):
            node, found = start, -1
            for bit in (8, 4, 2, 1):
                node = children[node][1 if nibble & bit else 0]
                if node < 0:
                    found, node = -1 - node, 0
                    if found == _EOS:
                        break
            steps.append((-1, -1) if found == _EOS else (node << 4, found))
    node, padded = 0, [0]
    for _ in range(7):  # at most seven bits of padding, all ones (section 5.2)
        node = children[node][1]
        padded.append(node << 4)
    return steps, frozenset(padded)


_STEPS, _MAY_END = _machine()


def huffman_decode(data: bytes) -> bytes:
    """Return the string. Raises ``HpackError`` for EOS in it, and for padding that is too long or not of ones."""
    steps = _STEPS
    out = bytearray()
    state = 0
    for byte in data:
        state, symbol = steps[state + (byte >> 4)]
        if symbol >= 0:
            out.append(symbol)
        elif state < 0:
            raise HpackError("a Huffman string has EOS in it")
        state, symbol = steps[state + (byte & 15)]
        if symbol >= 0:
            out.append(symbol)
        elif state < 0:
            raise HpackError("a Huffman string has EOS in it")
    if state not in _MAY_END:
        raise HpackError("a Huffman string ends inside a code or with wrong padding")
    return bytes(out)


_remembered: dict[bytes, bytes] = {}


def _decoded(data: bytes) -> bytes:
    """Decode a Huffman string. Most strings of most answers are those of the last answer, so some are remembered."""
    if len(data) > _MAX_REMEMBERED_BYTES:
        return huffman_decode(data)
    text = _remembered.get(data)
    if text is None:
        text = huffman_decode(data)
        if len(_remembered) >= _MAX_REMEMBERED:
            _remembered.clear()
        _remembered[data] = text
    return text


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Return an integer whose prefix is the low bits of ``block[at]``, and where it ends (section 5.1)."""
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        value += (byte & 127) << shift
        if value > _MAX_INTEGER or shift > 28:
            raise HpackError("an integer is larger than anything that it could count")
        if byte < 128:
            return value, at
        shift += 7


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    """Return a string literal and where it ends (section 5.2)."""
    first = block[at]
    length = first & 127
    if length == 127:
        length, at = _integer(block, at, 127)
    else:
        at += 1
    end = at + length
    if end > len(block):
        raise HpackError(f"a string of {length} bytes runs past the end of the block")
    raw = block[at:end]
    return (_decoded(raw) if first >= 128 else raw), end


class Decoder:
    """The receiving end of one connection's header compression."""

    __slots__ = ("_bytes", "_limit", "_max_bytes", "_table")

    def __init__(self, max_bytes: int = TABLE_BYTES) -> None:
        self._table: deque[Field] = deque()
        self._bytes = 0
        self._limit = max_bytes
        self._max_bytes = max_bytes

    @property
    def table(self) -> list[Field]:
        """The dynamic table, newest entry first."""
        return list(self._table)

    @property
    def table_bytes(self) -> int:
        """Size of the dynamic table as section 4.1 counts it."""
        return self._bytes

    def decode(self, block: bytes) -> list[Field]:
        """Return the fields of a whole block, in order. Raises ``HpackError``; then this decoder is of no more use."""
        try:
            return self._decode(block)
        except IndexError:
            raise HpackError("the block ends in the middle of a field") from None

    def _decode(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        at = size = 0
        end = len(block)
        while at < end:
            first = block[at]
            if first >= 128:  # indexed (section 6.1)
                index, at = _integer(block, at, 127)
                field = self._entry(index)
            elif first & 0xE0 == 0x20:  # size update (section 6.3)
                if fields:
                    raise HpackError("a table size update follows a field")
                limit, at = _integer(block, at, 31)
                self._resize(limit)
                continue
            else:  # literal: with indexing (section 6.2.1), without, or never indexed
                index, at = _integer(block, at, 63 if first >= 64 else 15)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, at = _string(block, at)
                value, at = _string(block, at)
                field = (name, value)
                if first >= 64:
                    self._add(field)
            fields.append(field)
            size += len(field[0]) + len(field[1]) + _OVERHEAD
            if size > MAX_LIST_BYTES:
                raise HpackError(f"the header list is larger than {MAX_LIST_BYTES} bytes")
        return fields

    def _entry(self, index: int) -> Field:
        if 0 < index <= len(_STATIC):
            return _STATIC[index - 1]
        index -= len(_STATIC) + 1
        if not 0 <= index < len(self._table):
            raise HpackError("a field refers to an entry that no table has")
        return self._table[index]

    def _add(self, field: Field) -> None:
        """Put an entry in front; one that is larger than the table empties it (section 4.4)."""
        size = len(field[0]) + len(field[1]) + _OVERHEAD
        self._evict(self._limit - size)
        if size <= self._limit:
            self._table.appendleft(field)
            self._bytes += size

    def _resize(self, limit: int) -> None:
        if limit > self._max_bytes:
            raise HpackError(f"a table of {limit} bytes is larger than the {self._max_bytes} that we allow")
        self._limit = limit
        self._evict(limit)

    def _evict(self, room: int) -> None:
        table = self._table
        while table and self._bytes > room:
            name, value = table.pop()
            self._bytes -= len(name) + len(value) + _OVERHEAD


def integer(value: int, mask: int, pattern: int = 0) -> bytes:
    """Return an integer with the given prefix bits (section 5.1)."""
    if value < mask:
        return bytes((pattern | value,))
    out = bytearray((pattern | mask,))
    value -= mask
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def literal(name: bytes, value: bytes) -> bytes:
    """Return a field that no table keeps, without Huffman: a static entry if there is one for it, else a literal."""
    if (name, value) in _STATIC:
        return integer(_STATIC.index((name, value)) + 1, 127, 128)
    index = next((i for i, field in enumerate(_STATIC, 1) if field[0] == name), 0)
    out = integer(index, 15)
    if not index:
        out += integer(len(name), 127) + name
    return out + integer(len(value), 127) + value


def literal_head(name: bytes) -> bytes:
    """Return the beginning of a literal whose name no table has: what comes before the length of its value."""
    return b"\0" + integer(len(name), 127) + name
