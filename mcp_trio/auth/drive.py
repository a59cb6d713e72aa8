"""Authorization of one client's requests to one server: an `httpx2.Auth` that runs flows on Trio.

Every request asks for the present token, and comes back here when it is refused. A flow runs in
the task of the request that needed it first, others wait for that one; nothing is held while a
request or its stream runs. A flow that is cancelled leaves everything as it was, and one of those
who wait begins anew; only what cannot be asked twice is waited for, in bounded time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack
from typing import cast

import attrs
import httpx2
import trio

from mcp_trio.auth.callback import Receiver, RedirectHandler
from mcp_trio.auth.discovery import Place
from mcp_trio.auth.flow import Outcome, Situation, acquire, renew
from mcp_trio.auth.grants import Consent, Method, Scopes
from mcp_trio.auth.keys import ProofKey
from mcp_trio.auth.outward import Outward
from mcp_trio.auth.steps import (
    Ask,
    Flow,
    GetAssertion,
    LoadClient,
    LoadGrant,
    OpenRedirect,
    Reply,
    SaveClient,
    Step,
    T,
    Visit,
)
from mcp_trio.auth.tokens import Grant, MemoryStore, TokenStore
from mcp_trio.auth.urls import origin_of
from mcp_trio.errors import ConfigurationError, MCPError, UnauthorizedError
from mcp_trio.framing.challenge import Challenge, bearing, read_challenges
from mcp_trio.network_guard import NetworkPolicy, is_loopback
from mcp_trio.secrets import Secret, shown_url
from mcp_trio.transports.http_endpoint import reading

logger = logging.getLogger("mcp_trio.auth")

MAX_ROUNDS = 3
"""Times that one request may lead to a new token; then its refusal is final."""
MAX_STEP_UPS = 3
"""Times in a row that more scopes are asked for without a request that succeeds."""
MAX_NONCES = 2
"""Times that one request is sent again because of a nonce."""
SAVE_TIMEOUT = 10.0
"""Seconds for storing a token, under a shield."""
_DRAIN = 64 * 1024
_DRAIN_TIMEOUT = 1.0

Assertion = Callable[[str], Awaitable[Secret]]


class Run:
    """A flow that runs, for those who wait for it."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.failure: MCPError | None = None


@attrs.frozen(kw_only=True)
class Choices:
    """What every way to a token leaves to the program."""

    scopes: Scopes = ()
    """To ask for in any case, beside those that the server names."""
    store: TokenStore = attrs.field(factory=MemoryStore)
    """Where tokens and registrations are kept. Those of one person or program only."""
    dpop: bool | None = None
    """Bind tokens to a key (RFC 9449): always, never, or where the servers wish."""
    network: NetworkPolicy = attrs.field(factory=NetworkPolicy)
    """What may be reached beside public addresses. A server on this machine may lead to others
    that are not public."""
    http: httpx2.AsyncBaseTransport | None = attrs.field(default=None, repr=False)
    """Sends the requests for tokens in place of sockets of our own, through a proxy for example;
    then it guards the addresses itself. It stays yours."""
    clock: Callable[[], float] = attrs.field(default=time.time, repr=False)
    """The time, in seconds since the epoch."""
    runs: dict[object, Run] = attrs.field(
        factory=dict[object, "Run"], init=False, repr=False, eq=False
    )
    """The flows that run, by event loop and server: several clients of one program wait for one."""


@attrs.frozen(kw_only=True)
class Settings:
    """One way to a token."""

    method: Method
    choices: Choices
    redirect: RedirectHandler | None = None
    assertion: Assertion | None = attrs.field(default=None, repr=False)


@attrs.define
class _Attempts:
    """What one request has led to so far."""

    rounds: int = 0
    nonces: int = 0


