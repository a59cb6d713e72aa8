"""Answers that come in pages, collected into one.

The next page is found by the `Link` header or a URL in the body, by a cursor, by counting pages,
or by counting items. However it is found, it is asked for at the same origin, below the path of
the base URL, and never twice. A walk ends at its bounds: pages, items, bytes and time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import cast
from urllib.parse import quote, unquote_plus, urlencode, urljoin, urlsplit

import attrs
import trio

from mcp_trio.catalog.operation import Operation, OperationError
from mcp_trio.runtime.adapters.base import Answer, Call
from mcp_trio.runtime.adapters.http_bodies import decode
from mcp_trio.runtime.adapters.http_exchange import Exchange, HttpRequest, Reply, malformed
from mcp_trio.runtime.adapters.rest_request import climbs
from mcp_trio.runtime.expressions import Scope
from mcp_trio.runtime.http_connection import Auth, HttpConnection
from mcp_trio.runtime.mapping import Mapper, MappingError, compile_mapping, plain_text
from mcp_trio.runtime.stages import Stage, StageError
from mcp_trio.wire import JSONObject

PAGE_NAMES = ("status", "headers", "body")
"""What the expressions of a pagination may read: those of one page."""
MAX_PAGES = 10
"""Pages of a walk that sets no other bound."""
MAX_TARGET = 8_192
"""Characters of the path and query of a next page."""

_PLACE = "target.pagination"
_KEYS = {
    "link": ({"items", "next"}, set[str]()),
    "cursor": ({"items", "next", "parameter"}, {"next", "parameter"}),
    "page": ({"items", "more", "parameter", "first"}, {"parameter"}),
    "offset": ({"items", "more", "parameter", "first"}, {"parameter"}),
}
"""The keys beside `by` and `max_pages` for each way: those that may be there, and must."""
# Possessive, so that no header can make them slow.
_PARAMETER = re.compile(
    r"\s*+;\s*+([\w!#$&+.^`|~*-]++)\s*+(?:=\s*+(?:\"((?:[^\"\\]|\\.)*+)\"|([^\s\",;]*+)))?+"
)
_LINK = re.compile(rf"<([^<>]*+)>((?:{_PARAMETER.pattern})*+)")


@attrs.frozen(kw_only=True, eq=False)
class Pagination:
    """A compiled `target.pagination`. Immutable."""

    by: str
    parameter: str
    """The name in the query; empty for links."""
    first: int
    """The number of the first page, or of the first item."""
    max_pages: int
    items: Mapper
    next: Mapper | None
    more: Mapper | None
    connection: HttpConnection

    def begin(self, request: HttpRequest) -> HttpRequest:
        """The request of the first page."""
        if self.by in {"page", "offset"}:
            return self._with(request, self.first)
        return request

    def _with(self, request: HttpRequest, value: object) -> HttpRequest:
        pair = urlencode([(self.parameter, plain_text(value))], quote_via=quote, safe="")
        join = "&" if "?" in request.target else "?"
        return attrs.evolve(request, target=f"{request.target}{join}{pair}")

    def items_of(self, page: JSONObject) -> list[object]:
        """The items of a page.

        Raises:
            MappingError: the expression gives no array.
        """
        found = self.items(page)
        if found is None:
            return []
        if not isinstance(found, list):
            raise MappingError("must give an array", path=self.items.path)
        return cast("list[object]", found)

    def following(self, walk: Walk, page: JSONObject, count: int) -> HttpRequest | None:
        """The request of the page after this one, which has `count` items; None if it is the last.

        Raises:
            StageError: the upstream names a page that is not asked for.
            MappingError: an expression gives something else than it should.
        """
        if self.by == "link":
            return self._linked(walk, page)
        if self.by == "cursor":
            cursor = None if self.next is None else self.next(page)
            return None if cursor in (None, "", False) else self._at(walk, cursor)
        if count == 0 or (self.more is not None and self.more(page) in (None, False)):
            return None
        step = walk.pages if self.by == "page" else len(walk.items)
        return self._with(walk.origin, self.first + step)

    def _at(self, walk: Walk, cursor: object) -> HttpRequest:
        if not isinstance(cursor, str) and type(cursor) is not int:
            raise MappingError("must give a string or an integer", path=f"{_PLACE}.next")
        made = self._with(walk.origin, cursor)
        if len(made.target) > MAX_TARGET:
            raise malformed("the upstream's cursor is too long", code="pagination")
        return made

    def _linked(self, walk: Walk, page: JSONObject) -> HttpRequest | None:
        if self.next is None:
            headers = cast("Mapping[str, str]", page["headers"])
            link: object = next_link(headers.get("link", ""))
        else:
            link = self.next(page)
        if link in (None, "", False):
            return None
        if not isinstance(link, str):
            raise MappingError("must give a string", path=f"{_PLACE}.next")
        return attrs.evolve(walk.origin, target=self._resolved(walk.request.target, link))

    def _resolved(self, here: str, link: str) -> str:
        """The path and query that a link means, if it stays where the operation may go."""
        base = urlsplit(self.connection.base_url)
        fits = len(link) <= MAX_TARGET and all("!" <= c <= "~" for c in link)
        if not fits or "\\" in link:
            raise malformed("the upstream's link to its next page is no URL", code="pagination")
        try:
            there = urlsplit(urljoin(f"{base.scheme}://{base.netloc}{here}", link))
            same = _origin(there.scheme, there.hostname, there.port) == _origin(
                base.scheme, base.hostname, base.port
            )
        except ValueError as error:
            raise malformed(
                "the upstream's link to its next page is no URL", code="pagination"
            ) from error
        path = there.path or "/"
        prefix = self.connection.path_prefix
        below = path == prefix or path.startswith(f"{prefix}/")
        if not same or "@" in there.netloc or not below or climbs(path):
            raise malformed(
                "the upstream's next page lies outside of its connection", code="pagination"
            )
        query = self._without_secret(there.query)
        return f"{path}?{query}" if query else path

    def _without_secret(self, query: str) -> str:
        """A query without the key that the connection adds itself, should it be repeated."""
        auth = self.connection.auth
        if not isinstance(auth, Auth) or auth.kind != "query":
            return query
        pairs = query.split("&")
        return "&".join(p for p in pairs if unquote_plus(p.partition("=")[0]) != auth.parameter)


def _origin(scheme: str, host: str | None, port: int | None) -> tuple[str, str | None, int]:
    return scheme, host, port or (443 if scheme == "https" else 80)


def next_link(header: str) -> str | None:
    """The first target with the relation `next` in a `Link` header (RFC 8288)."""
    for link in _LINK.finditer(header[: MAX_TARGET * 2]):
        for name, quoted, plain in _PARAMETER.findall(link[2]):
            if name.lower() == "rel":
                if "next" in (quoted or plain).lower().split():
                    return link[1].strip()
                break
    return None


def compile_pagination(
    operation: Operation, connection: HttpConnection, query: frozenset[str]
) -> Pagination | None:
    """Compile `target.pagination`; None if there is none.

    Args:
        operation: a rest operation.
        connection: where it goes.
        query: the names that its input mapping puts into the query.

    Raises:
        OperationError, MappingError: it cannot work.
    """
    view = cast("JSONObject | None", operation.target.get("pagination"))
    if view is None:
        return None
    by = cast("str", view["by"])
    known, required = _KEYS[by]
    for key in sorted(view.keys() - known - {"by", "max_pages"}):
        raise OperationError(f"{key!r} does not belong to pages by {by}", place=_PLACE)
    for key in sorted(required - view.keys()):
        raise OperationError(f"pages by {by} need {key!r}", place=_PLACE)
    if operation.target["method"] != "GET":
        raise OperationError("only what is read with GET has pages", place=_PLACE)
    parameter = cast("str", view.get("parameter", ""))
    if parameter in query:
        raise OperationError(
            "must not be in input_mapping.query as well", place=f"{_PLACE}.parameter"
        )

    def mapper(key: str) -> Mapper | None:
        tree = view.get(key)
        return None if tree is None else compile_mapping(tree, f"{_PLACE}.{key}", PAGE_NAMES)

    return Pagination(
        by=by,
        parameter=parameter,
        first=cast("int", view.get("first", 1 if by == "page" else 0)),
        max_pages=cast("int", view.get("max_pages", MAX_PAGES)),
        items=mapper("items") or compile_mapping("=body", f"{_PLACE}.items", PAGE_NAMES),
        next=mapper("next"),
        more=mapper("more"),
        connection=connection,
    )


class Walk:
    """One call's walk over its pages. A retry goes on at the page that failed."""

    def __init__(
        self,
        pagination: Pagination,
        exchange: Exchange,
        request: HttpRequest,
        call: Call,
        failed: Callable[[Reply], Answer],
    ) -> None:
        self.origin = request
        """The request without anything of a page in it."""
        self.request = pagination.begin(request)
        """The request of the page that is next."""
        self.items: list[object] = []
        self.pages = 0
        self._pagination = pagination
        self._exchange = exchange
        self._call = call
        self._failed = failed
        self._seen = {self.request.target}
        self._left = exchange.settings.response_bytes
        # One for all pages, so that they have the effort of one answer together.
        self._seeing = Scope({})

    async def send(self) -> Answer:
        """Ask for page after page.

        Raises:
            StageError: a page cannot be had, or the bounds are met where that is an error.
            MappingError: a page is not what the pagination says.
        """
        left = trio.current_effective_deadline() - trio.current_time()
        # A little early, so that there is time to say how far it came.
        early = left if left == math.inf else left - min(0.05, left / 10)
        with trio.move_on_after(max(0.0, early)):
            return await self._walk()
        raise StageError(
            Stage.ADAPTER_EXECUTION,
            f"the time was over after {self.pages} pages with {len(self.items)} items, "
            "and there are more",
            sub="timeout",
            code="total",
            retryable=True,
        )

    async def _walk(self) -> Answer:
        while True:
            reply = await self._page()
            if not reply.ok:
                return self._failed(reply)
            page = self._seeing
            page.update(status=reply.status, headers=dict(reply.headers), body=decode(reply))
            items = self._pagination.items_of(page)
            self._left -= len(reply.body)
            self.items += items
            self.pages += 1
            following = self._pagination.following(self, page, len(items))
            await self._call.report(
                self.pages, None, f"{_count(self.pages, 'page')}, {_count(len(self.items), 'item')}"
            )
            if following is None or self._is_full():
                return self._answer(reply, page, complete=following is None)
            if following.target in self._seen:
                raise malformed("the upstream's pages lead in a circle", code="pagination")
            self._seen.add(following.target)
            self.request = following

    async def _page(self) -> Reply:
        try:
            return await self._exchange.ask(self.request, self._left)
        except StageError as error:
            if error.sub != "response_bytes":
                raise
            most = self._exchange.settings.response_bytes
            raise StageError(
                Stage.ADAPTER_EXECUTION,
                f"the upstream's pages together are larger than {most} bytes",
                sub="response_bytes",
            ) from error

    def _is_full(self) -> bool:
        """Whether a bound is met, though there are more pages.

        Raises:
            StageError: it is, and that is an error.
        """
        settings, most = self._exchange.settings, self._pagination.max_pages
        if settings.truncates:
            enough = settings.items is not None and len(self.items) >= settings.items
            return enough or self.pages >= most
        says = None
        if settings.items is not None and len(self.items) > settings.items:
            says = f"there are more than {settings.items} items"
        elif self.pages >= most:
            says = f"there are more than {most} pages"
        if says is not None:
            raise StageError(
                Stage.ADAPTER_EXECUTION, says, sub="response_items", step="response_bytes"
            )
        return False

    def _answer(self, reply: Reply, page: JSONObject, *, complete: bool) -> Answer:
        return Answer(
            ok=True,
            body=self.items,
            status=reply.status,
            headers=reply.headers,
            more={"pages": self.pages, "complete": complete, "last_page": page["body"]},
        )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
