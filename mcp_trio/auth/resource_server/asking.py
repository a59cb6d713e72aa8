"""Questions to the authorization servers that are configured: guarded, bounded, not redirected."""

from __future__ import annotations

import functools
import ssl

import attrs
import httpx2

from mcp_trio.auth.outward import Outward
from mcp_trio.auth.steps import Answer, Ask, read_object
from mcp_trio.auth.urls import origin_of, split
from mcp_trio.errors import ConfigurationError, TransportError, UnauthorizedError
from mcp_trio.network_guard import NetworkPolicy, Resolve, resolve
from mcp_trio.secrets import shown_url


@attrs.frozen(kw_only=True)
class Reach:
    """How authorization servers are reached."""

    network: NetworkPolicy = attrs.field(factory=NetworkPolicy)
    """What may be reached beside public addresses."""
    http: httpx2.AsyncBaseTransport | None = attrs.field(default=None, repr=False)
    """Sends the requests in place of guarded sockets, and guards the addresses itself."""

    resolver: Resolve = attrs.field(default=resolve, repr=False)
    """Finds the addresses that are judged."""

    async def ask(self, question: Ask) -> Answer:
        """Ask the host of a URL. What goes wrong is said in the answer, with status 0."""
        host, tls = split(question.url).hostname, lambda: self._tls
        async with Outward(self.network, self.http, self.resolver, host=host, tls=tls) as outward:
            return await outward.ask(question)

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        # Once: to read all authorities takes tens of milliseconds, in which nothing else runs.
        return httpx2.create_ssl_context()

    async def fetch(self, url: str) -> tuple[dict[str, object], Answer] | None:
        """Fetch a JSON object; None if it is not there.

        Raises:
            TransportError: it cannot be had, with the reason.
        """
        answer = await self.ask(Ask(method="GET", url=url, headers={"accept": "application/json"}))
        if answer.status in {404, 410}:
            return None
        return read_document(answer, url), answer


def read_document(answer: Answer, url: str) -> dict[str, object]:
    """The JSON object of an answer.

    Raises:
        TransportError: there is none.
    """
    if answer.status != 200:
        reason = answer.reason or f"answered {answer.status}"
        raise TransportError(f"{shown_url(url)} {reason}")
    try:
        return read_object(answer, f"the answer of {shown_url(url)}")
    except UnauthorizedError as error:
        raise TransportError(error.message) from error


def check_url(url: str, what: str) -> str:
    """Judge a URL of the configuration: https, or http on this machine; no user, no fragment.

    Raises:
        ConfigurationError: it is another one.
    """
    try:
        parts, origin = split(url), origin_of(url)
    except UnauthorizedError:
        raise ConfigurationError(f"{what} is no http or https URL") from None
    if origin.scheme != "https" and not origin.loopback:
        raise ConfigurationError(f"{what} has to be https: {shown_url(url)}")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ConfigurationError(f"{what} has a user or a fragment: {shown_url(url)}")
    return url
