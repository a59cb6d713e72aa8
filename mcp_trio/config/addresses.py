"""What a setting that names a place on the network must be.

That is where to listen, who may ask, and whom to tell. Whether such a place is there is for
whoever uses it to find out.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from mcp_trio.http.probes import PROBES
from mcp_trio.setting_rules import Rule

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}")
_PATH = re.compile(r"/[A-Za-z0-9/._~!$&'()*+,;=:@-]*")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/:\[\]]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?/?")
_WELL_KNOWN = "/.well-known"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_name(text: str) -> bool:
    # A last part of digits is an address that was mistyped, and no name (RFC 1123, section 2.1).
    return _NAME.fullmatch(text) is not None and not text.rpartition(".")[2].isdigit()


def _is_host(text: str) -> bool:
    return _is_address(text) or _is_name(text)


def _is_written_in_host(text: str) -> bool:
    """Whether a `Host` may name it so: an address of IPv6 stands in brackets there."""
    if text.startswith("[") and text.endswith("]"):
        return ":" in text and _is_address(text[1:-1])
    return ":" not in text and _is_host(text)


def _is_origin(text: str) -> bool:
    found = _ORIGIN.fullmatch(text)
    return found is not None and _is_written_in_host(found[1])


def _is_endpoint(path: str) -> bool:
    bare = path.rstrip("/")
    return (
        _PATH.fullmatch(path) is not None
        and bare not in PROBES
        and not f"{bare}/".startswith(f"{_WELL_KNOWN}/")
    )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc


HOST = Rule(
    "must be an address such as 127.0.0.1 or ::1, or a host name: no brackets, scheme or port",
    _is_host,
)
HOSTS = Rule(
    "must be host names without scheme and port, or `*`",
    lambda names: all(name == "*" or _is_written_in_host(name) for name in names),
)
ORIGINS = Rule(
    "must be origins such as `https://app.example`, with a scheme and without a path, or `*`",
    lambda origins: all(each in {"*", "null"} or _is_origin(each) for each in origins),
)
ENDPOINT = Rule(
    "must begin with a slash, have no `%`, `?` or blank, and not be "
    f"{' or '.join(sorted(PROBES))} or in {_WELL_KNOWN}",
    _is_endpoint,
)
URL = Rule("must be an http or https URL", _is_url)
URLS = Rule("must be http or https URLs", lambda texts: all(map(_is_url, texts)))
COLLECTOR = Rule(
    "must be an http or https URL, without the `/v1/traces` or `/v1/metrics` that is put behind it",
    lambda text: _is_url(text) and not text.rstrip("/").endswith(("/v1/traces", "/v1/metrics")),
)
