"""`[server]`: who we are, where we listen, and what we allow."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from mcp_trio.config.addresses import ENDPOINT, HOST, HOSTS, ORIGINS
from mcp_trio.config.keys import read_key
from mcp_trio.config.limits import LimitsSection
from mcp_trio.errors import ConfigurationError
from mcp_trio.http.binding import Place
from mcp_trio.http.options import LEGACY_SSE_PATH, HTTPOptions
from mcp_trio.http.proxies import TrustedProxies
from mcp_trio.http.serving_settings import ServingSettings
from mcp_trio.server.server import ServerOptions
from mcp_trio.session.limits import LoadLimits
from mcp_trio.setting_rules import NOT_NEGATIVE, PORT, POSITIVE, Rule

WORKERS = Rule("must be 1 to 64", lambda number: 1 <= number <= 64)
MODE = Rule("must be three octal digits", lambda mode: re.fullmatch("0?[0-7]{3}", mode) is not None)


def _are_proxies(names: list[str]) -> bool:
    try:
        TrustedProxies.of(names)
    except ConfigurationError:
        return False
    return True


PROXIES = Rule("must be networks, addresses or `unix`", _are_proxies)


@attrs.frozen(kw_only=True)
class ServerSection:
    """`[server]`: who we are, where we listen, and what we allow. All keys are optional."""

    name: str = "mcp-trio"
    """How the server calls itself to clients."""
    version: str = "0"
    """The version it tells them."""
    instructions: str | None = None
    """Advice for the model."""
    host: str = attrs.field(default="127.0.0.1", validator=HOST)
    """Address to listen on."""
    port: int = attrs.field(default=8000, validator=PORT)
    """Port to listen on; 0 picks a free one."""
    unix_socket: str | None = None
    """Path of a Unix socket to listen on in place of host and port, relative to the settings
    file. A socket file that nobody serves is replaced."""
    unix_mode: str = attrs.field(default="600", validator=MODE)
    """Permissions of its file."""
    socket_activation: bool = False
    """Listen on the sockets that systemd has opened (`LISTEN_FDS`), in place of all these."""
    trusted_proxies: list[str] = attrs.field(factory=list[str], validator=PROXIES)
    """Networks such as `10.0.0.0/8`, and `unix`, whose `Forwarded` or `X-Forwarded-For`, `-Proto`
    and `-Host` are believed."""
    proxy_protocol: bool = False
    """Trusted proxies begin each connection with a PROXY header."""
    allow_anonymous: bool = False
    """Listen beyond this machine without asking callers who they are."""
    allow_plaintext: bool = False
    """Listen beyond this machine without TLS."""
    path: str = attrs.field(default="/mcp", validator=ENDPOINT)
    """Path of the endpoint."""
    legacy_sse: bool = True
    """Serve clients of the HTTP+SSE transport at `/sse` and `/messages`."""
    allowed_hosts: list[str] = attrs.field(factory=list[str], validator=HOSTS)
    """Host names served besides those of the address; `*` for every name."""
    allowed_origins: list[str] = attrs.field(factory=list[str], validator=ORIGINS)
    """Web origins served besides the server's own."""
    request_timeout: float = attrs.field(default=60.0, validator=POSITIVE)
    """Seconds a request may take."""
    page_size: int = attrs.field(default=200, validator=POSITIVE)
    """Tools on one page of a listing."""
    max_body: int = attrs.field(default=4 * 1024 * 1024, validator=POSITIVE)
    """Bytes of a request body."""
    max_depth: int = attrs.field(default=64, validator=POSITIVE)
    """Nesting of a JSON body."""
    workers: int = attrs.field(default=1, validator=WORKERS)
    """Processes that serve the port together. Limits of all together are shared out among them
    ([load](load.md#several-processes))."""
    worker_timeout: float = attrs.field(default=30.0, validator=POSITIVE)
    """Seconds that one of them may take to say that it lives; then it is killed, and another one
    takes its place."""
    max_connections: int = attrs.field(default=1000, validator=POSITIVE)
    """TCP connections."""
    max_sessions: int = attrs.field(default=1000, validator=POSITIVE)
    """Sessions of clients that speak a handshake revision, and WebSockets."""
    max_in_flight: int = attrs.field(default=1000, validator=POSITIVE)
    """Requests that run at once."""
    session_idle_timeout: float = attrs.field(default=1800.0, validator=POSITIVE)
    """Seconds of silence after which a session ends."""
    header_timeout: float = attrs.field(default=10.0, validator=POSITIVE)
    """Seconds for the head of a request to arrive."""
    body_timeout: float = attrs.field(default=30.0, validator=POSITIVE)
    """Seconds for the body of a request to arrive."""
    write_timeout: float = attrs.field(default=30.0, validator=POSITIVE)
    """Seconds that a client may take while it reads less than 4 KiB of what waits for it."""
    listener_patience: float = attrs.field(default=30.0, validator=POSITIVE)
    """Seconds a client that listens for changes may leave one untaken."""
    state_keys: list[str] = attrs.field(factory=list[str])
    """Keys that seal what a question of a tool remembers, each as `env:NAME` or `file:PATH` of 32
    random bytes in hex or base64. The first one seals, every one opens; share them between
    replicas, and to rotate put a new one first."""
    list_beyond_scopes: bool = False
    """List tools also to callers who lack only scopes for them, so that clients ask for these."""
    cursor_key: str | None = None
    """Key that seals cursors of listings, in the same form; share it between replicas."""
    cleanup_timeout: float = attrs.field(default=5.0, validator=POSITIVE)
    """Seconds a cancelled request may shield itself for cleanup."""
    grace_period: float = attrs.field(default=10.0, validator=POSITIVE)
    """Seconds that running requests may go on once the service drains."""
    drain_delay: float = attrs.field(default=0.0, validator=NOT_NEGATIVE)
    """Seconds after SIGTERM in which everything is served as before, while `/readyz` says 503, so
    that load balancers look elsewhere first; then the service drains."""

    def place(self, folder: Path) -> Place:
        """Where to listen.

        Args:
            folder: what relative paths are relative to.
        """
        return Place(
            host=self.host,
            port=self.port,
            unix=None if self.unix_socket is None else folder / self.unix_socket,
            unix_mode=int(self.unix_mode, 8),
            inherited=self.socket_activation,
        )

    def http_options(self, limits: LimitsSection) -> HTTPOptions:
        """The settings of the endpoint."""
        return HTTPOptions(
            path=self.path,
            legacy_sse_path=LEGACY_SSE_PATH if self.legacy_sse else None,
            allowed_hosts=frozenset(self.allowed_hosts),
            allowed_origins=frozenset(self.allowed_origins),
            max_body=self.max_body,
            body_timeout=self.body_timeout,
            max_depth=self.max_depth,
            max_nodes=limits.max_nodes,
            max_batch=limits.max_batch,
            # Each of them has to have room for one body.
            max_total_body=max(self.max_body, self.share(limits.max_total_body)),
            max_sessions=self.share(self.max_sessions),
            session_idle_timeout=self.session_idle_timeout,
            cleanup_timeout=self.cleanup_timeout,
        )

    def share(self, total: int) -> int:
        """The part of one process of a limit for all of them, rounded up."""
        return -(-total // self.workers)

    def of_one(self, most: int, total: int) -> int:
        """What one caller or address may have in one process, of a limit that all have together.

        All of it, as his requests may all come to the same process; but no more than half of what
        that process has for all, or he could take the whole share of each process, and with them
        the total. A limit that is none, as it is no less than the total, stays.
        """
        if self.workers == 1 or most >= total:
            return most
        return min(most, -(-self.share(total) // 2))

    def serving_settings(self, limits: LimitsSection) -> ServingSettings:
        """The settings of the socket layer."""
        return ServingSettings(
            max_connections=self.share(self.max_connections),
            header_timeout=self.header_timeout,
            # The endpoint gives up first, with an answer that says why.
            body_timeout=self.body_timeout + 1,
            write_timeout=self.write_timeout,
            grace_period=self.grace_period,
            max_websocket_message_bytes=self.max_body,
            trusted_proxies=tuple(self.trusted_proxies),
            proxy_protocol=self.proxy_protocol,
            max_connections_per_address=self.of_one(
                limits.max_connections_per_address, self.max_connections
            ),
            max_header_bytes=limits.max_header_bytes,
            max_header_fields=limits.max_header_fields,
            max_url_bytes=limits.max_url_bytes,
            max_requests_per_connection=limits.max_requests_per_connection,
            max_concurrent_streams=limits.max_concurrent_streams,
            keep_alive_timeout=limits.keep_alive_timeout,
            max_resets=limits.max_resets,
            max_idle_frames=limits.max_idle_frames,
            flood_window=limits.flood_window,
            max_total_websocket_bytes=max(
                self.max_body, self.share(limits.max_total_websocket_bytes)
            ),
            max_websocket_fragments=limits.max_websocket_fragments,
            max_websocket_pings=limits.max_websocket_pings,
        )

    def server_options(
        self,
        folder: Path,
        environment: Mapping[str, str] = os.environ,
        load: LoadLimits | None = None,
    ) -> ServerOptions:
        """The settings of the server itself, with their keys fetched.

        Args:
            folder: what relative paths are relative to.
            environment: where `env:` keys are looked up.
            load: how much it does at once.

        Raises:
            ConfigurationError: a key is missing or is none.
        """
        keys = [
            read_key(text, "server.state_keys", folder, environment) for text in self.state_keys
        ]
        cursor = self.cursor_key
        return ServerOptions(
            request_timeout=self.request_timeout,
            load=load or LoadLimits(),
            page_size=self.page_size,
            cleanup_timeout=self.cleanup_timeout,
            listener_patience=self.listener_patience,
            list_beyond_scopes=self.list_beyond_scopes,
            state_keys=tuple(keys),
            cursor_secret=None
            if cursor is None
            else read_key(cursor, "server.cursor_key", folder, environment),
        )
