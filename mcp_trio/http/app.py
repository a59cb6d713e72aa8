"""The endpoint as an ASGI application: both eras behind one path, and the two probes.

This file chooses who serves a request; how is written in `exchange` (stateless) and
`session_requests` (handshake).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

import attrs
import trio
import trio.lowlevel

from mcp_trio.abc import ChallengeError
from mcp_trio.engine.envelope import Principal
from mcp_trio.eras import stateless
from mcp_trio.eras.admission import error_message
from mcp_trio.eras.detect import Kind, detect_http
from mcp_trio.errors import MCPError, OverloadedError, ProtocolError, UnauthorizedError
from mcp_trio.events import Reporter
from mcp_trio.framing import gate
from mcp_trio.framing import headers as names
from mcp_trio.http import legacy_sse, session_requests, websocket
from mcp_trio.http.access import note_of
from mcp_trio.http.budget import Budget, Claim
from mcp_trio.http.cors import cors_fields, preflight_fields
from mcp_trio.http.exchange import serve_request
from mcp_trio.http.options import HTTPOptions, good_until, identified
from mcp_trio.http.probes import PROBES, answer_probe
from mcp_trio.http.protected import WELL_KNOWN, answer_document
from mcp_trio.http.requests import (
    BodyTimeoutError,
    BodyTooLargeError,
    HTTPRequest,
    PeerGoneError,
    challenge_fields,
)
from mcp_trio.http.responses import (
    RETRY_AFTER,
    Header,
    Receive,
    Scope,
    Send,
    refusal_status,
    refuse,
    respond,
    seconds,
)
from mcp_trio.http.sessions import HTTPSession, SessionTable
from mcp_trio.http.statistics import AppStatistics
from mcp_trio.jsonrpc import codec
from mcp_trio.jsonrpc.glimpse import REACH, glimpse
from mcp_trio.jsonrpc.messages import (
    Batch,
    Error,
    Malformed,
    Message,
    Notification,
    Request,
    Result,
)
from mcp_trio.session.admission import caller_of
from mcp_trio.session.dispatch import Service
from mcp_trio.session.limits import UNTIMED
from mcp_trio.session.places import Place, SessionLoad
from mcp_trio.session.reaper import Reaper
from mcp_trio.wire.basic import RequestId
from mcp_trio.wire.revisions import BY_DATE

logger = logging.getLogger("mcp_trio.http")

LARGE = 16 * 1024
"""Bytes of a body that is not read as JSON only to be refused."""
MAX_TOLD = 100
"""Refused sources that are logged, each once."""

_CHALLENGE: Header = (b"www-authenticate", b"Bearer")
_ALLOW: Header = (b"allow", b"POST, GET, DELETE, OPTIONS")


class HTTPApp:
    """The ASGI callable.

    `run` has to run somewhere for handshake sessions to exist: `MCPServer.serve_http`
    does that, and so does the lifespan protocol of an ASGI server. Without it stateless
    requests are served all the same.
    """

    def __init__(
        self,
        service: Service,
        options: HTTPOptions | None = None,
        *,
        host: str = "127.0.0.1",
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        """Make an endpoint.

        Args:
            service: the server.
            options: bounds and names.
            host: the address the server is bound to; decides which Host values are served.
            ready: what `GET /readyz` answers.
        """
        self.service = service
        self.options = options or HTTPOptions()
        self._ready = ready
        self._gate = self.options.gate(host)
        self.reaper = Reaper(self.options.cleanup_timeout)
        self.sessions = SessionTable(service, self.options, self.reaper)
        self._limits = codec.CodecLimits(
            max_depth=self.options.max_depth,
            max_nodes=self.options.max_nodes,
            max_batch=self.options.max_batch,
        )
        self._bodies = Budget(self.options.max_total_body)
        self._nursery: trio.Nursery | None = None
        self._draining = False
        self._reporter = Reporter(service.events, "server")
        self._in_flight = 0
        self._refusals: Counter[str] = Counter()
        self._refused_sources: set[tuple[str, str]] = set()
        path = self.options.path.rstrip("/")
        self._paths = frozenset({path or "/", path + "/"})
        self._documents = frozenset({WELL_KNOWN, WELL_KNOWN + path, f"{WELL_KNOWN}{path}/"})
        self._legacy = legacy_sse.LegacySSE(self.sessions, self.options)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the nursery of the sessions until cancelled; then every session ends."""
        async with trio.open_nursery() as keeper:
            keeper.start_soon(self.reaper.run)
            keeper.start_soon(self.sessions.patience.run)
            try:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    task_status.started()
                    try:
                        await trio.sleep_forever()
                    finally:
                        for session in (*self.sessions, *self.sessions.lines):
                            session.cancel()
            finally:
                self._nursery = None
                keeper.cancel_scope.cancel()

    def drain(self) -> None:
        """Begin to go down: listen streams get their result, GET streams end, nothing new opens.

        Sessions that are one connection end once nothing runs in them.
        """
        self._draining = True
        self.service.notices.drain()
        for session in self.sessions:
            session.streams.standalone.end()
        for line in self.sessions.lines:
            line.drain()

    def statistics(self) -> AppStatistics:
        """Count what is going on."""
        return AppStatistics(
            sessions=len(self.sessions),
            lines=len(self.sessions.lines),
            in_flight=self._in_flight
            + sum(len(session.dispatcher.peer.running) for session in self.sessions)
            + sum(line.in_flight for line in self.sessions.lines),
            listeners=len(self.service.notices),
            refusals=dict(self._refusals),
        )

    # -- ASGI ----------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection.

        Raises:
            RuntimeError: the ASGI server does not run on Trio.
        """
        if not trio.lowlevel.in_trio_run():
            await _refuse_loop(scope, receive, send)
            return
        match scope["type"]:
            case "http":
                await self._http(HTTPRequest.read(scope, receive), send)
            case "lifespan":
                await self._lifespan(receive, send)
            case "websocket":
                await self._websocket(scope, receive, send)
            case kind:
                raise ValueError(f"an ASGI scope of an unknown type: {kind!r}")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with trio.open_nursery() as nursery:
            await nursery.start(self.run)
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self.drain()
            nursery.cancel_scope.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = HTTPRequest.read(scope, receive)
        principal = None
        told: tuple[Header, ...] = ()
        refusal = gate.check_source(http.headers, self._gate)
        if http.path not in self._paths:
            refusal = gate.Refusal(404, "Not found")
        elif refusal is not None:
            self._tell_refusal(refusal, http)
        else:
            try:
                principal = await self._identify(http)
                self._demand_scopes(principal)
            except MCPError as error:
                refusal = gate.Refusal(self._status_of_unknown(error), error.message)
                told = _challenges(error)
        # Only now: finding out who it is takes its time, and much may happen meanwhile.
        if refusal is None and self._draining:
            refusal = gate.Refusal(503, "The server is going down")
        elif refusal is None and not self._has_room(caller_of(principal, http.address)):
            refusal = gate.Refusal(503, "Too many sessions")
        if refusal is not None:
            await websocket.refuse(scope, receive, send, refusal, told)
            return
        line = websocket.ASGIWebSocket(
            receive, send, max_message=self.options.max_body, limits=self._limits
        )
        accept = partial(line.accept, scope.get("subprotocols", []))
        # Nothing on it proves anything again, so it lasts as long as its one proof.
        with trio.CancelScope(deadline=good_until(principal)):
            await self.sessions.run_line(line, accept, principal, http.address)

    async def _http(self, http: HTTPRequest, send: Send) -> None:
        path = http.path
        options = self.options
        legacy = options.legacy_sse_path is not None and path in {
            options.legacy_sse_path,
            options.legacy_messages_path,
        }
        if path not in self._paths and not legacy:
            await self._beside(path, http, send)
            return
        refusal = gate.check_source(http.headers, self._gate)
        if refusal is not None:
            self._tell_refusal(refusal, http)
            await refuse(send, refusal.status, refusal.reason)
            return
        cors = cors_fields(http)
        if http.scope["method"] != "OPTIONS":  # which browsers send without credentials
            known = await self._identified(http, send, cors)
            if known is None:
                return
            http = known
        if path not in self._paths:
            await self._http_sse(path, http, send, cors)
            return
        match http.scope["method"]:
            case "POST":
                await self._post(http, send, cors)
            case "GET":
                await self._get(http, send, cors)
            case "DELETE":
                await self._delete(http, send, cors)
            case "OPTIONS":
                await respond(send, 204, headers=(*cors, *preflight_fields(http, cors), _ALLOW))
            case _:
                await refuse(send, 405, "Method not allowed", headers=(*cors, _ALLOW))

    async def _identified(
        self, http: HTTPRequest, send: Send, cors: tuple[Header, ...]
    ) -> HTTPRequest | None:
        """The request with its principal; None once it has been refused."""
        try:
            principal = await self._identify(http)
            if http.scope["method"] != "POST":  # where it depends on the message
                self._demand_scopes(principal)
            guard = self.options.auth
            if principal is None and guard is None:
                return http
            return attrs.evolve(http, principal=principal, guard=guard)
        except MCPError as error:
            await self._refuse(error, send, cors)
            return None

    async def _identify(self, http: HTTPRequest) -> Principal | None:
        """Find out who sends a request; see `identified`."""
        if self.options.auth is None and self.options.identify is None:
            return None  # there is nobody to show the head to, which takes a while to make
        principal = await identified(self.options, http.head, self.service.required_scopes)
        if (note := note_of(http.scope)) is not None:
            note.principal = principal
        return principal

    async def _refuse(self, error: MCPError, send: Send, cors: tuple[Header, ...]) -> None:
        """Refuse a request before anything is done for it."""
        status, fault = self._status_of_unknown(error), error_message(None, error)
        await refuse(send, status, error.message, error=fault, headers=(*cors, *_challenges(error)))

    def _demand_scopes(self, principal: Principal | None) -> None:
        """Refuse who lacks what everybody needs, where nothing else asks for it.

        Raises:
            ChallengeError: the caller does.
        """
        needed = self.service.required_scopes
        held = frozenset[str]() if principal is None else principal.scopes
        if self.options.auth is not None and not needed <= held:
            raise self.options.auth.lacking(needed, known=principal is not None)

    def _status_of_unknown(self, error: MCPError) -> int:
        """The HTTP status for a request of which it is not known who sent it."""
        if isinstance(error, OverloadedError):
            self._refusals["identification"] += 1
            return 503
        if not isinstance(error, UnauthorizedError):
            return 500
        self._refusals["identity"] += 1
        return error.status if isinstance(error, ChallengeError) else 401

    def _has_room(self, caller: str | None) -> bool:
        """Whether one more session may begin; counted if it may not."""
        if self.sessions.has_room(caller):
            return True
        self._refusals["sessions"] += 1
        return False

    def _tell_refusal(self, refusal: gate.Refusal, http: HTTPRequest) -> None:
        """Log a refused Host or Origin, each one once: a flood of them must not fill the log."""
        self._refusals["source"] += 1
        seen = (http.headers.get("host", "")[:200], http.headers.get("origin", "")[:200])
        if seen in self._refused_sources or len(self._refused_sources) >= MAX_TOLD:
            return
        self._refused_sources.add(seen)
        logger.warning(
            "%s (Host %r, Origin %r): %s", refusal.reason, seen[0], seen[1] or None, refusal.hint
        )

    async def _beside(self, path: str, http: HTTPRequest, send: Send) -> None:
        """Serve what is there beside the endpoint."""
        guard = self.options.auth
        if guard is not None and path in self._documents:
            document = guard.document(self.service.required_scopes)
            if document is not None:
                await answer_document(document, http.scope["method"], send)
                return
        if http.scope["method"] not in {"GET", "HEAD"} or path not in PROBES:
            await respond(send, 404, b'{"error":"not found"}')
        else:
            await answer_probe(path, send, ready=not self._draining and self._ready())

    async def _http_sse(
        self, path: str, http: HTTPRequest, send: Send, cors: tuple[Header, ...]
    ) -> None:
        """Serve a client of the HTTP+SSE transport."""
        opens = path == self.options.legacy_sse_path
        match http.scope["method"]:
            case "GET" if opens and self._draining:
                await refuse(send, 503, "The server is going down", headers=cors)
            case "GET" if opens and not self._has_room(http.caller):
                await refuse(send, 503, "Too many sessions", headers=cors)
            case "GET" if opens:
                await self._legacy.get(http, send, cors)
            case "POST" if not opens:
                line = self._legacy.find(http)
                if line is None:
                    await refuse(send, 404, "Session not found: open the stream", headers=cors)
                else:
                    with self._bodies.claim() as claim:
                        message = await self._read(http, send, cors, claim)
                        if message is not None:
                            _note_message(http, message, Kind.HANDSHAKE)
                            await self._legacy.post(line, message, http, send, cors)
            case "OPTIONS":
                await respond(send, 204, headers=(*cors, *preflight_fields(http, cors)))
            case _:
                allow = (b"allow", b"GET, OPTIONS" if opens else b"POST, OPTIONS")
                await refuse(send, 405, "Method not allowed", headers=(*cors, allow))

    async def _post(self, http: HTTPRequest, send: Send, cors: tuple[Header, ...]) -> None:
        # For as long as its request runs: what was read lives on in its parameters.
        with self._bodies.claim() as claim:
            message = await self._read(http, send, cors, claim)
            if isinstance(message, Malformed):
                await refuse(send, 400, message.reason, error=message.answer, headers=cors)
            elif message is not None:
                try:
                    await self._message(message, http, send, cors)
                except OverloadedError as error:
                    id_ = message.id if isinstance(message, Request) else None
                    await self._overloaded(error, id_, send, cors)

    async def _read(
        self, http: HTTPRequest, send: Send, cors: tuple[Header, ...], claim: Claim
    ) -> Message | None:
        """Read the message of a POST; None once the response has been sent."""
        refusal = gate.check_media(http.headers)
        if refusal is not None:
            await refuse(send, refusal.status, refusal.reason, headers=cors)
            return None
        try:
            body = await http.body(self.options.max_body, self.options.body_timeout, claim)
        except PeerGoneError:
            return None
        except BodyTooLargeError:
            limit = self.options.max_body
            await refuse(send, 413, f"The body is larger than {limit} bytes", headers=cors)
            return None
        except BodyTimeoutError:
            await refuse(send, 408, "The body did not arrive in time", headers=cors)
            return None
        except OverloadedError as error:
            self._refusals["bodies"] += 1
            fault = error_message(None, error)
            await refuse(send, 503, error.message, error=fault, headers=cors)
            return None
        if len(body) > LARGE:
            seen = glimpse(body, body[-REACH:])
            if seen is not None and seen.method is not None and seen.id is not None:
                try:
                    self.service.admission.foresee(seen.method, http.caller, self._reporter)
                except OverloadedError as error:
                    await self._overloaded(error, seen.id, send, cors)
                    return None
        message = codec.decode(body, self._limits)
        if not session_requests.requests_of(message):  # of which each is judged by itself
            try:
                self._demand_scopes(http.principal)
            except MCPError as error:
                await self._refuse(error, send, cors)
                return None
        return message

    async def _message(
        self, message: Message, http: HTTPRequest, send: Send, cors: tuple[Header, ...]
    ) -> None:
        kind = detect_http(message, http.headers)
        _note_message(http, message, kind)
        match kind:
            case Kind.STATELESS:
                await self._stateless(message, http, send, cors)
            case Kind.HANDSHAKE:
                await self._handshake(message, http, send, cors)
            case Kind.UNKNOWN_VERSION:
                version = http.headers.get(names.VERSION, "")[:64]
                error = stateless.unsupported(version, self.service.facts)
                id_ = message.id if isinstance(message, Request) else None
                fault = error_message(id_, error)
                await refuse(send, 400, error.message, error=fault, headers=cors)

    async def _stateless(
        self, message: Message, http: HTTPRequest, send: Send, cors: tuple[Header, ...]
    ) -> None:
        match message:
            case Request():
                with self._enter(http, message) as place:
                    works = message.method not in UNTIMED  # listening is no work
                    self._in_flight += works
                    try:
                        await serve_request(
                            self.service, message, http, send, self.reaper, cors, place=place
                        )
                    finally:
                        self._in_flight -= works
            case Notification():
                # No notification means anything here; cancelling is closing the stream (N4).
                await respond(send, 202, headers=cors)
            case Batch():
                reason = "Invalid request: batches are not part of this revision"
                await refuse(send, 400, reason, headers=cors)
            case Result() | Error() | Malformed():
                reason = "Invalid request: clients send no answers in this revision"
                await refuse(send, 400, reason, headers=cors)

    def _enter(
        self, http: HTTPRequest, request: Request, session: SessionLoad | None = None
    ) -> Place:
        """Let a request in; see `Admission.enter`."""
        return self.service.admission.enter(request.method, http.caller, session, self._reporter)

    async def _overloaded(
        self,
        error: OverloadedError,
        id_: RequestId | None,
        send: Send,
        cors: tuple[Header, ...],
    ) -> None:
        fault = error_message(id_, error)
        status, wait = refusal_status(error.limit), (RETRY_AFTER[0], seconds(error.retry_after))
        await refuse(send, status, error.message, error=fault, headers=(*cors, wait))

    async def _handshake(
        self, message: Message, http: HTTPRequest, send: Send, cors: tuple[Header, ...]
    ) -> None:
        if self._nursery is None:
            reason = "Sessions are not running: let the ASGI server run the lifespan protocol"
            logger.error("%s", reason)
            await refuse(send, 503, reason, headers=cors)
            return
        if (
            isinstance(message, Request)
            and message.method == "initialize"
            and names.SESSION_ID not in http.headers
        ):
            if not self._has_room(http.caller):
                raise OverloadedError("Too many sessions")
            with self._enter(http, message) as place:
                await session_requests.open_session(
                    self.sessions, self._nursery, message, http, send, cors, place=place
                )
            return
        session = await self._session(http, send, cors, message)
        if session is not None:
            enter = partial(self._enter, http)
            await session_requests.post(session, message, http, send, cors, enter)

    async def _session(
        self,
        http: HTTPRequest,
        send: Send,
        cors: tuple[Header, ...],
        message: Message | None = None,
    ) -> HTTPSession | None:
        """Find the session of a request, or refuse it."""
        id_ = http.headers.get(names.SESSION_ID)
        request_id = message.id if isinstance(message, Request) else None
        if id_ is None:
            reason = "Mcp-Session-Id is missing: initialize first"
            fault = error_message(request_id, ProtocolError(reason))
            await refuse(send, 400, reason, error=fault, headers=cors)
            return None
        session = self.sessions.find(id_, http.principal)
        if session is None:
            reason = "Session not found: initialize again"
            fault = error_message(request_id, ProtocolError(reason))
            await refuse(send, 404, reason, error=fault, headers=cors)
        return session

    def _sessionless(self, http: HTTPRequest) -> bool:
        """Tell whether a GET or DELETE comes from the era that has neither (N1)."""
        revision = BY_DATE.get(http.headers.get(names.VERSION, "").strip())
        if revision is not None:
            return revision.stateless
        return names.SESSION_ID not in http.headers

    async def _get(self, http: HTTPRequest, send: Send, cors: tuple[Header, ...]) -> None:
        if self._sessionless(http):
            await refuse(send, 405, "Method not allowed", headers=(*cors, _ALLOW))
            return
        if self._draining:
            await refuse(send, 503, "The server is going down", headers=cors)
            return
        session = await self._session(http, send, cors)
        if session is not None:
            await session_requests.get(session, http, send, cors)

    async def _delete(self, http: HTTPRequest, send: Send, cors: tuple[Header, ...]) -> None:
        if self._sessionless(http):
            await refuse(send, 405, "Method not allowed", headers=(*cors, _ALLOW))
            return
        session = await self._session(http, send, cors)
        if session is None:
            return
        fault = session_requests.version_fault(session, http)
        if fault is not None:
            await refuse(send, 400, fault, headers=cors)
            return
        self.sessions.end(session)
        await respond(send, 204, headers=cors)


def _note_message(http: HTTPRequest, message: Message, kind: Kind) -> None:
    if (note := note_of(http.scope)) is not None:
        note.carries(message, kind.name.lower())


def _challenges(error: MCPError) -> tuple[Header, ...]:
    """What tells a client that is refused how to be accepted."""
    if isinstance(error, ChallengeError):
        return challenge_fields(error)
    return (_CHALLENGE,) if isinstance(error, UnauthorizedError) else ()


async def _refuse_loop(scope: Scope, receive: Receive, send: Send) -> None:
    """Say at start-up, where it is seen, that this application needs Trio."""
    reason = "mcp_trio runs on Trio: serve it with `hypercorn -k trio` or MCPServer.serve_http"
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.failed", "message": reason})
        return
    raise RuntimeError(reason)