class Authorizer(httpx2.Auth):
    """Puts tokens on requests to one server, and gets new ones when they are refused.

    Requests to another origin pass untouched.
    """

    def __init__(self, url: str, settings: Settings) -> None:
        """Make one.

        Args:
            url: of the MCP server.
            settings: where tokens come from.

        Raises:
            ConfigurationError: no URL of a server that takes tokens.
        """
        try:
            self._origin = origin_of(url)
        except UnauthorizedError as error:
            raise ConfigurationError(
                f"authorization needs an http URL: {shown_url(url)}"
            ) from error
        if self._origin.scheme != "https" and not self._origin.loopback:
            logger.warning("tokens for %s travel in the clear", self._origin)
        self._url = url
        self._settings = settings
        near = NetworkPolicy(allow_private=True)
        self._policy = near if is_loopback(self._origin.host) else settings.choices.network
        self._loaded = False
        self._grant: Grant | None = None
        self._identity = object()
        self._place: Place | None = None
        """Where the present token is from; None after it was loaded."""
        self._trial: Outcome | None = None
        """The newest token, until a request was accepted with it."""
        self._asked: Scopes | None = None
        """The scopes that were last asked for here; None before that."""
        self._step_ups = 0
        self._nonce: str | None = None
        self._key: tuple[Secret, ProofKey] | None = None

    def __repr__(self) -> str:
        return f"Authorizer({shown_url(self._url)!r})"

    @property
    def identity(self) -> object:
        """Stands for who asks; another one after each login, since it may be somebody else."""
        return self._identity

    async def settle(self) -> object:
        """Find out who asks: whose token is in the store. The `identity` afterwards."""
        await self._load()
        return self._identity

    # -- requests ------------------------------------------------------------------

    def sync_auth_flow(
        self,
        request: httpx2.Request,  # noqa: ARG002 - the contract
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Refuse: tokens are waited for.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("an Authorizer needs an httpx2.AsyncClient")

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request, again with another token if it is refused.

        Raises:
            UnauthorizedError: the server takes no token that we can get.
        """
        if origin_of(str(request.url)) != self._origin:
            yield request
            return
        attempts = _Attempts()
        while True:
            grant = await self._present()
            self._sign(request, grant)
            response = yield request
            if not await self._again(response, grant, attempts):
                return

    def _sign(self, request: httpx2.Request, grant: Grant | None) -> None:
        for name in ("authorization", "dpop"):
            request.headers.pop(name, None)
        if grant is None:
            return
        token = grant.access_token
        request.headers["authorization"] = f"{grant.token_type} {token.reveal()}"
        if grant.dpop_key is not None:
            if self._key is None or self._key[0] != grant.dpop_key:
                self._key = (grant.dpop_key, ProofKey(grant.dpop_key))
            request.headers["dpop"] = self._key[1].proof(
                request.method,
                str(request.url),
                now=self._settings.choices.clock(),
                nonce=self._nonce,
                token=token,
            )

    async def _again(
        self, response: httpx2.Response, grant: Grant | None, attempts: _Attempts
    ) -> bool:
        """Take an answer in. True if the request is to be sent again."""
        nonce = response.headers.get("dpop-nonce")
        self._nonce = nonce or self._nonce
        if response.status_code not in {401, 403}:
            if grant is not None and response.is_success:
                self._step_ups = 0
            self._accepted(grant)
            return False
        challenges = tuple(read_challenges(response.headers.get_list("www-authenticate")))
        challenge = bearing(challenges)
        error = None if challenge is None else challenge.parameters.get("error")
        if response.status_code == 403:
            self._accepted(grant)
            if grant is None or error != "insufficient_scope":
                return False
        elif error == "use_dpop_nonce" and nonce and attempts.nonces < MAX_NONCES:
            attempts.nonces += 1
            await drain(response)
            return True
        await drain(response)
        attempts.rounds += 1
        if attempts.rounds > MAX_ROUNDS:
            raise UnauthorizedError("the server refuses every token that it is given")
        await self._replace(grant, challenges, lacking=response.status_code == 403)
        return True

    def _accepted(self, grant: Grant | None) -> None:
        if self._trial is not None and self._trial.grant is grant:
            self._trial = None

    # -- tokens --------------------------------------------------------------------

    async def _present(self) -> Grant | None:
        """The token to send, refreshed if its time is over."""
        await self._load()
        if self._place is not None and self._is_old(self._grant):
            await self._alone(self._grant, self._renew_old)
        return None if self._is_old(self._grant) else self._grant

    async def _load(self) -> None:
        if self._loaded:
            await trio.lowlevel.checkpoint()
            return
        found = await self._settings.choices.store.load_grant(self._url)
        # Meanwhile another request may have come further.
        if found is not None and self._grant is None:
            self._become(found)
        self._loaded = True

    def _become(self, grant: Grant) -> None:
        """Take a token that may be somebody else's."""
        self._grant = grant
        self._identity = object()

    def _is_old(self, grant: Grant | None) -> bool:
        expires_at = None if grant is None else grant.expires_at
        return expires_at is not None and expires_at <= self._settings.choices.clock()

    async def _renew_old(self) -> None:
        held, place = self._grant, self._place
        if held is None or place is None or held.refresh_token is None:
            return
        if await self._found_newer(held):
            return

        def flow() -> Flow[Outcome | None]:
            now = self._settings.choices.clock()
            grant = yield from renew(self._settings.method, place, held, self._url, now)
            return None if grant is None else Outcome(grant=grant, place=place, refreshed=True)

        await self._drive(flow())

    async def _replace(
        self, seen: Grant | None, challenges: tuple[Challenge, ...], *, lacking: bool
    ) -> None:
        """Get another token than the one that was refused."""
        challenge = bearing(challenges)

        async def replace() -> None:
            trial = self._trial if self._trial is not None and self._trial.grant is seen else None
            if lacking:
                self._count_step_up(() if challenge is None else challenge.scopes)
            elif trial is not None and not trial.refreshed:
                raise UnauthorizedError("the server refuses a token that was made for it just now")
            elif await self._found_newer(seen):
                return
            situation = Situation(
                url=self._url,
                now=self._settings.choices.clock(),
                challenges=challenges,
                held=self._grant,
                refreshable=not lacking and trial is None,
                scopes=self._settings.choices.scopes,
                dpop=self._settings.choices.dpop,
            )
            await self._drive(acquire(self._settings.method, situation))

        if seen is not self._grant and not self._is_old(self._grant):
            return
        await self._alone(self._grant, replace)

    def _count_step_up(self, wanted: Scopes) -> None:
        """Give up on scopes that asking for does not bring."""
        if self._asked is not None and set(wanted) <= set(self._asked):
            raise UnauthorizedError(
                "the scopes do not suffice although they were asked for",
                data={"error": "insufficient_scope", "scope": " ".join(wanted)},
            )
        self._step_ups += 1
        if self._step_ups > MAX_STEP_UPS:
            raise UnauthorizedError(
                "the server asks for more scopes again and again",
                data={"error": "insufficient_scope", "scope": " ".join(wanted)},
            )

    async def _found_newer(self, seen: Grant | None) -> bool:
        """Whether another client or program that shares the store has a token unknown to us."""
        stored = await self._settings.choices.store.load_grant(self._url)
        if stored is None or self._is_old(stored):
            return False
        if self._grant is not None and stored.access_token == self._grant.access_token:
            return False
        if seen is not None and stored.access_token == seen.access_token:
            return False
        self._become(stored)
        return True

    async def _alone(self, seen: Grant | None, work: Callable[[], Awaitable[None]]) -> None:
        """Do work that replaces a token, unless somebody else does or has done so."""
        runs = self._settings.choices.runs
        key = (trio.lowlevel.current_trio_token(), self._url)
        while (other := runs.get(key)) is not None:
            await other.done.wait()
            if other.failure is not None:
                raise UnauthorizedError(other.failure.message, data=other.failure.data)
            if self._grant is not seen or await self._found_newer(seen):
                return
        run = runs[key] = Run()
        try:
            await work()
        except MCPError as error:
            run.failure = error
            raise
        finally:
            del runs[key]
            run.done.set()

    # -- flows ---------------------------------------------------------------------

    async def _drive(self, flow: Flow[Outcome | None] | Flow[Outcome]) -> None:
        """Perform the steps of a flow and take what it gives."""
        async with AsyncExitStack() as exits:
            outward = Outward(self._policy, self._settings.choices.http)
            hands = _Hands(await exits.enter_async_context(outward), self._settings, exits)
            outcome = await _performed(flow, hands)
            # Here, before anything else is waited for: a token that is lost now is lost for good.
            held = self._grant
            if outcome is None:
                self._grant = None if held is None else attrs.evolve(held, refresh_token=None)
            else:
                self._grant, self._place, self._trial = outcome.grant, outcome.place, outcome
                if not outcome.refreshed:
                    self._become(outcome.grant)
                    self._asked = outcome.grant.scopes
            with trio.move_on_after(SAVE_TIMEOUT, shield=True):
                await _kept(self._settings.choices.store.save_grant(self._url, self._grant))


async def _performed(flow: Flow[T], hands: _Hands) -> T:
    try:
        step = next(flow)
        while True:
            step = flow.send(await hands.perform(step))
    except StopIteration as stop:
        found: T = stop.value
        return found
    finally:
        flow.close()


class _Hands:
    """Performs steps."""

    def __init__(self, outward: Outward, settings: Settings, exits: AsyncExitStack) -> None:
        self._outward = outward
        self._settings = settings
        self._exits = exits
        self._receiver: Receiver | None = None

    async def perform(self, step: Step) -> Reply:
        """Do what a step says."""
        store = self._settings.choices.store
        match step:
            case Ask():
                return await self._outward.ask(step)
            case LoadClient(issuer):
                return await store.load_client(issuer)
            case LoadGrant(url):
                return await store.load_grant(url)
            case SaveClient(issuer, client):
                await _kept(store.save_client(issuer, client))
                return None
            case OpenRedirect():
                return (await self._open()).uri
            case Visit(url):
                return await (await self._open()).visit(url)
            case GetAssertion(audience):
                if self._settings.assertion is None:
                    raise ConfigurationError("there is nothing to prove the identity with")
                return await self._settings.assertion(audience)

    async def _open(self) -> Receiver:
        if self._receiver is None:
            if self._settings.redirect is None or not isinstance(self._settings.method, Consent):
                raise ConfigurationError("there is no place for a person to come back to")
            receiving = self._settings.redirect.receiving()
            self._receiver = await self._exits.enter_async_context(receiving)
        return self._receiver


async def _kept(saving: Awaitable[None]) -> None:
    """Save something. A full disk costs the next program a login, and this one nothing."""
    try:
        await saving
    except OSError as error:
        logger.warning("the store of tokens cannot be written: %s", error)


async def drain(response: httpx2.Response) -> None:
    """Be done with an answer: read the rest of it if that is little, else cut it off."""
    rest, response.stream = response.stream, httpx2.ByteStream(b"")
    if not isinstance(rest, httpx2.AsyncByteStream):
        return
    size = 0
    with trio.move_on_after(_DRAIN_TIMEOUT):
        try:
            async with reading(cast("AsyncGenerator[bytes, None]", aiter(rest))) as chunks:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > _DRAIN:
                        break
        except httpx2.HTTPError:
            pass  # it is not wanted anyway
    await rest.aclose()
