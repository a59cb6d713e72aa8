"""From accept to the first byte of HTTP: who has connected, whether there is room for him, TLS.

The PROXY header comes first, then the count by address, then the handshake: so that an address
that has too much already costs no handshake. Each wait has `header_timeout`. Connections are
served in `connection`; what proxies say in the fields of a request is read here, too, because
it counts like the rest only if the connection came from one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import attrs
import trio

from .asgi_call import LOGGER, Scope
from .crowd import Crowd, place_of
from .proxies import ForwardingError, TrustedProxies
from .proxy_protocol import ProxyHeader, ProxyHeaderError
from .refusals import CROWDED
from .serving_settings import ServingSettings
from .tls import Certificates, tls_extension

MAX_REFUSALS = 64
"""Refused connections that are told why at the same time; further ones are just closed."""

LINGER_BYTES = 16 * 1024 * 1024
"""What a lingering close reads and discards at most."""

Address = tuple[str, int]

BAD_REQUEST = 400
TOO_MANY = 503


@attrs.frozen(kw_only=True)
class Peer:
    """Who is at the other end of a connection."""

    client: Address | None = None
    """Where it comes from: of the socket, or as a trusted proxy's PROXY header says."""
    server: Address | None = None
    """Where it has arrived."""
    trusted: bool = False
    """It is a proxy whose header fields are believed."""
    place: str | None = None
    """What it counts as against `max_connections_per_address`. A trusted proxy counts as nobody:
    those behind it count, each request for itself."""
    tls: dict[str, object] | None = None
    """The ASGI TLS extension; None without TLS."""


class Doorway:
    """What a service asks of whoever connects. All connections share one."""

    def __init__(self, settings: ServingSettings, certificates: Certificates | None) -> None:
        """Take over the rules.

        Raises:
            ConfigurationError: `trusted_proxies` cannot be read.
        """
        self.crowd = Crowd(settings.max_connections_per_address)
        self._settings = settings
        self._certificates = certificates
        self._proxies = TrustedProxies.of(settings.trusted_proxies)
        self._told: set[str] = set()
        self._explaining = 0  # connections that are being told why they are refused

    async def turn_away(self, stream: trio.abc.Stream) -> None:
        """Say 503 to a connection of which nothing has been read. It is the caller's to close.

        To plain HTTP only: a TLS handshake is dearer than the news is worth. And to few at a time:
        whoever is over a limit must not take the places of others by listening slowly.
        """
        secure = self._certificates is not None or isinstance(stream, trio.SSLStream)
        if secure or self._explaining >= MAX_REFUSALS:
            return
        if not isinstance(stream, trio.abc.HalfCloseableStream):
            return
        self._explaining += 1
        try:
            with trio.move_on_after(self._settings.linger_timeout):
                await stream.send_all(CROWDED)
                await stream.send_eof()
                left = LINGER_BYTES
                while left > 0 and (data := await stream.receive_some()):
                    left -= len(data)
        except trio.BrokenResourceError:
            pass
        finally:
            self._explaining -= 1

    def look(self, stream: trio.abc.Stream) -> Peer:
        """Say who has connected, as far as the socket knows."""
        if not isinstance(stream, trio.SocketStream):
            return Peer()
        if stream.socket.family == trio.socket.AF_UNIX:
            return Peer(trusted=self._proxies.unix)
        client = _address(stream.socket.getpeername)
        return self._placed(client, _address(stream.socket.getsockname))

    def _placed(self, client: Address | None, server: Address | None) -> Peer:
        trusted = client is not None and self._proxies.trusts(client[0])
        place = None if trusted else place_of(client)
        return Peer(client=client, server=server, trusted=trusted, place=place)

    async def meet(self, stream: trio.abc.Stream, peer: Peer) -> Peer:
        """Read the PROXY header of a trusted proxy, if it has to send one.

        Reads not one byte more than that. Anybody else's would be read as HTTP or TLS, and
        refused there.

        Raises:
            ProxyHeaderError: there is none; logged, once for each address.
            trio.TooSlowError: it does not come within `header_timeout`.
            trio.BrokenResourceError: the peer has gone.
        """
        if not self._settings.proxy_protocol or not peer.trusted:
            return peer
        header = ProxyHeader()
        try:
            with trio.fail_after(self._settings.header_timeout):
                while header.done is None:
                    data = await stream.receive_some(header.wanted)
                    if not data:
                        raise trio.BrokenResourceError("the peer has gone")
                    header.feed(bytes(data))
        except ProxyHeaderError as error:
            self._tell(peer, error)
            raise
        said = header.done
        if said.local:
            return peer
        return self._placed(said.client, said.server)

    def _tell(self, peer: Peer, error: Exception) -> None:
        who = "a Unix socket" if peer.client is None else peer.client[0]
        if who not in self._told and len(self._told) < 100:
            self._told.add(who)
            LOGGER.warning("trusted proxy %s sent no usable PROXY header: %s", who, error)

    async def secure(self, stream: trio.abc.Stream) -> trio.SSLStream[trio.abc.Stream] | None:
        """Do the TLS handshake; None if this service has no TLS and the stream is none.

        Raises:
            trio.TooSlowError: it takes longer than `header_timeout`.
            trio.BrokenResourceError: it failed.
        """
        if isinstance(stream, trio.SSLStream):
            secure = cast("trio.SSLStream[trio.abc.Stream]", stream)
        elif self._certificates is not None:
            secure = trio.SSLStream(
                stream, self._certificates.context, server_side=True, https_compatible=True
            )
        else:
            return None
        with trio.fail_after(self._settings.header_timeout):
            await secure.do_handshake()
        return secure

    def admit(self, scope: Scope, peer: Peer) -> tuple[str | None, int | None]:
        """Put into a scope what is known of its client; count a request that a proxy passes on.

        Returns:
            The place it takes among the addresses, which is to be left at its end, and the status
            to refuse it with if it is to be refused.
        """
        if peer.tls is not None:
            cast("dict[str, object]", scope["extensions"])["tls"] = peer.tls
        if not peer.trusted:
            return None, None
        fields = cast("list[tuple[bytes, bytes]]", scope["headers"])
        try:
            said = self._proxies.read(fields)
        except ForwardingError:
            return None, BAD_REQUEST
        if said is None:
            return None, None
        if said.scheme is not None:
            socket = scope["type"] == "websocket"
            scope["scheme"] = said.scheme.replace("http", "ws") if socket else said.scheme
        if said.host is not None:
            kept = [field for field in fields if field[0] != b"host"]
            scope["headers"] = [(b"host", said.host.encode("ascii")), *kept]
        if said.client is None:
            return None, None
        scope["client"] = said.client
        place = None if self._proxies.trusts(said.client[0]) else place_of(said.client)
        return (place, None) if self.crowd.enter(place) else (None, TOO_MANY)


def with_tls(peer: Peer, stream: trio.SSLStream[trio.abc.Stream]) -> Peer:
    """The peer, after the handshake.

    Raises:
        UnfitCertificateError: its certificate does not count.
    """
    return attrs.evolve(peer, tls=tls_extension(stream))


def _address(name: Callable[[], object]) -> Address | None:
    """Return host and port of a socket's end; None if it has gone or is not an IP socket."""
    try:
        address = name()
    except OSError:
        return None
    if isinstance(address, tuple):
        match cast("tuple[object, ...]", address):
            case (str(host), int(port), *_):
                return host, port
            case _:
                return None
    return None
