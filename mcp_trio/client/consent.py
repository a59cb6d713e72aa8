"""Asking the user before a page of somebody else is opened (F6).

Nothing here fetches the page: it is shown, and opened only by what the caller hands in.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast
from urllib.parse import urlsplit

import attrs

from mcp_trio.errors import InvalidParamsError
from mcp_trio.wire.elicitation import ElicitParams, ElicitResult


@attrs.frozen(kw_only=True)
class Page:
    """A page that a server wants the user to visit, for the user to judge."""

    message: str
    """What the server says it is for. Untrusted, as all of this is (SEC4)."""
    url: str
    """All of it. Show it all."""
    host: str
    """Whom the user would visit, as it is looked up: letters beyond ASCII are spelled out."""
    warnings: tuple[str, ...]
    """What is suspicious about it, in words; empty is no promise."""


Consent: TypeAlias = Callable[[Page], bool | Awaitable[bool]]
Opener: TypeAlias = Callable[[str], object]


def page_of(params: ElicitParams) -> Page:
    """Read what a server asks for.

    Raises:
        InvalidParamsError: not a URL of a page on the web.
    """
    url = params.url or ""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna").decode()
    except ValueError as error:
        raise InvalidParamsError("the page has no readable URL") from error
    if parts.scheme not in {"http", "https"} or not host or not url.isprintable():
        raise InvalidParamsError("the page is not on the web")
    warnings: list[str] = []
    if parts.scheme != "https":
        warnings.append("whoever is on the way can read along: not https")
    if any(label.startswith("xn--") for label in host.split(".")):
        warnings.append("the host has letters of other alphabets, which can look like others")
    if "@" in parts.netloc:
        warnings.append("what stands before the @ is not the host")
    return Page(message=params.message, url=url, host=host, warnings=tuple(warnings))


def with_consent(
    ask: Consent, open_page: Opener
) -> Callable[[ElicitParams], Awaitable[ElicitResult]]:
    """Make an `elicitation_url` callback that opens a page only if the user agrees.

    Args:
        ask: shows the page, its whole URL and host, and tells whether the user agrees.
        open_page: opens the URL where neither the model nor this program can look, as a browser
            does; plain or async. Run only after a yes.
    """

    async def opener(params: ElicitParams) -> ElicitResult:
        page = page_of(params)
        agreed = ask(page)
        if inspect.isawaitable(agreed):
            agreed = await agreed
        # Nothing but a plain yes will do.
        if agreed is not True:
            return ElicitResult(action="decline")
        opened = open_page(page.url)
        if inspect.isawaitable(opened):
            await cast("Awaitable[object]", opened)
        return ElicitResult(action="accept")

    return opener
