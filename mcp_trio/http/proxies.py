"""Who is behind the proxies that are trusted, by the fields they add to a request.

Pure functions over a scope's header fields: `Forwarded` (RFC 7239) and `X-Forwarded-For`, `-Proto`
and `-Host`. What a client writes into such a field stands to the left of what its proxy adds, so
lists are read from the right, past addresses that are trusted themselves, to the first that is not.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import attrs

from mcp_trio.errors import ConfigurationError
from mcp_trio.framing.headers import TCHARS

UNIX = "unix"
"""In a list of trusted proxies: whoever connects over a Unix socket."""

Fields: TypeAlias = Iterable[tuple[bytes, bytes]]
IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_FORWARDED = b"forwarded"
_FOR, _PROTO, _HOST = b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"
_NAMES = frozenset({_FORWARDED, _FOR, _PROTO, _HOST})
_HOST_FORM = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_PAIR = re.compile(rf'\s*({TCHARS})=("(?:[^"\\]|\\.)*"|[^\s;,"]*)\s*')
_NODE = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::(\d{1,5}))?")
_SCHEMES = frozenset({"http", "https"})


class ForwardingError(ValueError):
    """The fields contradict each other, or cannot be read: one of them is not the proxy's."""


@attrs.frozen(kw_only=True)
class Forwarding:
    """What trusted proxies say of a request."""

    client: tuple[str, int] | None = None
    """The first address from the right that is not trusted; its port is 0 if it is not told."""
    scheme: str | None = None
    """`http` or `https`, as that address has spoken."""
    host: str | None = None
    """The `Host` it has asked for."""


@attrs.frozen
class TrustedProxies:
    """The addresses whose word counts."""

    networks: tuple[Network, ...] = ()
    unix: bool = False
    """Whoever connects over a Unix socket is trusted, too."""

    @classmethod
    def of(cls, names: Sequence[str]) -> TrustedProxies:
        """Read a list of addresses, networks such as `10.0.0.0/8`, and `unix`.

        Raises:
            ConfigurationError: one of them is none of these.
        """
        networks: list[Network] = []
        for name in names:
            if name == UNIX:
                continue
            try:
                networks.append(ipaddress.ip_network(name))
            except ValueError as error:
                reason = f"trusted_proxies: {name[:80]!r} is no network, address or `unix`"
                raise ConfigurationError(f"{reason}: {error}") from error
        return cls(tuple(networks), UNIX in names)

    def __bool__(self) -> bool:
        return bool(self.networks) or self.unix

    def trusts(self, address: str) -> bool:
        """Tell whether an address is one of them. What is no address is none."""
        found = plain_address(address)
        return found is not None and any(found in network for network in self.networks)

    def read(self, fields: Fields) -> Forwarding | None:
        """Read what the last trusted proxy has passed on; None if it says nothing.

        Where both kinds of fields are there, only what they agree on counts: a proxy writes one
        of them, and the other may be its client's.

        Raises:
            ForwardingError: they name different clients or schemes, or one cannot be read.
        """
        given: dict[bytes, list[str]] = {}
        for name, value in fields:
            if name in _NAMES:
                given.setdefault(name, []).append(value.decode("latin-1"))
        if not given:
            return None
        new = self._standard(given[_FORWARDED]) if _FORWARDED in given else None
        old = self._customary(given) if given.keys() - {_FORWARDED} else None
        if new is None or old is None:
            return new or old
        if None not in {new.client, old.client} and _address(new) != _address(old):
            raise ForwardingError("Forwarded and X-Forwarded-For name different clients")
        if None not in {new.scheme, old.scheme} and new.scheme != old.scheme:
            raise ForwardingError("Forwarded and X-Forwarded-Proto name different schemes")
        return Forwarding(
            client=new.client or old.client,
            scheme=new.scheme if new.scheme == old.scheme else None,
            host=new.host if new.host == old.host else None,
        )

    def _standard(self, lines: list[str]) -> Forwarding:
        elements = _elements(",".join(lines))
        index, client = self._first_untrusted([each.get("for", "") for each in elements])
        if index is None:
            return Forwarding()
        chosen = elements[index]
        return Forwarding(
            client=client, scheme=_scheme(chosen.get("proto")), host=_host(chosen.get("host"))
        )

    def _customary(self, given: dict[bytes, list[str]]) -> Forwarding:
        hops = _list(given.get(_FOR, []))
        index, client = self._first_untrusted(hops)
        return Forwarding(
            client=client,
            scheme=_scheme(_beside(_list(given.get(_PROTO, [])), index, len(hops))),
            host=_host(_beside(_list(given.get(_HOST, [])), index, len(hops))),
        )

    def _first_untrusted(self, hops: list[str]) -> tuple[int | None, tuple[str, int] | None]:
        """The place and address of the one that counts; a hop that hides its client counts."""
        place = len(hops) - 1 if hops else None
        known: tuple[str, int] | None = None
        for index in range(len(hops) - 1, -1, -1):
            node = _node(hops[index])
            if node is None:
                break
            place, known = index, node
            if not self.trusts(node[0]):
                break
        return place, known


def _address(forwarding: Forwarding) -> str | None:
    return None if forwarding.client is None else forwarding.client[0]


def plain_address(text: str) -> IPAddress | None:
    """Read an address; one of IPv4 that is written as IPv6 is itself. None for anything else."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _list(lines: list[str]) -> list[str]:
    return [part.strip() for part in ",".join(lines).split(",")] if lines else []


def _beside(values: list[str], index: int | None, hops: int) -> str | None:
    """The value that belongs to a hop: there is one for each, or one in all."""
    if not values:
        return None
    return values[index] if index is not None and len(values) == hops else values[-1]


def _elements(text: str) -> list[dict[str, str]]:
    """Read `Forwarded`: elements between commas, pairs between semicolons, values maybe quoted.

    Raises:
        ForwardingError: it is not written that way.
    """
    elements: list[dict[str, str]] = [{}]
    at = 0
    while True:
        found = _PAIR.match(text, at)
        if found is None:
            raise ForwardingError("Forwarded cannot be read")
        name, value = found[1].lower(), found[2]
        if name in elements[-1]:
            raise ForwardingError("Forwarded says one thing twice")
        elements[-1][name] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value[:1] == '"' else value
        at = found.end()
        match text[at : at + 1]:
            case "":
                return elements
            case ",":
                elements.append({})
            case ";":
                pass
            case _:
                raise ForwardingError("Forwarded cannot be read")
        at += 1


def _node(text: str) -> tuple[str, int] | None:
    """An address with its port, 0 if it has none. None for `unknown`, `_hidden` and rubbish."""
    address, port = plain_address(text), ""
    if address is None:
        found = _NODE.fullmatch(text)
        if found is None:
            return None
        address, port = plain_address(found[1] or found[2]), found[3] or ""
    if address is None or int(port or 0) > 65535:
        return None
    return str(address), int(port or 0)


def _scheme(text: str | None) -> str | None:
    found = (text or "").lower()
    return found if found in _SCHEMES else None


def _host(text: str | None) -> str | None:
    return text if text is not None and _HOST_FORM.fullmatch(text) else None
