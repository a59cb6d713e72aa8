"""One URL of a server, for the two transports of a client that speak HTTP.

What they have in common: where requests may go, and how much of an answer is looked at that
nobody waits for. Reading no more of an answer than is asked for is up to them.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from urllib.parse import SplitResult, urljoin, urlsplit

import httpx2
import trio

from mcp_trio.errors import TransportError
from mcp_trio.transports.handshakes import handshake_reason

MAX_REDIRECTS = 5
MOVED = frozenset({307, 308})
"""Answers that ask for the same request elsewhere, and say that nothing was done with this one."""
NOTICE_TIMEOUT = 30.0
"""Seconds for a server to take a message that has no answer."""
REST = 64 * 1024
"""Bytes of an unwanted body that are read, so that the connection can serve again."""
REST_TIMEOUT = 1.0
"""Seconds that this may take."""
_PORTS = {"http": 80, "https": 443}


class Endpoint:
    """A URL, wherever on its own origin the server has moved it to.

    What goes to it, a session and perhaps tokens, is for nobody else: a redirect to another
    origin is an error, whatever the HTTP client would do about it.
    """

    def __init__(self, url: str, client: httpx2.AsyncClient) -> None:
        self.url = url
        """Where the next request goes."""
        self._client = client

    @contextlib.asynccontextmanager
    async def ask(
        self, method: str, headers: Mapping[str, str | bytes], body: bytes | None = None
    ) -> AsyncGenerator[httpx2.Response, None]:
        """Send a request, and give the head of the answer while the block runs.

        Raises:
            TransportError: the server has moved elsewhere, or has no place for it.
            httpx2.HTTPError: the exchange broke.
            UnauthorizedError: there is no token that the server takes.
        """
        fields = [
            (name.encode("ascii"), value if isinstance(value, bytes) else value.encode("ascii"))
            for name, value in headers.items()
        ]
        for _ in range(MAX_REDIRECTS + 1):
            try:
                going = self._client.stream(
                    method, self.url, content=body, headers=fields, follow_redirects=False
                )
                async with going as response:
                    if response.status_code not in MOVED or "location" not in response.headers:
                        yield response
                        return
                    target = response.headers["location"]
            except httpx2.InvalidURL as error:
                raise TransportError(f"the server named no URL: {error}") from error
            self.url = moved(self.url, target)
        raise TransportError(f"the server has redirected more than {MAX_REDIRECTS} times")

    async def tell(self, headers: Mapping[str, str | bytes], body: bytes, *, within: float) -> int:
        """POST what has no answer; the status that it was met with.

        Raises:
            TransportError: it cannot be sent, or not within the time.
            UnauthorizedError: there is no token that the server takes.
        """
        try:
            with trio.move_on_after(within):
                async with self.ask("POST", headers, body) as response:
                    await read_rest(response)
                    return response.status_code
        except httpx2.HTTPError as error:
            raise TransportError(f"POST failed: {told(error)}") from error
        raise TransportError(f"the server has not taken a message within {within} s")


def told(error: httpx2.HTTPError) -> str:
    """A failure of HTTP in words; some have none of their own."""
    return handshake_reason(error) or f"{type(error).__name__} {error}".rstrip()


@contextlib.asynccontextmanager
async def reading(body: AsyncGenerator[bytes, None]) -> AsyncGenerator[AsyncIterator[bytes], None]:
    """Read a body while the block runs; afterwards nothing of it is open, however much was read.

    The HTTP library reads by generators inside of generators. Closing the outermost one leaves the
    others to the collector; being cancelled at its next step ends them all.
    """
    try:
        yield body
    finally:
        with trio.CancelScope() as scope, contextlib.suppress(httpx2.HTTPError):
            scope.cancel()
            async for _ in body:
                pass
        await body.aclose()


async def read_rest(response: httpx2.Response) -> None:
    """Read what is left of a body that nobody wants, if that is little and soon over."""
    size = 0
    with trio.move_on_after(REST_TIMEOUT), contextlib.suppress(httpx2.HTTPError):
        async with reading(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                size += len(chunk)
                if size > REST:
                    break


def moved(url: str, target: str) -> str:
    """Where a URL leads that a server names, which has to be on the server's own origin.

    Raises:
        TransportError: it is not, or is no URL.
    """
    try:
        here, there = urlsplit(url), urlsplit(urljoin(url, target))
        same = _origin(here) == _origin(there)
    except ValueError as error:
        raise TransportError(f"the server named no URL: {target[:200]!r}") from error
    if not same:
        place = f"{there.scheme}://{there.netloc.rpartition('@')[2]}{there.path}"
        raise TransportError(
            f"the server points to another origin, {place:.200}; connect to that if it is meant"
        )
    # Our own spelling of the host, with the credentials that may stand in it, and no others.
    return there._replace(netloc=here.netloc, fragment="").geturl()


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
