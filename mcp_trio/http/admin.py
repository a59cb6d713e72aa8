"""The admin listener: pages for operators, by path, apart from what clients reach.

A page is a function, plain or async, that is asked anew for every request, unless that takes long
(`CHEAP`, `RARELY`). Nothing here can change
anything: only GET and HEAD are answered. Who may connect is decided by where the listener is bound.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import attrs
import msgspec

from mcp_trio.framing import gate
from mcp_trio.framing.gate import Refusal
from mcp_trio.http import websocket
from mcp_trio.http.probes import PROBES, answer_probe
from mcp_trio.http.requests import HTTPRequest
from mcp_trio.http.responses import JSON, RETRY_AFTER, Header, Receive, Scope, Send, respond


@attrs.frozen
class Document:
    """What a page shows."""

    body: bytes
    media: bytes = JSON
    """Its media type."""
    headers: tuple[Header, ...] = ()
    """More fields of the answer."""
    status: int = 200
    """The status of the answer."""

    @classmethod
    def of(cls, value: object, status: int = 200) -> Document:
        """A value as JSON, for programs and people alike."""
        body = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
        return cls(body, status=status)


Page: TypeAlias = Callable[[], Document | Awaitable[Document]]
"""Makes a document. If it waits, then for a bounded time; if it raises, the answer is 500 and the
log says why."""

CHEAP = 0.02
"""Seconds that a page may take to be made each time anew."""
RARELY = 10
"""How many times as long as it took to make, one that took longer is shown again as it was: so that
nobody who asks over and over holds up the requests of clients by it."""


AT_ONCE = 16
"""Documents that are made or sent at once; who asks for more gets 503, so that those who ask and
do not read fill no memory. The probes are always answered."""


class _Sparing:
    """A page that is made less often the longer that takes. One that waits holds up nobody."""

    def __init__(self, page: Page, clock: Callable[[], float]) -> None:
        self._page = page
        self._clock = clock
        self._made: Document | None = None
        self._until = -math.inf

    def __call__(self) -> Document | Awaitable[Document]:
        begun = self._clock()
        if self._made is not None and begun < self._until:
            return self._made
        self._made = None
        made = self._page()
        took = self._clock() - begun
        if isinstance(made, Document) and took > CHEAP:
            self._made, self._until = made, begun + took * (1 + RARELY)
        return made


class AdminApp:
    """The ASGI application of an admin listener, for `HTTPService`."""

    def __init__(
        self,
        pages: Mapping[str, Page],
        *,
        policy: gate.GatePolicy,
        ready: Callable[[], bool],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Make one.

        Args:
            pages: by path, such as `/catalog`. The probes are there anyway.
            policy: which Host values are served, so that no web page gets at it by a name
                of its own (DNS rebinding). No web origin is.
            ready: what `GET /readyz` answers.
            clock: what the making of a page is timed by, in seconds.
        """
        self._pages = {path: _Sparing(page, clock) for path, page in pages.items()}
        self._policy = policy
        self._ready = ready
        self._showing = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "websocket":
            await websocket.refuse(scope, receive, send, Refusal(404, "Not found"))
            return
        http = HTTPRequest.read(scope, receive)
        page = self._pages.get(http.path)
        if page is None and http.path not in PROBES:
            known = " ".join(sorted({*PROBES, *self._pages}))
            await _fault(send, 404, f"not found; there are {known}")
        elif scope["method"] not in {"GET", "HEAD"}:
            await _fault(send, 405, "only GET is answered")
        elif page is None:
            await answer_probe(http.path, send, ready=self._ready())
        elif (refusal := gate.check_source(http.headers, self._policy)) is not None:
            await _fault(send, refusal.status, refusal.reason)
        elif self._showing >= AT_ONCE:
            await _fault(send, 503, "too many ask at once")
        else:
            self._showing += 1
            try:
                await self._show(page, send)
            finally:
                self._showing -= 1

    async def _show(self, page: Page, send: Send) -> None:
        made = page()
        document = await made if inspect.isawaitable(made) else made
        fields = (*_FIELDS, *document.headers)
        await respond(send, document.status, document.body, fields, media=document.media)


_FIELDS: tuple[Header, ...] = (
    (b"cache-control", b"no-store"),
    # A document repeats what clients say: it is what its media type says, and nothing else.
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


async def _fault(send: Send, status: int, reason: str) -> None:
    headers = {405: ((b"allow", b"GET, HEAD"),), 503: (RETRY_AFTER,)}.get(status, ())
    await respond(send, status, msgspec.json.encode({"error": reason}), headers)
