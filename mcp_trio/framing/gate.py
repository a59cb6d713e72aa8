"""Who may talk to the endpoint at all: Host, Origin, Accept and Content-Type as verdicts.

Pure functions over header values; the HTTP layer turns a `Refusal` into a response.
The Host and Origin checks are the defence against DNS rebinding (H1, N2, SEC3): a web
page can point its own name at this machine, but it cannot choose what the browser
writes into Host and Origin.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Mapping

import attrs

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
JSON = "application/json"
EVENT_STREAM = "text/event-stream"
_QVALUE = re.compile(r"[01](\.[0-9]*)?")


@attrs.frozen
class Refusal:
    """Why a request is not served. `reason` is safe to send, `hint` is for the log."""

    status: int
    reason: str
    hint: str = ""


@attrs.frozen(kw_only=True)
class GatePolicy:
    """Which names this server answers to, and which web origins may use it."""

    hosts: frozenset[str] = LOOPBACK_NAMES
    """Host names without port, in lower case; `*` allows every one."""
    origins: frozenset[str] = frozenset()
    """Whole origins such as `https://app.example`, in lower case, besides the server's own."""
    any_address: bool = False
    """Accept every IP literal as Host, for binds beyond loopback. A rebinding attacker
    needs a name, so an address is no risk."""


_AUTHORITY = r"(\[[0-9a-f:.]+\]|[^\s\[\]:/?#@\\,]+)(?::[0-9]{0,5})?"
_HOST = re.compile(_AUTHORITY)
_ORIGIN = re.compile(r"https?://" + _AUTHORITY)


def _host_name(value: str, form: re.Pattern[str] = _HOST) -> str:
    """The name without port, in lower case: `[::1]:80` is `[::1]`. Empty if there is none.

    Anything beside a name and a port, such as user information, makes it no host at all.
    """
    found = form.fullmatch(value.lower())
    return found[1].removesuffix(".") if found else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _known(name: str, policy: GatePolicy) -> bool:
    return (
        name in policy.hosts
        or "*" in policy.hosts
        or (policy.any_address and _is_address(name))
        or (name in LOOPBACK_NAMES and not policy.hosts.isdisjoint(LOOPBACK_NAMES))
    )


def check_source(headers: Mapping[str, str], policy: GatePolicy) -> Refusal | None:
    """Judge Host and Origin."""
    host = _host_name(headers.get("host", ""))
    if not _known(host, policy):
        return Refusal(403, "Host is not allowed", "add it to allowed_hosts to serve it")
    origin = headers.get("origin")
    if origin is None:
        return _embedded(headers)
    if origin_allowed(origin.lower(), host, policy):
        return None
    return Refusal(403, "Origin is not allowed", "add it to allowed_origins to serve it")


def _embedded(headers: Mapping[str, str]) -> Refusal | None:
    """Judge a request without an origin, as browsers send it for images, scripts and frames.

    The page of another site that has them cannot read the answer, but it has us do the work.
    Browsers say of what they send where it comes from (Fetch Metadata); following a link is fine.
    """
    if headers.get("sec-fetch-site") != "cross-site":
        return None
    if (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document"):
        return None
    return Refusal(403, "A page of another site has sent this", "open it by itself")


def origin_allowed(origin: str, host: str, policy: GatePolicy) -> bool:
    """Tell whether a web page of this origin may use the server."""
    if origin in policy.origins or "*" in policy.origins:
        return True
    name = _host_name(origin, _ORIGIN)
    if name in LOOPBACK_NAMES:
        return host in LOOPBACK_NAMES
    # The page came from this very server. With hosts="*" the name proves nothing.
    return name != "" and name == host and "*" not in policy.hosts


@attrs.frozen(kw_only=True)
class Accepts:
    """Which answer forms the client takes."""

    json: bool
    sse: bool


@functools.lru_cache(maxsize=64)  # a client sends the same one with every request
def accepts(value: str | None) -> Accepts:
    """Read an Accept header (RFC 9110, section 12.5.1). None takes everything."""
    if value is None or not value.strip():
        return Accepts(json=True, sse=True)
    weights: dict[str, float] = {}
    for part in value.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weights[media] = _weight(parameters)

    def taken(media: str) -> bool:
        for candidate in (media, media.partition("/")[0] + "/*", "*/*"):
            if candidate in weights:
                return weights[candidate] > 0
        return False

    return Accepts(json=taken(JSON), sse=taken(EVENT_STREAM))


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            return float(value) if _QVALUE.fullmatch(value) else 0.0
    return 1.0


def check_media(headers: Mapping[str, str]) -> Refusal | None:
    """Judge Accept and Content-Type of a POST."""
    form = accepts(headers.get("accept"))
    if not (form.json or form.sse):
        return Refusal(406, f"Accept must allow {JSON} or {EVENT_STREAM}")
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != JSON:
        return Refusal(415, f"Content-Type must be {JSON}")
    return None
