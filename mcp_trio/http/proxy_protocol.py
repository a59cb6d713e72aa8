"""The PROXY protocol, versions 1 and 2: what a proxy says of its client before anything else.

A parser without input and output, after the specification of HAProxy (section 2, "proxy protocol
header"). It says how many bytes certainly belong to the header, so that whoever feeds it never
reads past its end: what follows may be a TLS handshake.
"""

from __future__ import annotations

import ipaddress
import re
import struct

import attrs

MAX_HEADER = 4096
"""Bytes of a header at most. Addresses need 232; the rest is for the extensions of version 2."""

_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_HEAD = 16  # of version 2: signature, command, family, length
_SHORTEST = len(b"PROXY UNKNOWN\r\n")
_LONGEST_LINE = 107
_PORT = re.compile(r"0|[1-9][0-9]{0,4}")
_LOCAL, _PROXY = 0x20, 0x21
_TCP4, _TCP6, _UNIX = 0x11, 0x21, 0x31
_LENGTHS = {_TCP4: 12, _TCP6: 36, _UNIX: 216}

Address = tuple[str, int]


class ProxyHeaderError(ValueError):
    """What came is no PROXY header, or one that cannot be."""


@attrs.frozen(kw_only=True)
class Proxied:
    """What a header says."""

    client: Address | None
    """Who has connected to the proxy; None where it says nothing of that."""
    server: Address | None
    """Where."""
    local: bool = False
    """The proxy speaks for itself, as for a health check."""


class ProxyHeader:
    """One header, as its bytes come in. Read `wanted` bytes, `feed` them, until `done`."""

    def __init__(self) -> None:
        self.done: Proxied | None = None
        """The header, once it is complete."""
        self._data = b""
        self._length = 0  # of the whole header, once version 2 has said so

    @property
    def wanted(self) -> int:
        """Bytes that certainly belong to the header, at least 1 while it is not done."""
        have = len(self._data)
        if have < len(_SIGNATURE):
            return len(_SIGNATURE) - have
        if self._data.startswith(_SIGNATURE):
            return max(_HEAD, self._length) - have
        # A line: only its end says where it ends.
        return max(_SHORTEST - have, 1)

    def feed(self, data: bytes) -> None:
        """Take up to `wanted` bytes.

        Raises:
            ProxyHeaderError: it cannot become a header. The object is of no more use.
        """
        self._data += data
        head = self._data[: len(_SIGNATURE)]
        if _SIGNATURE.startswith(head):
            self._feed_binary()
        elif head.startswith(b"PROXY "[: len(head)]):
            self._feed_line()
        else:
            raise ProxyHeaderError("no PROXY header")

    def _feed_line(self) -> None:
        if self._data.endswith(b"\r\n"):
            self.done = _read_line(self._data[:-2])
        elif b"\n" in self._data or len(self._data) >= _LONGEST_LINE:
            raise ProxyHeaderError("the line of the PROXY header does not end")

    def _feed_binary(self) -> None:
        if len(self._data) < _HEAD:
            return
        command, family, length = struct.unpack_from("!BBH", self._data, len(_SIGNATURE))
        self._length = _HEAD + length
        if command not in {_LOCAL, _PROXY}:
            raise ProxyHeaderError("an unknown version or command")
        if self._length > MAX_HEADER:
            raise ProxyHeaderError(f"the header is larger than {MAX_HEADER} bytes")
        if length < _LENGTHS.get(family, 0):
            raise ProxyHeaderError("the addresses are not all there")
        if len(self._data) == self._length:
            self.done = _read_binary(command, family, self._data[_HEAD:])


def _read_line(line: bytes) -> Proxied:
    try:
        words = line.decode("ascii").split(" ")
    except UnicodeDecodeError:
        raise ProxyHeaderError("the line is not ASCII") from None
    match words:
        case ["PROXY", "UNKNOWN", *_]:
            return Proxied(client=None, server=None)
        case ["PROXY", ("TCP4" | "TCP6") as family, source, target, source_port, target_port]:
            version = int(family[-1])
            return Proxied(
                client=(_literal(source, version), _port(source_port)),
                server=(_literal(target, version), _port(target_port)),
            )
        case _:
            raise ProxyHeaderError("the line cannot be read")


def _literal(text: str, version: int) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ProxyHeaderError("an address cannot be read") from None
    if address.version != version or "%" in text:
        raise ProxyHeaderError("an address is of another family")
    return str(address)


def _port(text: str) -> int:
    if _PORT.fullmatch(text) is None or int(text) > 65535:
        raise ProxyHeaderError("a port cannot be read")
    return int(text)


def _read_binary(command: int, family: int, data: bytes) -> Proxied:
    if command == _LOCAL:
        return Proxied(client=None, server=None, local=True)
    match family:
        case 0x11:  # TCP over IPv4
            source, target, source_port, target_port = struct.unpack_from("!4s4sHH", data)
        case 0x21:  # TCP over IPv6
            source, target, source_port, target_port = struct.unpack_from("!16s16sHH", data)
        case 0x00 | 0x31:  # unspecified, and a Unix socket
            return Proxied(client=None, server=None)
        case _:
            raise ProxyHeaderError("an unknown family of addresses")
    return Proxied(
        client=(str(ipaddress.ip_address(source)), source_port),
        server=(str(ipaddress.ip_address(target)), target_port),
    )
