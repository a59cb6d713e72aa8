"""The limits of an HTTP service, in one frozen value. No behaviour lives here."""

import attrs


@attrs.frozen(kw_only=True)
class ServingSettings:
    """Limits of an `HTTPService`. Times are seconds, sizes bytes. Every wait has one of these."""

    max_connections: int = 1000
    """Connections served at once. Further ones are answered 503 and closed: a refusal costs the
    client less than a backlog that nobody accepts from."""

    max_connections_per_address: int = 256
    """Connections of one address, one /64 of IPv6, with 503 like the others. Behind a trusted
    proxy that tells of its clients in header fields, the requests of an address that run at once.
    Unix sockets and trusted proxies themselves are not counted."""

    backlog: int = 512
    """Connections the kernel holds until they are accepted."""

    header_timeout: float = 10.0
    """From the first byte of a request (for the first one: from accept) until its head is
    complete; also the limit of a TLS handshake. Then 408, or a quiet close if nothing came."""

    body_timeout: float = 30.0
    """From the end of the head until the end of the request body. Then 408, unless the response
    has begun; the application is told that the client is gone. HTTP/2 resets the one stream."""

    keep_alive_timeout: float = 60.0
    """Idle time between requests before a quiet close."""

    write_timeout: float = 30.0
    """How long a peer may take next to nothing of what is written to it (less than 4 KiB) before
    it is dropped."""

    max_header_bytes: int = 32768
    """Size of a request head: its target, and of each field its name, its value and four bytes;
    beyond it 431."""

    max_header_fields: int = 100
    """Fields of a request head; beyond it 431."""

    max_url_bytes: int = 8192
    """Size of a request's path and query; beyond it 414."""

    max_requests_per_connection: int = 10_000
    """Requests before a connection is closed, so that load can move elsewhere. HTTP/2 says GOAWAY
    and answers those it has."""

    max_concurrent_streams: int = 100
    """HTTP/2 requests one connection may have in flight."""

    max_resets: int = 1000
    """HTTP/2 streams that are reset within `flood_window`, by the peer or because of what it sent;
    beyond it GOAWAY with ENHANCE_YOUR_CALM. Opening and resetting costs a peer nothing."""

    max_idle_frames: int = 10_000
    """HTTP/2 frames within `flood_window` that carry nothing of a request: SETTINGS, PING,
    WINDOW_UPDATE beyond what answers account for, PRIORITY, empty DATA and CONTINUATION, unknown
    ones. Beyond it GOAWAY with ENHANCE_YOUR_CALM."""

    flood_window: float = 30.0
    """Seconds in which as many frames become allowed again as are allowed at once."""

    max_websocket_message_bytes: int = 4 * 1024 * 1024
    """Size of one WebSocket message; beyond it close code 1009."""

    max_total_websocket_bytes: int = 256 * 1024 * 1024
    """Size of all WebSocket messages together that have yet to arrive whole; beyond it 1009."""

    max_websocket_fragments: int = 1024
    """Frames of one WebSocket message; beyond it close code 1009."""

    max_websocket_pings: int = 100
    """WebSocket pings and pongs within `flood_window`; beyond it close code 1008."""

    disconnect_grace: float = 5.0
    """How long an application may go on after its peer is lost. Then it is cancelled, so that a
    stuck application cannot keep a dead connection for ever."""

    grace_period: float = 10.0
    """How long requests in flight may go on after `HTTPService.drain`. Then they are cancelled."""

    linger_timeout: float = 2.0
    """How long a connection we close is still read, and what it brings discarded: closing over
    unread bytes makes the kernel send RST, which can destroy the answer on its way."""

    trusted_proxies: tuple[str, ...] = ()
    """Networks such as `10.0.0.0/8`, and `unix`, whose `Forwarded` or `X-Forwarded-For`, `-Proto`
    and `-Host` are believed; from others they are ignored."""

    proxy_protocol: bool = False
    """Trusted proxies begin each connection with a PROXY header of version 1 or 2, and are closed
    if they do not; what others send in its place is no HTTP."""
