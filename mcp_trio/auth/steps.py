"""What an OAuth flow asks of the world, and what it gets: the whole vocabulary of `flow`.

A flow is a generator. It yields steps, is sent a reply to each, and returns what it found; it
opens nothing itself. `drive` performs the steps on Trio, a test performs them by hand.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import TypeAlias, TypeVar, cast
from urllib.parse import urlencode

import attrs

from mcp_trio.auth.tokens import Grant, RegisteredClient
from mcp_trio.errors import UnauthorizedError
from mcp_trio.secrets import Secret


@attrs.frozen(kw_only=True)
class Ask:
    """Send an HTTP request, without following redirects. Replied to by an `Answer`."""

    method: str
    url: str
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    body: bytes | None = attrs.field(default=None, repr=False)
    settles: bool = False
    """It uses up what can be used once, a code or a refresh token: an answer that is not waited
    for is lost."""


@attrs.frozen(kw_only=True)
class Answer:
    """What came back."""

    status: int
    """0 where nothing came; `reason` says why."""
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    """By lower-case name."""
    body: bytes = attrs.field(default=b"", repr=False)
    reason: str = ""


@attrs.frozen
class OpenRedirect:
    """Be ready for somebody who comes back. Replied to by the redirect URI."""


@attrs.frozen
class Visit:
    """Send the person to a page. Replied to by the URI they came back to."""

    url: str = attrs.field(repr=False)


@attrs.frozen
class LoadClient:
    """Look up who we are at an issuer. Replied to by a `RegisteredClient` or None."""

    issuer: str


@attrs.frozen
class SaveClient:
    """Remember who we are at an issuer; None forgets."""

    issuer: str
    client: RegisteredClient | None


@attrs.frozen
class LoadGrant:
    """Look up the grant for a server: another program may have renewed it.

    Replied to by a `Grant` or None.
    """

    url: str


@attrs.frozen
class GetAssertion:
    """Get what the program proves its identity with. Replied to by a `Secret`."""

    audience: str


Step: TypeAlias = Ask | OpenRedirect | Visit | LoadClient | SaveClient | LoadGrant | GetAssertion
Reply: TypeAlias = Answer | Secret | RegisteredClient | Grant | str | None

T = TypeVar("T")
Flow: TypeAlias = Generator[Step, Reply, T]
"""Part of a flow: yields steps, returns a T."""


def ask(question: Ask) -> Flow[Answer]:
    """Send a request."""
    return cast("Answer", (yield question))


def open_redirect() -> Flow[str]:
    """Get the redirect URI."""
    return cast("str", (yield OpenRedirect()))


def visit(url: str) -> Flow[str]:
    """Send the person away, get the URI they came back to."""
    return cast("str", (yield Visit(url)))


def load_client(issuer: str) -> Flow[RegisteredClient | None]:
    """Look up who we are at an issuer."""
    return cast("RegisteredClient | None", (yield LoadClient(issuer)))


def save_client(issuer: str, client: RegisteredClient | None) -> Flow[None]:
    """Remember who we are at an issuer."""
    yield SaveClient(issuer, client)


def load_grant(url: str) -> Flow[Grant | None]:
    """Look up the grant for a server."""
    return cast("Grant | None", (yield LoadGrant(url)))


def get_assertion(audience: str) -> Flow[Secret]:
    """Get the proof of the program's identity."""
    return cast("Secret", (yield GetAssertion(audience)))


def form(url: str, fields: Mapping[str, str], headers: Mapping[str, str]) -> Ask:
    """A POST of form fields."""
    return Ask(
        method="POST",
        url=url,
        headers={
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
            **headers,
        },
        body=urlencode(fields).encode(),
    )


def read_object(answer: Answer, what: str) -> dict[str, object]:
    """Read a JSON object.

    Raises:
        UnauthorizedError: it is none.
    """
    try:
        found: object = json.loads(answer.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UnauthorizedError(f"{what} is not a JSON object")
    return cast("dict[str, object]", found)
