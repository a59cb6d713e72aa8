"""URLs that others name: which of them may be visited, and how they are compared and built.

Nothing is normalised before it is sent or compared with what a server says of itself; only
origins are compared by meaning.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

import attrs

from mcp_trio.errors import UnauthorizedError
from mcp_trio.network_guard import is_loopback
from mcp_trio.secrets import shown_url

_PORTS = {"http": 80, "https": 443}


@attrs.frozen
class Origin:
    """Scheme, host and port of a URL."""

    scheme: str
    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether it is this machine."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = _PORTS[self.scheme] == self.port
        return f"{self.scheme}://{host}" if default else f"{self.scheme}://{host}:{self.port}"


def split(url: str) -> SplitResult:
    """Take an http(s) URL apart.

    Raises:
        UnauthorizedError: it is none.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    # Nor what steers a terminal, where it may be shown.
    dirty = any(character in ' \\"<>' or not character.isprintable() for character in url)
    if dirty or parts.scheme not in _PORTS or not parts.hostname:
        raise UnauthorizedError("the server names something that is no http or https URL")
    return parts


def origin_of(url: str) -> Origin:
    """The origin of an http(s) URL.

    Raises:
        UnauthorizedError: it is none.
    """
    parts = split(url)
    return Origin(parts.scheme, (parts.hostname or "").lower(), parts.port or _PORTS[parts.scheme])


def check_named(url: str, server: Origin) -> str:
    """Judge a URL that a server named, by what it says; addresses are judged on connecting.

    It has to be https. Only a server on this machine may name others on it, and by plain http.

    Raises:
        UnauthorizedError: it must not be visited.
    """
    parts = split(url)
    found = origin_of(url)
    if parts.username is not None or parts.password is not None:
        raise UnauthorizedError(f"{shown_url(url)} carries a user name")
    if found.loopback and not server.loopback:
        raise UnauthorizedError(f"{server} must not send us to this machine: {shown_url(url)}")
    if found.scheme != "https" and not found.loopback:
        raise UnauthorizedError(f"{shown_url(url)} is not https")
    return url


def covers(resource: str, url: str) -> bool:
    """Whether a resource, as its metadata names it, is the server at `url` or a part above it."""
    try:
        mine, theirs = split(url), split(resource)
        if origin_of(resource) != origin_of(url) or "#" in resource:
            return False
    except UnauthorizedError:
        return False
    if theirs.query and theirs.query != mine.query:
        return False
    return f"{mine.path.rstrip('/')}/".startswith(f"{theirs.path.rstrip('/')}/")


def canonical(url: str) -> str:
    """A server as a resource where no metadata names it: without fragment and trailing slash."""
    return url.partition("#")[0].rstrip("/")


def well_known(url: str, name: str) -> str:
    """Put `/.well-known/name` between host and path (RFC 8414, section 3.1)."""
    parts = split(url)
    path = parts.path if parts.path != "/" else ""
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}/.well-known/{name}{path}{query}"
