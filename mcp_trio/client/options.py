"""The settings of a client."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

from mcp_trio.client.cache import CacheOptions
from mcp_trio.engine.backoff import Backoff
from mcp_trio.eras.negotiate import EraCache
from mcp_trio.errors import ConfigurationError
from mcp_trio.session.call import TimeLimit
from mcp_trio.wire import REVISIONS, Implementation, Revision
from mcp_trio.wire.revisions import BY_DATE

if TYPE_CHECKING:
    import httpx2


def _revisions(given: Iterable[Revision | str]) -> tuple[Revision, ...]:
    """Take revisions by object or by date.

    Raises:
        ConfigurationError: a date that is no revision, or none at all.
    """
    found: list[Revision] = []
    for item in given:
        revision = BY_DATE.get(item) if isinstance(item, str) else item
        if revision is None:
            raise ConfigurationError(f"{item!r} is no revision; there are {', '.join(BY_DATE)}")
        found.append(revision)
    if not found:
        raise ConfigurationError("a client has to speak at least one revision")
    return tuple(found)


class Authorization(Protocol):
    """How requests over HTTP are authorized; `mcp_trio.auth` has the usual ways."""

    @property
    def patience(self) -> float:
        """Seconds that connecting waits for an answer, while a person may have to consent."""
        ...

    def bind(self, url: str) -> httpx2.Auth:
        """Authorize the requests to one server.

        An `httpx2.Auth` that is `Identified` as well tells as whom they are sent. What is private
        is not kept of one that is not.
        """
        ...


@runtime_checkable
class Identified(Protocol):
    """Knows as whom requests are sent, so that nobody gets what was answered to another (K4)."""

    @property
    def identity(self) -> object:
        """Stands for who asks at present; another object as soon as it may be somebody else."""
        ...

    async def settle(self) -> object:
        """Find out as whom the next request would be sent; the `identity` afterwards."""
        ...


@attrs.frozen(kw_only=True)
class ClientOptions:
    """Rarely needed settings of a client."""

    info: Implementation = attrs.field(factory=lambda: Implementation(name="mcp_trio", version="0"))
    """How the program calls itself."""
    revisions: tuple[Revision, ...] = attrs.field(default=REVISIONS, converter=_revisions)
    """Revisions to speak, newest first, as `Revision`s or by date. One alone forces it, without
    asking the server first."""
    timeout: float | TimeLimit = math.inf
    """Seconds, or a `TimeLimit`, for a call that names no timeout of its own."""
    probe_timeout: float = 10.0
    """Seconds to wait for an answer while finding out the era."""
    eras: EraCache = attrs.field(factory=EraCache)
    """What is known of servers from before. The object may be shared between clients."""
    max_rounds: int = 16
    """Questions in a row that are answered in one call of the stateless era."""
    cache: CacheOptions | None = attrs.field(factory=CacheOptions)
    """How answers are kept for as long as the server says; None keeps none."""
    check_output: bool = True
    """Whether the structured content of a tool is held to the schema it was listed with."""
    reconnect: Backoff = attrs.field(factory=Backoff)
    """How patiently a broken stream of changes is opened again."""
    max_message: int = 16 * 1024 * 1024
    """Bytes of one message of the server, where the target is a URL; a `Command` has its own."""
    auth: Authorization | None = None
    """Where tokens come from, for targets that are http and https URLs."""
    http: Callable[[httpx2.Auth | None], httpx2.AsyncClient] | None = None
    """Makes the HTTP client of a line, which closes it: for certificates, proxies and guards of
    one's own. It is given what authorizes, and wants no read timeout."""

    def __attrs_post_init__(self) -> None:
        """Raise `ConfigurationError` for times that are none."""
        if math.isnan(self.probe_timeout) or (
            not isinstance(self.timeout, TimeLimit) and math.isnan(self.timeout)
        ):
            raise ConfigurationError("timeout and probe_timeout are numbers of seconds, not nan")

    @property
    def opening_timeout(self) -> float:
        """Seconds to wait for each answer while connecting."""
        return self.probe_timeout if self.auth is None else self.probe_timeout + self.auth.patience
