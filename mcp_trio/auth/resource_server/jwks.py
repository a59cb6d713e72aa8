"""The keys of an issuer: fetched when they are needed, kept for their lifetime, renewed in place.

Whoever needs a key first fetches the set in his own task, the others wait for that one; nobody
waits longer than `PATIENCE`, and one that is cancelled leaves the next one to fetch. A key that is
unknown leads to one more look at most once per `INTERVAL`, whoever asks for how many of them. When
the issuer cannot be reached, the last good keys stay for `KEEP`, and those who use one of them do
not wait.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from typing import cast

import attrs
import trio
from joserfc.errors import JoseError

from mcp_trio.auth.discovery import server_candidates
from mcp_trio.auth.resource_server.asking import Reach
from mcp_trio.auth.resource_server.signed import Key, fits, public_key
from mcp_trio.auth.urls import check_named, origin_of
from mcp_trio.errors import MCPError, OverloadedError, TransportError
from mcp_trio.secrets import shown_url

logger = logging.getLogger("mcp_trio.auth")

PATIENCE = 10.0
"""Seconds that a request waits for keys, and that fetching them may take."""
STALE_PATIENCE = 2.0
"""Seconds for renewing keys while the old ones would do."""
INTERVAL = 30.0
"""Seconds after a look in which no unknown key leads to another one."""
AGAIN = 5.0
"""Seconds after a look that failed."""
INTERRUPTED = 1.0
"""Seconds after a look that was cancelled: coming and leaving must not make a storm."""
KEEP = 12 * 3600.0
"""Seconds that keys are used at most without being confirmed."""
LIFETIME = 600.0
"""Seconds that keys are fresh if the issuer does not say."""
SHORTEST, LONGEST = 60.0, 24 * 3600.0
"""Bounds of what it may say."""
MAX_KEYS = 100
"""Keys of one set that are looked at."""
MAX_TRIED = 4
"""Keys that are tried for a token that names none."""
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age=\"?([0-9]{1,9})")


@attrs.frozen
class _Known:
    key: Key
    document: Mapping[str, object]


class KeySource:
    """The keys of one issuer. Belongs to one event loop at a time, and to no nursery."""

    def __init__(self, issuer: str, url: str | None, reach: Reach) -> None:
        """Make one; nothing is fetched before a key is needed.

        Args:
            issuer: whose keys.
            url: where they are; None has the issuer's metadata say so.
            reach: how.
        """
        self._issuer = issuer
        self._url = url
        self._reach = reach
        self._keys: tuple[_Known, ...] = ()
        self._fresh_until = -math.inf
        self._usable_until = -math.inf
        self._not_before = -math.inf
        """When the set may be looked at again."""
        self._interrupted = False
        """Whether the last look was cancelled."""
        self._flight: trio.Event | None = None
        """Set once the look that is under way is over."""

    async def find(self, key_id: str | None, algorithm: str) -> tuple[Key, ...]:
        """The keys that may have signed a token; none if the issuer has no such key.

        Raises:
            OverloadedError: the issuer's keys cannot be had.
        """
        found = self._known(key_id, algorithm)
        if found:
            if not self._is_fresh() and self._may_look():
                await self._look(STALE_PATIENCE)
                found = self._known(key_id, algorithm) if self._is_fresh() else found
            return found
        with trio.move_on_after(PATIENCE):
            while not found:
                if self._flight is not None:
                    await self._flight.wait()
                elif self._may_look():
                    await self._look(PATIENCE)
                elif self._interrupted:
                    await trio.sleep_until(self._not_before)
                else:
                    break
                found = self._known(key_id, algorithm)
        if not self._usable():
            raise OverloadedError("the keys of the token's issuer cannot be had now")
        return found

    def _is_fresh(self) -> bool:
        return trio.current_time() < self._fresh_until

    def _usable(self) -> bool:
        return trio.current_time() < self._usable_until

    def _may_look(self) -> bool:
        return self._flight is None and trio.current_time() >= self._not_before

    def _known(self, key_id: str | None, algorithm: str) -> tuple[Key, ...]:
        if not self._usable():
            return ()
        fitting = [known for known in self._keys if fits(known.document, algorithm)]
        if key_id is not None:
            fitting = [known for known in fitting if known.document.get("kid") == key_id]
        return tuple(known.key for known in fitting[:MAX_TRIED])

    async def _look(self, patience: float) -> None:
        """Fetch the set. A failure leaves what is known, and is told in the log.

        Args:
            patience: seconds after which that is one.
        """
        self._flight = trio.Event()
        self._interrupted = True
        pause = INTERRUPTED
        try:
            with trio.move_on_after(patience) as bound:
                pause = INTERVAL if await self._fetched() else AGAIN
            if bound.cancelled_caught:
                logger.warning("the keys of %s did not come in time", shown_url(self._issuer))
                pause = AGAIN
            self._interrupted = False
        finally:
            self._not_before = trio.current_time() + pause
            self._flight.set()
            self._flight = None

    async def _fetched(self) -> bool:
        try:
            url = self._url or await self._discovered()
            answer = await self._reach.fetch(url)
            if answer is None:
                raise TransportError(f"{shown_url(url)} is not there")
            document, raw = answer
            keys = read_keys(document)
            if not keys:
                raise TransportError(f"{shown_url(url)} has no key that can be used")
        except MCPError as error:
            logger.warning("the keys of %s: %s", shown_url(self._issuer), error.message)
            return False
        now = trio.current_time()
        self._keys = keys
        self._fresh_until = now + lifetime(raw.headers.get("cache-control", ""))
        self._usable_until = now + KEEP
        return True

    async def _discovered(self) -> str:
        """Where the issuer's metadata say its keys are (RFC 8414, section 3)."""
        for candidate in server_candidates(self._issuer):
            answer = await self._reach.fetch(candidate)
            if answer is None:
                continue
            document, _ = answer
            url = document.get("jwks_uri")
            if document.get("issuer") != self._issuer or not isinstance(url, str):
                raise TransportError(f"{shown_url(candidate)} does not say where the keys are")
            return check_named(url, origin_of(self._issuer))
        raise TransportError(f"{shown_url(self._issuer)} publishes no metadata")


def read_keys(document: Mapping[str, object]) -> tuple[_Known, ...]:
    """The public keys of a set (RFC 7517, section 5); what cannot be used here is left out."""
    listed = document.get("keys")
    found: list[_Known] = []
    for entry in cast("list[object]", listed)[:MAX_KEYS] if isinstance(listed, list) else ():
        if not isinstance(entry, dict):
            continue
        described = cast("dict[str, object]", entry)
        try:
            key = public_key(described)
        except (JoseError, ValueError, TypeError):
            continue
        if key is not None:
            found.append(_Known(key, described))
    return tuple(found)


def lifetime(cache_control: str) -> float:
    """Seconds for which an answer is fresh, within our bounds (RFC 9111, section 5.2.2)."""
    said = cache_control.lower()
    if "no-store" in said or "no-cache" in said:
        return SHORTEST
    named = _MAX_AGE.search(said)
    return min(max(float(named[1]), SHORTEST), LONGEST) if named else LIFETIME
