"""Getting a description and what it refers to: files of its own folder, addresses of its origin.

A description is somebody else's text. It can name any file and any address; what is read is
only what lies beside it: for a file the same folder and those below, symbolic links followed
first, and for an address the same scheme, host and port. Redirects count as addresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import httpx2

from mcp_trio.authoring.documents import (
    Document,
    check_size,
    parse_document,
    read_bounded,
)
from mcp_trio.authoring.faults import AuthoringError

MAX_DOCUMENTS = 5_000
"""Documents that one description may consist of."""
MAX_TOTAL = 256 << 20
"""Bytes of all of them."""
TIMEOUT = 30.0
"""Seconds for one answer to begin, and between its parts."""
MAX_REDIRECTS = 5


class OutsideError(AuthoringError):
    """A reference that leads away from the description; it was not followed."""


def is_address(place: str) -> bool:
    """Whether a place is an HTTP address."""
    return place.startswith(("http://", "https://"))


class Library:
    """The documents of one description, each read once.

    Args:
        place: a path or an address, from the person who imports.
        headers: sent with every request; they never leave the origin.
    """

    def __init__(self, place: str, headers: Mapping[str, str] | None = None) -> None:
        self._headers = dict(headers or {})
        self._read: dict[str, Document] = {}
        self._total = 0
        if is_address(place):
            self.root = place.partition("#")[0]
            self._folder: Path | None = None
        else:
            path = Path(place).resolve()
            self.root = path.as_uri()
            self._folder = path.parent

    def document(self, address: str) -> Document:
        """The document of an address as `join` makes it.

        Raises:
            OutsideError: it lies outside of the description.
            AuthoringError: it cannot be read.
        """
        known = self._read.get(address)
        if known is not None:
            return known
        if len(self._read) >= MAX_DOCUMENTS:
            raise AuthoringError(f"the description has more than {MAX_DOCUMENTS} documents")
        raw, name = self.raw(address)
        self._total += len(raw)
        if self._total > MAX_TOTAL:
            raise AuthoringError(f"the description is larger than {MAX_TOTAL >> 20} MiB")
        found = self._read[address] = parse_document(raw, name)
        return found

    def raw(self, address: str) -> tuple[bytes, str]:
        """The bytes of an address, and its name for messages.

        Raises:
            OutsideError: it lies outside of the description.
            AuthoringError: it cannot be read.
        """
        if self._folder is None:
            if _origin(address) != _origin(self.root):
                raise OutsideError(f"{address[:200]} is of another origin and was not fetched")
            return download(address, self._headers), address
        parts = urlsplit(address)
        if parts.scheme != "file" or parts.netloc or "\x00" in unquote(parts.path):
            raise OutsideError(f"{address[:200]} is no file beside the description")
        path = Path(unquote(parts.path)).resolve()
        if address != self.root and not path.is_relative_to(self._folder):
            raise OutsideError(f"{address[:200]} is not in the folder of the description")
        return read_bounded(path), str(path)

    @staticmethod
    def join(base: str, reference: str) -> tuple[str, str]:
        """Resolve a reference: the address of its document, and the fragment."""
        address, _, fragment = urljoin(base, reference).partition("#")
        return address, unquote(fragment)


def _origin(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        port = None
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, port or default


def download(
    address: str,
    headers: Mapping[str, str],
    *,
    method: str = "GET",
    content: bytes | None = None,
) -> bytes:
    """Get what stands at an address; redirects are followed within its origin only.

    Raises:
        OutsideError: a redirect leads elsewhere.
        AuthoringError: there is no good answer, or it is too large.
    """
    client = httpx2.Client(timeout=TIMEOUT, trust_env=True, follow_redirects=False)
    try:
        with client:
            return _followed(
                client, httpx2.Request(method, address, headers=dict(headers), content=content)
            )
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise AuthoringError(f"cannot get {address}: {reason}") from error


def _followed(client: httpx2.Client, request: httpx2.Request) -> bytes:
    start = str(request.url)
    for _ in range(MAX_REDIRECTS):
        response = client.send(request, stream=True)
        try:
            if response.next_request is None:
                return _body(response, start)
            following = response.next_request
        finally:
            response.close()
        if _origin(str(following.url)) != _origin(start):
            raise OutsideError(
                f"{start} redirects to {following.url}, which is of another origin; "
                "give that address if it is the right one"
            )
        request = httpx2.Request(following.method, following.url, headers=request.headers)
    raise AuthoringError(f"{start} redirects more than {MAX_REDIRECTS} times")


def _body(response: httpx2.Response, name: str) -> bytes:
    if response.status_code != 200:
        raise AuthoringError(f"{name} answered {response.status_code}")
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes():
        size += len(part)
        check_size(size, name)
        parts.append(part)
    return b"".join(parts)
