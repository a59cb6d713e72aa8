"""A JSON document behind an HTTPS address as a registry.

A look is one conditional GET: 304 costs nothing more. A server that gives neither an `ETag`
nor a usable `Last-Modified` sends the whole document, and its hash tells whether it changed.
Where the request may go is `network_guard`'s question; redirects are not followed, because
the credentials are for this address and no other.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import zlib
from collections.abc import Mapping
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from typing import NoReturn
from urllib.parse import urlsplit

import attrs
import httpcore2
import httpx2
import trio

from mcp_trio.abc import RawEntry, Reading, RegistryError, Trouble
from mcp_trio.catalog.registries.journal import Journal
from mcp_trio.catalog.registries.json_document import read_document
from mcp_trio.catalog.registries.options import RegistryOptions
from mcp_trio.errors import ConfigurationError
from mcp_trio.framing.headers import is_field_name, is_printable
from mcp_trio.network_guard import (
    HIDDEN_QUERY,
    BlockedAddressError,
    Guard,
    GuardedBackend,
    GuardedTransport,
    NetworkPolicy,
    Resolve,
    is_loopback,
    resolve,
)
from mcp_trio.secrets import shown_url

CLOSE_TIMEOUT = 1.0
"""Seconds that closing the sockets may take."""
SURE_AFTER = 60.0
"""Seconds by which a `Last-Modified` has to lie before the `Date` of its answer.

