"""Where the service listens: what must not clash, and what must not be open by accident."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from mcp_trio.config.faults import Fault
from mcp_trio.config.server import ServerSection
from mcp_trio.config.settings import Settings
from mcp_trio.http.binding import inherited_hosts
from mcp_trio.http.options import HTTPOptions
from mcp_trio.http.probes import PROBES

_EVERYWHERE = {"0.0.0.0": 4, "::": 6}  # noqa: S104 - addresses that are looked for
"""Addresses that stand for all, by version of IP."""


_MAX_SOCKET_PATH = 107
"""Bytes of the path of a Unix socket on Linux (unix(7)), the last one of which is none."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def listening_faults(
    settings: Settings, environment: Mapping[str, str], folder: Path
) -> Iterator[Fault]:
    """What is wrong with addresses, ports and paths as a whole.

    Args:
        settings: all of them.
        folder: what relative paths are relative to.
        environment: names the sockets that the service manager has opened for this process.
    """
    yield from _path_faults(settings)
    yield from _port_faults(settings)
    yield from _socket_faults(settings.server, folder)
    if settings.server.proxy_protocol and not settings.server.trusted_proxies:
        yield Fault(
            path=("server", "proxy_protocol"),
            reason="nobody is trusted to send a PROXY header, so each one is refused",
            advice="Name the proxies in server.trusted_proxies, or leave this out.",
        )
    yield from _open_faults(settings, environment)


def _open_faults(settings: Settings, environment: Mapping[str, str]) -> Iterator[Fault]:
    """Beyond this machine nothing is open that is not said to be."""
    server, admin, tls = settings.server, settings.admin, settings.tls
    # Who shows a certificate has said who he is; and what [auth] lets through it says itself.
    demanded = tls is not None and tls.client_certificates == "required"
    known = demanded or settings.auth is not None
    path = ("server", "socket_activation" if server.socket_activation else "host")
    if not all(map(is_loopback, _hosts(server, environment))):
        if not known and not server.allow_anonymous:
            yield Fault(
                path=path,
                reason="is reached from beyond this machine, and nobody is asked who they are",
                advice="Safer: add [auth], or listen on 127.0.0.1 behind a proxy that knows the "
                "callers. If everybody who gets there may call every tool: "
                "server.allow_anonymous = true.",
            )
        if tls is None and not server.allow_plaintext:
            yield Fault(
                path=path,
                reason="is reached from beyond this machine, and without TLS all can be read",
                advice="Safer: add [tls], or listen on 127.0.0.1 behind a proxy that speaks it. If "
                "the network is trusted: server.allow_plaintext = true.",
            )
    if admin is not None and not is_loopback(admin.host) and not admin.allow_remote:
        yield Fault(
            path=("admin", "host"),
            reason="is reached from beyond this machine, and the admin listener asks nobody who "
            "they are",
            advice="Safer: listen on 127.0.0.1, and reach it through a tunnel. If only operators "
            "get there: admin.allow_remote = true.",
        )


def _hosts(server: ServerSection, environment: Mapping[str, str]) -> list[str]:
    """The addresses that others may reach; a Unix socket has none."""
    if server.socket_activation:
        return inherited_hosts(environment)
    return [] if server.unix_socket is not None else [server.host]


def _port_faults(settings: Settings) -> Iterator[Fault]:
    server, admin = settings.server, settings.admin
    if (
        admin is not None
        and server.unix_socket is None
        and not server.socket_activation
        and admin.port == server.port != 0
        and _same_place(admin.host, server.host)
    ):
        yield Fault(
            path=("admin", "port"),
            reason=f"{server.port} is the port of [server], too",
            advice="Give the two listeners ports of their own.",
        )


def _socket_faults(server: ServerSection, folder: Path) -> Iterator[Fault]:
    """A Unix socket that could not be made. One that is in use is told by whoever wants it."""
    if server.unix_socket is None or server.socket_activation:
        return
    path = folder / server.unix_socket
    reason = None
    if len(os.fsencode(path.absolute())) > _MAX_SOCKET_PATH:
        reason = f"is longer than {_MAX_SOCKET_PATH} bytes with its folders"
    elif not path.parent.is_dir():
        reason = f"there is no folder {path.parent}"
    elif path.is_symlink() or (path.exists() and not path.is_socket()):
        reason = f"{path} is there, and no socket"
    if reason is not None:
        advice = "Give a path in a folder of the service, such as /run/mcp-trio/mcp.sock."
        yield Fault(path=("server", "unix_socket"), reason=reason, advice=advice)


def _path_faults(settings: Settings) -> Iterator[Fault]:
    server = settings.server
    path = server.path.rstrip("/")
    legacy = frozenset[str]()
    if server.legacy_sse:
        options = HTTPOptions()
        legacy = frozenset({options.legacy_sse_path or "", options.legacy_messages_path})
    if path in legacy:
        yield Fault(
            path=("server", "path"),
            reason=f"{path} is a path of the HTTP+SSE transport",
            advice="Choose another path, or set server.legacy_sse = false.",
        )
    for name in settings.toolsets:
        where = f"{path}/{name}"
        if where in legacy | PROBES:
            owner = "the probes" if where in PROBES else "the HTTP+SSE transport"
            yield Fault(
                path=("toolsets", name),
                reason=f"its path {where} is one of {owner}",
                advice="Choose another name, or another server.path.",
            )


def _same_place(one: str, other: str) -> bool:
    """Whether two listeners on one port get into each other's way."""
    pairs = ((one, other), (other, one))
    return one.lower() == other.lower() or any(_covers(*pair) for pair in pairs)


def _covers(host: str, other: str) -> bool:
    address = _address(other)
    if host.lower() == "localhost":
        return address is not None and str(address) in {"127.0.0.1", "::1"}
    version = _EVERYWHERE.get(host)
    # A name may be an address of either version.
    return version is not None and (address is None or address.version == version)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
