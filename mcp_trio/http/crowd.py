"""How many of something each address has: the count behind `max_connections_per_address`."""

from __future__ import annotations

import functools
import ipaddress
from collections import Counter

from .asgi_call import LOGGER
from .proxies import plain_address

MAX_TOLD = 100
"""Addresses whose refusal is logged, each once: a flood must not fill the log."""

_HOME_BITS = 64
"""Of an IPv6 address: what one customer is given at least, so that it counts as one address."""


class Crowd:
    """Counts by address. What is kept is bounded by the number of connections."""

    def __init__(self, limit: int, counted: str = "connections") -> None:
        """Begin with nobody.

        Args:
            limit: of each address.
            counted: what it is a limit of, for the log.
        """
        self._limit = limit
        self._counted = counted
        self._here: Counter[str] = Counter()
        self._told: set[str] = set()
        self.refused = 0
        """How often there was no place."""

    def enter(self, place: str | None) -> bool:
        """Take a place, which `leave` gives back; False if there is none. None always has one."""
        if place is None:
            return True
        if self._here[place] >= self._limit:
            self.refused += 1
            self._tell(place)
            return False
        self._here[place] += 1
        return True

    def leave(self, place: str | None) -> None:
        """Give back a place."""
        if place is None:
            return
        self._here[place] -= 1
        if self._here[place] <= 0:
            del self._here[place]

    def __len__(self) -> int:
        """Addresses that have a place."""
        return len(self._here)

    def _tell(self, place: str) -> None:
        if place in self._told or len(self._told) >= MAX_TOLD:
            return
        self._told.add(place)
        LOGGER.warning(
            "%s has %d %s, which is all that one address may have; "
            "if it is a proxy, name it in trusted_proxies",
            place,
            self._limit,
            self._counted,
        )


def place_of(client: tuple[str, int] | None) -> str | None:
    """What an address counts as: itself, or its /64 if it is of IPv6. None if there is none."""
    return None if client is None else _place(client[0])


@functools.lru_cache(maxsize=4096)
def _place(host: str) -> str:
    found = plain_address(host)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(found) >> _HOME_BITS << _HOME_BITS, _HOME_BITS)))
    return host if found is None else str(found)
