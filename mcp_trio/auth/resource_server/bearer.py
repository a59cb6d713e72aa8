"""The token in a request, found where it may stand and nowhere else (RFC 6750, RFC 9449)."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import attrs

from mcp_trio.abc import RequestHead
from mcp_trio.secrets import Secret

BEARER, DPOP = "Bearer", "DPoP"
_SCHEMES = {"bearer": BEARER, "dpop": DPOP}
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""RFC 6750, section 2.1."""


class MalformedError(Exception):
    """The request shows a token as it must not. The text may be told."""


@attrs.frozen
class Shown:
    """A token, and how it was sent."""

    scheme: str
    token: Secret


def read_token(head: RequestHead) -> Shown | None:
    """Find the token of a request; None if there is none.

    Raises:
        MalformedError: there are two, it is no token, or it stands in the URL, where logs and
            other pages see it (RFC 6750, section 2.3, which nobody supports here).
    """
    if "access_token" in parse_qs(urlsplit(head.url).query, keep_blank_values=True):
        raise MalformedError("a token must not be in the URL")
    fields = head.values("authorization")
    if len(fields) > 1:
        raise MalformedError("more than one Authorization was sent")
    named, _, rest = "".join(fields).strip(" \t").partition(" ")
    scheme = _SCHEMES.get(named.lower())
    if scheme is None:
        return None
    token = rest.strip(" \t")
    if not _TOKEN.fullmatch(token):
        raise MalformedError("what stands in Authorization is no token")
    return Shown(scheme, Secret(token))