Its clock ticks in seconds, so that of a document that was just written says too little
(RFC 9110, section 8.8.2.2).
"""
_MAX_VALIDATOR = 1024
"""Characters of an `ETag` or a date that is sent back."""
_TAG = re.compile(r'(?:W/)?"[!#-~]*"|[!#-)+\--~]+')
"""One tag, quoted or, against RFC 9110, not: `*` and a list match what they were not sent with."""
_PIECE = 16_384
"""Bytes that are unpacked at once."""


@attrs.frozen(kw_only=True)
class _Answer:
    """What came back."""

    status: int
    body: bytes = b""
    """As it came, compressed or not."""
    compressed: bool = False
    condition: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """The header to ask with next time; empty where the server gives no reason for one."""


class HttpRegistry:
    """Reads the operations of one JSON document behind an URL. Implements `Registry`.

    Connects on first use, and keeps the connection between looks for a while.

    Args:
        url: `https`; `http` for this machine, or if the options allow it.
        options: credentials, trust and bounds.
        network: makes the sockets, below the guard; httpcore2's own for Trio if None.
        resolver: finds the addresses the guard judges.

    Raises:
        ConfigurationError: such an address or file of authorities cannot be.
    """

    def __init__(
        self,
        url: str,
        options: RegistryOptions | None = None,
        *,
        network: httpcore2.AsyncNetworkBackend | None = None,
        resolver: Resolve = resolve,
    ) -> None:
        self._options = options or RegistryOptions()
        self._url = url
        self._shown = shown_url(url)
        self._host = _checked_host(url, self._options)
        self._tls = _tls(url, self._options)
        name = self._options.header
        if name is not None and (self._options.secret is None or not is_field_name(name)):
            why = "cannot be sent" if self._options.secret else "has no secret to carry"
            raise ConfigurationError(f"registry {self._shown}: its header {name!r} {why}")
        self._network = network
        self._resolver = resolver
        self._client: httpx2.AsyncClient | None = None
        self._one_at_a_time = trio.Lock()
        # What follows belongs to the holder of the lock.
        self._journal = Journal()
        self._condition: Mapping[str, str] = {}
        """What the content that was last taken in is asked about with."""
        self._digest = b""
        self._known: Mapping[bytes, RawEntry] = {}

    async def change_token(self) -> str:
        """Ask the server whether there is anything new, and take it in.

        Raises:
            RegistryError: it gives no document of this format.
        """
        return (await self._look(None)).token

    async def read(self, since: str | None) -> Reading:
        """Ask the server, and tell what changed.

        Raises:
            RegistryError: it gives no document of this format.
        """
        return await self._look(since)

    async def aclose(self) -> None:
        """Close the connections. They open again on the next use."""
        client, self._client = self._client, None
        if client is not None:
            with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await client.aclose()

    async def _look(self, since: str | None) -> Reading:
        async with self._one_at_a_time:
            answer = None
            with trio.move_on_after(self._options.total_timeout):
                answer = await self._get()
            if answer is None:
                self._refuse(
                    Trouble.UNREACHABLE,
                    f"gave no whole answer within {self._options.total_timeout:g} seconds",
                )
            if answer.status != 304:
                await self._take_in(answer)
            return self._journal.read(since)

    async def _take_in(self, answer: _Answer) -> None:
        digest, entries = await trio.to_thread.run_sync(
            self._take_apart, answer, self._digest, self._known, abandon_on_cancel=True
        )
        if entries is not None:
            self._journal.replace(entries)
            self._known = {entry.fingerprint: entry for entry in entries.values()}
        self._digest, self._condition = digest, answer.condition

    def _take_apart(
        self, answer: _Answer, digest: bytes, known: Mapping[bytes, RawEntry]
    ) -> tuple[bytes, dict[str, RawEntry] | None]:
        """In a thread: the digest of the body, and its entries if that is another one."""
        body = self._inflated(answer.body) if answer.compressed else answer.body
        found = hashlib.sha256(body).digest()
        return found, None if found == digest else read_document(body, self._shown, known)

    def _inflated(self, data: bytes) -> bytes:
        """Unpack, and stop at the bound: a kilobyte can hold a gigabyte."""
        body, left, member = bytearray(), memoryview(data), None
        try:
            while left:
                member = member or zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
                # In pieces: what stands after the end of a member is copied for each of them.
                part = left[:_PIECE]
                body += member.decompress(part, self._options.max_bytes + 1 - len(body))
                if len(body) > self._options.max_bytes:
                    self._too_large()
                left = left[len(part) - len(member.unused_data) :]
                member = None if member.eof else member
        except zlib.error as error:
            raise RegistryError(
                Trouble.CORRUPT, f"{self._shown} sent what is not compressed as it says"
            ) from error
        if member is not None:
            self._refuse(Trouble.CORRUPT, "sent half of a compressed document")
        return bytes(body)

    async def _get(self) -> _Answer:
        headers = await trio.to_thread.run_sync(self._headers, abandon_on_cancel=True)
        if self._client is None:
            self._client = self._open()
        try:
            # A query may be what the address is signed with, and the client logs its URLs.
            url = httpx2.URL(self._url)
            hidden = {HIDDEN_QUERY: url.query}
            bare = url.copy_with(query=None)
            async with self._client.stream(
                "GET", bare, headers=headers, extensions=hidden
            ) as response:
                return await self._read(response)
        except BlockedAddressError as error:
            raise RegistryError(
                Trouble.UNREACHABLE, f"{self._shown}: {error}; allow_private is for such hosts"
            ) from error
        except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
            raise RegistryError(
                Trouble.UNREACHABLE, f"{self._shown} cannot be reached: {_reason(error)}"
            ) from error
        except (httpcore2.ProtocolError, httpx2.InvalidURL, httpx2.DecodingError) as error:
            raise RegistryError(
                Trouble.UNREACHABLE, f"{self._shown} does not speak HTTP, or broke off"
            ) from error

    def _headers(self) -> dict[str, str]:
        headers = {
            "accept": "application/json",
            "accept-encoding": "gzip",
            "user-agent": "mcp-trio",
            **self._condition,
        }
        secret = self._options.secret
        if secret is None:
            return headers
        value = secret.reveal()
        if not is_printable(value):
            self._refuse(Trouble.DENIED, "has a secret that cannot be sent in a header")
        name = self._options.header
        return {**headers, **({name: value} if name else {"authorization": f"Bearer {value}"})}

    def _open(self) -> httpx2.AsyncClient:
        policy = NetworkPolicy(allow_private=self._options.allow_private)
        backend = GuardedBackend(
            Guard(host=self._host, policy=policy), self._network, self._resolver
        )
        return httpx2.AsyncClient(
            transport=GuardedTransport(backend, self._tls, max_connections=2),
            timeout=httpx2.Timeout(None, connect=self._options.connect_timeout),
            trust_env=False,
            follow_redirects=False,
        )

    async def _read(self, response: httpx2.Response) -> _Answer:
        status = response.status_code
        if status == 304 and self._condition:
            # It has no body; reading to the end of that keeps the connection.
            await response.aread()
            return _Answer(status=status)
        if status != 200:
            self._refuse(*_meaning(status))
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in {"identity", "gzip", "x-gzip", ""}:
            self._refuse(Trouble.UNREADABLE, "answered in an encoding that was not asked for")
        body = bytearray()
        # An iterator that is left early has to be closed here: the pool learns of it then.
        async with aclosing(response.aiter_raw()) as parts:
            async for part in parts:
                body += part
                if len(body) > self._options.max_bytes:
                    self._too_large()
        return _Answer(
            status=status,
            body=bytes(body),
            compressed="gzip" in encoding,
            condition=_condition(response.headers),
        )

    def _too_large(self) -> NoReturn:
        self._refuse(Trouble.TOO_LARGE, f"is larger than {self._options.max_bytes} bytes")

    def _refuse(self, trouble: Trouble, what: str) -> NoReturn:
        raise RegistryError(trouble, f"{self._shown} {what}")


def _checked_host(url: str, options: RegistryOptions) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigurationError(f"registry {shown_url(url)} is no http or https address")
    if "@" in parts.netloc or parts.fragment:
        raise ConfigurationError(
            f"registry {shown_url(url)}: an address holds no user information and no fragment"
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname) and not options.allow_http:
        raise ConfigurationError(
            f"registry {shown_url(url)}: without TLS anybody on the way can publish; "
            "allow_http permits it"
        )
    return parts.hostname


def _tls(url: str, options: RegistryOptions) -> ssl.SSLContext | None:
    if urlsplit(url).scheme == "http":
        return None
    if options.ca_file is None:
        return httpx2.create_ssl_context(trust_env=False)
    try:
        return ssl.create_default_context(cafile=options.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"registry: cannot use its ca_file {options.ca_file}") from error


def _meaning(status: int) -> tuple[Trouble, str]:
    """What a status other than 200 says about a registry."""
    if status in {401, 403}:
        return Trouble.DENIED, f"does not let us in (HTTP status {status})"
    if status in {404, 410}:
        return Trouble.MISSING, f"is not there (HTTP status {status})"
    if status in {301, 302, 303, 307, 308}:
        return Trouble.UNREADABLE, f"wants to redirect us (HTTP status {status}), and may not"
    if status in {408, 425, 429} or status >= 500:
        return Trouble.UNREACHABLE, f"cannot answer now (HTTP status {status})"
    return Trouble.UNREADABLE, f"answered with HTTP status {status}"


def _condition(headers: httpx2.Headers) -> dict[str, str]:
    """How to ask whether this content is still the one."""
    tag = headers.get("etag", "")
    if _can_be_sent(tag) and _TAG.fullmatch(tag):
        # Weak or strong: If-None-Match compares weakly (RFC 9110, section 13.1.2).
        return {"if-none-match": tag}
    modified, date = _seconds(headers, "last-modified"), _seconds(headers, "date")
    if modified is not None and date is not None and date - modified >= SURE_AFTER:
        said = headers["last-modified"]
        return {"if-modified-since": said} if _can_be_sent(said) else {}
    return {}


def _can_be_sent(value: str) -> bool:
    # A server may answer with bytes beyond ASCII, which no header of ours takes.
    return value.isascii() and 0 < len(value) <= _MAX_VALIDATOR


def _seconds(headers: httpx2.Headers, name: str) -> float | None:
    try:
        return parsedate_to_datetime(headers.get(name, "")).timestamp()
    except (ValueError, OverflowError):
        return None


def _reason(error: Exception) -> str:
    """Why there is no connection; the client keeps what it wraps among the arguments."""
    causes: list[BaseException] = [error]
    for found in causes:
        if isinstance(found, ssl.SSLError):
            return "its TLS certificate or handshake is not acceptable"
        causes += [e for e in (found.__cause__, *found.args) if isinstance(e, BaseException)]
    if isinstance(error, httpcore2.TimeoutException):
        return "no connection in time"
    said = error.args[0] if error.args else None
    return said if isinstance(said, str) else "nobody answers there, or it broke off"
