"""`[limits]`: what one client may use up, beside the bounds of `[server]`."""

from __future__ import annotations

import attrs

from mcp_trio.setting_rules import NOT_NEGATIVE, POSITIVE


@attrs.frozen(kw_only=True)
class LimitsSection:
    """`[limits]`: what one client may use up, beside the bounds of `[server]`.

    What a client sees beyond each of them stands in [connections](connections.md#limits) and
    [load](load.md).
    """

    max_connections_per_address: int = attrs.field(default=256, validator=POSITIVE)
    """Connections of one address, or one /64 of IPv6; behind a trusted proxy, requests of one
    address that run at once. With `workers`, so many of one address that are passed on at once to
    the worker that has their session, too."""
    max_header_bytes: int = attrs.field(default=32768, validator=POSITIVE)
    """Bytes of a request head: of its target, and of each field its name, its value and four."""
    max_header_fields: int = attrs.field(default=100, validator=POSITIVE)
    """Fields of a request head."""
    max_url_bytes: int = attrs.field(default=8192, validator=POSITIVE)
    """Bytes of a path and query."""
    max_nodes: int = attrs.field(default=100_000, validator=POSITIVE)
    """Values in a JSON body: one, and one for each comma and each opening bracket, so that an
    array or object with nothing in it counts twice."""
    max_total_body: int = attrs.field(default=256 * 1024 * 1024, validator=POSITIVE)
    """Bytes of all request bodies together, until they are answered."""
    max_batch: int = attrs.field(default=100, validator=POSITIVE)
    """Messages in an array."""
    max_requests_per_connection: int = attrs.field(default=10_000, validator=POSITIVE)
    """Requests before a connection is closed."""
    max_concurrent_streams: int = attrs.field(default=100, validator=POSITIVE)
    """HTTP/2 requests that a connection may have in flight."""
    keep_alive_timeout: float = attrs.field(default=60.0, validator=POSITIVE)
    """Seconds that a connection may idle between requests."""
    max_resets: int = attrs.field(default=1000, validator=POSITIVE)
    """HTTP/2 streams reset within `flood_window`."""
    max_idle_frames: int = attrs.field(default=10_000, validator=POSITIVE)
    """HTTP/2 frames within `flood_window` that carry nothing of a request."""
    flood_window: float = attrs.field(default=30.0, validator=POSITIVE)
    """Seconds in which as many frames become allowed again as are allowed at once."""
    max_in_flight_per_caller: int = attrs.field(default=500, validator=POSITIVE)
    """Requests of one caller that run at once: of a principal or, if nobody in particular, of an
    address. `server.max_in_flight` is that of all together."""
    max_in_flight_per_session: int | None = attrs.field(default=None, validator=POSITIVE)
    """Requests of one session that run at once; none: only the others count."""
    max_listeners: int = attrs.field(default=10_000, validator=POSITIVE)
    """`subscriptions/listen` requests open at once. They do not count as requests that run."""
    max_listeners_per_caller: int = attrs.field(default=1000, validator=POSITIVE)
    """The same of one caller."""
    queue_length: int = attrs.field(default=0, validator=NOT_NEGATIVE)
    """Requests that may wait for their turn when too many run; 0 refuses at once. Callers take
    turns, and a full queue refuses the last one of who has most in it."""
    queue_timeout: float = attrs.field(default=5.0, validator=POSITIVE)
    """Seconds that a request waits for its turn at most."""
    max_total_websocket_bytes: int = attrs.field(default=256 * 1024 * 1024, validator=POSITIVE)
    """Bytes of all WebSocket messages together that have yet to arrive whole."""
    max_websocket_fragments: int = attrs.field(default=1024, validator=POSITIVE)
    """Frames of one WebSocket message. Its bytes are bounded by `server.max_body`."""
    max_websocket_pings: int = attrs.field(default=100, validator=POSITIVE)
    """WebSocket pings and pongs within `flood_window`."""
