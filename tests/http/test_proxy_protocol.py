"""The PROXY header: what is read, how far, and what is refused."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.http.proxy_protocol import MAX_HEADER, Proxied, ProxyHeader, ProxyHeaderError

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def binary(command: int, family: int, data: bytes, length: int | None = None) -> bytes:
    return (
        SIGNATURE
        + struct.pack("!BBH", command, family, len(data) if length is None else length)
        + data
    )


def tcp4(more: bytes = b"") -> bytes:
    ends = socket.inet_aton("203.0.113.9") + socket.inet_aton("192.0.2.1")
    return binary(0x21, 0x11, ends + struct.pack("!HH", 4711, 443) + more)


def tcp6() -> bytes:
    ends = socket.inet_pton(socket.AF_INET6, "2001:db8::9") + socket.inet_pton(
        socket.AF_INET6, "::1"
    )
    return binary(0x21, 0x21, ends + struct.pack("!HH", 4711, 443))


def read(data: bytes) -> tuple[Proxied, bytes]:
    """Feed as much as is wanted each time; give the header and what is left."""
    header = ProxyHeader()
    while header.done is None:
        wanted = header.wanted
        assert wanted > 0
        piece, data = data[:wanted], data[wanted:]
        assert piece, "it wants more than the header has"
        header.feed(piece)
    return header.done, data


V4 = Proxied(client=("203.0.113.9", 4711), server=("192.0.2.1", 443))
V6 = Proxied(client=("2001:db8::9", 4711), server=("::1", 443))
NOTHING = Proxied(client=None, server=None)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"PROXY TCP4 203.0.113.9 192.0.2.1 4711 443\r\n", V4),
        (b"PROXY TCP6 2001:db8::9 ::1 4711 443\r\n", V6),
        (b"PROXY UNKNOWN\r\n", NOTHING),
        (b"PROXY UNKNOWN ffff:f...f ffff:f 65535 65535\r\n", NOTHING),
        (b"PROXY TCP6 " + b"ffff:" * 7 + b"ffff " + b"ffff:" * 7 + b"ffff 65535 65535\r\n", None),
        (tcp4(), V4),
        (tcp4(b"\x04\x00\x01x" + bytes(200)), V4),
        (tcp6(), V6),
        (binary(0x21, 0x31, bytes(216)), NOTHING),
        (binary(0x21, 0x00, b""), NOTHING),
        (binary(0x20, 0x00, b""), Proxied(client=None, server=None, local=True)),
        (binary(0x20, 0x11, bytes(12)), Proxied(client=None, server=None, local=True)),
        (tcp4(bytes(MAX_HEADER - 28)), V4),
    ],
)
def test_a_header_is_read_and_nothing_of_what_follows(data: bytes, said: Proxied | None) -> None:
    found, left = read(data + b"\x16\x03\x01rest")
    assert left == b"\x16\x03\x01rest"
    assert said is None or found == said


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00",
        b"PROXY TCP4 203.0.113.9 192.0.2.1 4711 443\n\n\r\n",
        b"PROXY TCP4  203.0.113.9 192.0.2.1 4711 443\r\n",
        b"PROXY TCP4 203.0.113.9 192.0.2.1 4711\r\n",
        b"PROXY TCP4 203.0.113.9 192.0.2.1 4711 443 x\r\n",
        b"PROXY TCP4 203.0.113.9 192.0.2.1 4711 65536\r\n",
        b"PROXY TCP4 203.0.113.9 192.0.2.1 04711 443\r\n",
        b"PROXY TCP4 203.0.113.9 192.0.2.1 -1 443\r\n",
        b"PROXY TCP4 2001:db8::9 ::1 4711 443\r\n",
        b"PROXY TCP6 203.0.113.9 192.0.2.1 4711 443\r\n",
        b"PROXY TCP6 fe80::1%eth0 ::1 4711 443\r\n",
        b"PROXY TCP4 203.0.113.999 192.0.2.1 4711 443\r\n",
        b"PROXY UDP4 203.0.113.9 192.0.2.1 4711 443\r\n",
        b"PROXY TCP4 \xff 192.0.2.1 4711 443\r\n",
        b"PROXY " + b"x" * 200,
        b"proxy TCP4 203.0.113.9 192.0.2.1 4711 443\r\n",
        binary(0x11, 0x11, bytes(12)),
        binary(0x22, 0x11, bytes(12)),
        binary(0x21, 0x12, bytes(12)),
        binary(0x21, 0x11, bytes(11)),
        binary(0x21, 0x21, bytes(12)),
        binary(0x21, 0x11, b"", length=MAX_HEADER - 15),
        binary(0x21, 0x11, b"", length=65535),
        SIGNATURE[:-1] + b"X" + bytes(20),
    ],
)
def test_what_is_no_header_is_refused_within_its_bound(data: bytes) -> None:
    header = ProxyHeader()
    fed = 0
    with pytest.raises(ProxyHeaderError):
        while True:
            piece = data[fed : fed + header.wanted]
            assert piece, "it waits for more"
            fed += len(piece)
            header.feed(piece)
    assert fed <= MAX_HEADER


@given(
    st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=300).map(SIGNATURE.__add__),
        st.text("PROXY TCP46UNKNOWN0123456789:. \r\n", max_size=120).map(
            lambda text: b"PROXY " + text.encode()
        ),
    ),
    st.integers(1, 5),
)
def test_any_bytes_in_any_pieces_are_a_header_or_refused_or_wait(data: bytes, size: int) -> None:
    header = ProxyHeader()
    at = 0
    while header.done is None and at < len(data):
        piece = data[at : at + min(size, header.wanted)]
        at += len(piece)
        try:
            header.feed(piece)
        except ProxyHeaderError:
            return
    if header.done is not None:
        assert read(data[:at]) == (header.done, b"")
    else:
        assert header.wanted > 0
        assert at < MAX_HEADER
