"""Which addresses a connection may reach, decided on the resolved address at connect time.

A network backend for httpcore2 that resolves a name itself, judges every address it got,
and connects to a judged address and not to the name: what was checked is what is used, so
a DNS answer that changes in between changes nothing. TLS still checks the name.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, TypeAlias, cast

import attrs
import httpcore2
import httpx2
import trio

CLOSE_TIMEOUT = 1.0
"""Seconds an orderly close of an upstream socket may take; then it is cut."""

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""Gives the addresses of a host, as text, in the order to try them."""

_CARRYING = tuple(
    map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96"))
)
"""IPv6 with an IPv4 destination in its last bits: RFC 6052, RFC 8215, RFC 4291 (section 2.5.5.1),
RFC 2765."""
_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"),
    )
)
"""Where clouds keep metadata beside link-local addresses: whoever may reach private networks may
not reach these because of that."""


class BlockedAddressError(httpcore2.ConnectError):
    """The network policy of the connection refuses the address. The text names no address."""


NO_ADDRESS = "not an address"
"""The refusal of a text that is none."""
HIDDEN_QUERY = "mcp_trio_hidden_query"
"""Extension of a request: the part of its query, encoded, that holds a secret."""


@attrs.frozen(kw_only=True)
class NetworkPolicy:
    """What a connection may reach beside public addresses."""

    allow_private: bool = False
    """Private, loopback and carrier-internal addresses. Never link-local ones, and none where a
    cloud keeps metadata."""


@attrs.frozen(kw_only=True)
class Guard:
    """The judgement over addresses, for one configured host, or for hosts that a peer names."""

    host: str | None
    """The host of the base URL. No other may be asked for. None: any host, and none of them is
    trusted because of its name, since a peer chose it."""
    policy: NetworkPolicy = NetworkPolicy()

    def refusal(self, host: str, address: str) -> str | None:
        """Say why an address of `host` must not be reached; None if it may be."""
        named = None if self.host is None else self.host.strip("[]").lower()
        if named is not None and host.strip("[]").lower() != named:
            return "another host than the connection's"
        try:
            target = _carried(ipaddress.ip_address(address.partition("%")[0]))
        except ValueError:
            return NO_ADDRESS
        configured = None if named is None else _literal(named)
        if configured is not None and _carried(configured) == target:
            # Somebody wrote this very address into the configuration.
            return "an unspecified address" if target.is_unspecified else None
        if target.is_unspecified or target.is_multicast:
            return "an unspecified or multicast address"
        if target.is_link_local or target in _METADATA:
            return "a link-local address, where cloud metadata lives"
        if isinstance(target, ipaddress.IPv6Address) and target.is_site_local:
            return None if self.policy.allow_private else "a private or loopback address"
        if target.is_loopback and named == "localhost":
            # RFC 6761, section 6.3: this name means loopback and nothing else.
            return None
        if target.is_global or self.policy.allow_private:
            return None
        return "a private or loopback address"


