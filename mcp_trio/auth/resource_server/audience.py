"""Names of a protected resource, compared by what they mean (RFC 8707, section 2).

The same server is written with and without its default port or a slash at the end, and its host
in any case. Nothing else is equal: a token for one path is none for another.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from mcp_trio.errors import ConfigurationError

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def normal(name: str) -> str:
    """One spelling for all that are equal. What is no http(s) URL stays as it is."""
    return _normal(name, target=False)


def normal_target(url: str) -> str:
    """The same for the target of a request, whose path is not changed; without its query.

    A WebSocket is opened by an HTTP request, so `ws` is `http`.
    """
    return _normal(url, target=True)


def _normal(name: str, *, target: bool) -> str:
    try:
        parts = urlsplit(name)
        port = parts.port
    except ValueError:
        return name
    scheme = (
        {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme) if target else parts.scheme
    )
    if scheme not in {"http", "https"} or not parts.hostname:
        return name
    if not target and "#" in name:  # which no name of a resource has
        return name
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port in {None, _PORTS[scheme]} else f"{host}:{port}"
    if target:
        return f"{scheme}://{place}{parts.path or '/'}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{scheme}://{place}{parts.path.rstrip('/')}{query}"


def check_resource(url: str) -> str:
    """Judge the name of our own resource.

    Raises:
        ConfigurationError: it is no absolute http(s) URL, or has a user, a query or a fragment.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    clean = url.isascii() and url.isprintable() and not any(mark in url for mark in ' "<>\\#?@')
    if parts.scheme not in {"http", "https"} or not parts.hostname or not clean:
        raise ConfigurationError(
            f"the resource is the URL of the endpoint as clients see it, not {url[:200]!r}"
        )
    return url