def is_loopback(host: str) -> bool:
    """Whether a host name or literal means this machine."""
    bare = host.strip("[]").lower().rstrip(".")
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _carried(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one that leads there; else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if int(address) > 1 and any(address in network for network in _CARRYING):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


async def resolve(host: str, port: int) -> list[str]:
    """Ask the system for the addresses of a host."""
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _trio_backend() -> httpcore2.AsyncNetworkBackend:
    # The library defines a stand-in of the same name for installations without trio.
    return cast("httpcore2.AsyncNetworkBackend", httpcore2.TrioBackend())


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects where the guard allows, through another backend.

    Args:
        guard: the judgement.
        inner: makes the connections; httpcore2's own for Trio if None.
        resolver: finds addresses.
    """

    def __init__(
        self,
        guard: Guard,
        inner: httpcore2.AsyncNetworkBackend | None = None,
        resolver: Resolve = resolve,
    ) -> None:
        self._guard = guard
        self._inner: httpcore2.AsyncNetworkBackend = _trio_backend() if inner is None else inner
        self._resolve = resolver

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # the signature of the base class
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Resolve, judge, connect. One refused address refuses the whole host.

        Raises:
            BlockedAddressError: the policy says no; nothing was sent anywhere.
            httpcore2.ConnectError: unknown host, or nobody answers at any address.
            httpcore2.ConnectTimeout: all of it took longer than `timeout` seconds.
        """
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            try:
                addresses = await self._resolve(host, port)
            except OSError as error:
                raise httpcore2.ConnectError("the host name cannot be resolved") from error
            for address in addresses:
                refusal = self._guard.refusal(host, address)
                if refusal is not None:
                    raise BlockedAddressError(f"the network policy refuses {refusal}")
            return await self._first_of(addresses, port, local_address, socket_options)
        raise httpcore2.ConnectTimeout("no connection in time")

    async def _first_of(
        self,
        addresses: list[str],
        port: int,
        local_address: str | None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None,
    ) -> httpcore2.AsyncNetworkStream:
        failure: Exception = httpcore2.ConnectError("the host name has no address")
        for index, address in enumerate(addresses):
            # Nothing is left once the deadline has passed or the call was cancelled.
            left = max(0.0, trio.current_effective_deadline() - trio.current_time())
            try:
                stream = await self._inner.connect_tcp(
                    address,
                    port,
                    # A share of what is left, so that one dead address leaves room.
                    timeout=left / (len(addresses) - index),
                    local_address=local_address,
                    socket_options=socket_options,
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
            else:
                return BoundedStream(stream)
        raise failure

    async def connect_unix_socket(
        self,
        path: str,  # noqa: ARG002  # the signature of the base class
        timeout: float | None = None,  # noqa: ARG002, ASYNC109  # the signature of the base class
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore2.AsyncNetworkStream:
        """Refuse."""
        raise BlockedAddressError("the network policy refuses local sockets")

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await trio.sleep(seconds)


class BoundedStream(httpcore2.AsyncNetworkStream):
    """A stream whose close takes a bounded time.

    httpcore2 closes under a shield, and an orderly TLS close waits for room in the socket
    of a peer that may not be reading: without a bound, cancelling would wait with it.
    """

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """Read."""
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Write."""
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close in order within `CLOSE_TIMEOUT`; past that the socket is cut."""
        with trio.move_on_after(CLOSE_TIMEOUT):
            await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the signature of the base class
    ) -> httpcore2.AsyncNetworkStream:
        """Begin TLS. Whatever ends the handshake early cuts the socket."""
        try:
            return BoundedStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))
        except BaseException:
            # httpcore2 closes on an Exception only, and a cancelled handshake is none.
            with trio.CancelScope() as scope:
                scope.cancel()
                await self._inner.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        """Look up, as the inner stream does."""
        return self._inner.get_extra_info(info)


class _Body(httpx2.AsyncByteStream):
    """The body of an answer; closing it before its end closes the socket."""

    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        parts = aiter(self._stream)
        try:
            async for part in parts:
                yield part
        finally:
            # Here and now: left to the collector, the pool would learn of it late.
            if isinstance(parts, AsyncGenerator):
                await parts.aclose()

    async def aclose(self) -> None:
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


class GuardedTransport(httpx2.AsyncBaseTransport):
    """An httpx2 transport over a pool whose sockets the guard allows.

    Errors are httpcore2's own, so that a policy refusal stays recognisable. No proxy, no
    redirect, no retry.
    """

    def __init__(
        self,
        backend: GuardedBackend,
        tls: ssl.SSLContext | None = None,
        *,
        max_connections: int = 10,
        keep_alive: float = 30.0,
    ) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=max_connections,
            max_keepalive_connections=max_connections,
            keepalive_expiry=keep_alive,
            network_backend=backend,
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; the answer's body is read by whoever iterates it.

        What stands under `HIDDEN_QUERY` in its extensions goes behind its query, here where no
        log of the client sees it.
        """
        target = request.url.raw_path
        hidden = cast("bytes", request.extensions.get(HIDDEN_QUERY, b""))
        if hidden:
            target += (b"&" if b"?" in target else b"?") + hidden
        answer = await self._pool.handle_async_request(
            httpcore2.Request(
                method=request.method,
                url=httpcore2.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=target,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        if not isinstance(answer.stream, AsyncIterable):  # pragma: no cover  # by its contract
            raise httpcore2.RemoteProtocolError("the answer has no body to iterate")
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer.stream),
            extensions={
                name: value
                # Its annotation has no type arguments.
                for name, value in cast("dict[str, Any]", cast("Any", answer).extensions).items()
                # The reason is the peer's own text, and the client would log it.
                if name != "reason_phrase"
            },
        )

    async def aclose(self) -> None:
        """Close every socket, those in use too."""
        await self._pool.aclose()
