"""The ways to authorize a client, as a program chooses one: `ClientOptions(auth=OAuth(...))`.

Each is a set of choices that can be used for any number of servers; what happens at one of them
is kept by the `Authorizer` that `bind` makes.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import TypeAlias, cast

import attrs
import httpx2
import trio.lowlevel

from mcp_trio.auth.callback import LoopbackRedirect, RedirectHandler
from mcp_trio.auth.drive import Assertion, Authorizer, Choices, Settings, drain
from mcp_trio.auth.grants import Consent, Enterprise, Machine, Workload
from mcp_trio.auth.keys import PrivateKey
from mcp_trio.auth.registration import check_document_url
from mcp_trio.auth.tokens import RegisteredClient, sendable
from mcp_trio.auth.urls import check_named, origin_of
from mcp_trio.errors import ConfigurationError, UnauthorizedError
from mcp_trio.framing.challenge import bearing, read_challenges
from mcp_trio.secrets import Secret, shown_url

Supply: TypeAlias = "str | Secret | Callable[[str], str | Secret | Awaitable[str | Secret]]"
"""A secret, or what gives one for an audience each time one is needed. May be a coroutine
function."""

PERSON = 300.0
"""Seconds that connecting waits where a person may have to consent."""
PROGRAM = 60.0
"""Seconds that connecting waits where none has to."""


def _secret(value: str | Secret) -> Secret:
    return value if isinstance(value, Secret) else Secret(value)


def _maybe_secret(value: str | Secret | None) -> Secret | None:
    return None if value is None else _secret(value)


def _hide(supply: Supply) -> Secret | Callable[[str], str | Secret | Awaitable[str | Secret]]:
    return Secret(supply) if isinstance(supply, str) else supply


def _supplier(supply: Supply) -> Assertion:
    """What gives a secret, made of whatever a program gave."""

    async def get(audience: str) -> Secret:
        if isinstance(supply, str | Secret):
            await trio.lowlevel.checkpoint()
            return _secret(supply)
        made: object = supply(audience)
        if inspect.isawaitable(made):
            made = await cast("Awaitable[object]", made)
        if not isinstance(made, str | Secret):
            raise ConfigurationError("what supplies a token gave something else")
        return _secret(made)

    return get


@attrs.frozen(kw_only=True)
class OAuth(Choices):
    """A person consents in a browser (OAuth 2.1, authorization code with PKCE).

    Who the program is comes from `registered`, else from `client_metadata_url` where the server
    takes one, else it registers by itself.
    """

    redirect: RedirectHandler = attrs.field(factory=LoopbackRedirect)
    """Where people come back to: a `LoopbackRedirect`, or a `Redirect` of the program's own."""
    registered: RegisteredClient | None = None
    """A client that was registered by hand."""
    client_metadata_url: str | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(check_document_url),
    )
    """The https URL of a document that describes the program; it is the client id, too."""
    client_name: str = "mcp_trio"
    """How the program is called where people consent."""
    patience: float = PERSON
    """Seconds that connecting waits for a person."""

    def bind(self, url: str) -> Authorizer:
        """Authorize requests to one server.

        Raises:
            ConfigurationError: no http URL.
        """
        method = Consent(
            registered=self.registered,
            document_url=self.client_metadata_url,
            client_name=self.client_name,
        )
        return Authorizer(url, Settings(method=method, choices=self, redirect=self.redirect))


@attrs.frozen(kw_only=True)
class ClientCredentials(Choices):
    """A program with credentials of its own, and no person."""

    client_id: str
    client_secret: Secret | None = attrs.field(default=None, converter=_maybe_secret)
    private_key: PrivateKey | None = None
    """In place of a secret (private_key_jwt)."""
    issuer: str | None = None
    """The authorization server that knows the client; None: the first one met, and no other."""
    patience: float = PROGRAM

    def __attrs_post_init__(self) -> None:
        """Raise `ConfigurationError` unless there is exactly one credential."""
        if (self.client_secret is None) is (self.private_key is None):
            raise ConfigurationError("give either client_secret or private_key")

    def bind(self, url: str) -> Authorizer:
        """Authorize requests to one server.

        Raises:
            ConfigurationError: no http URL.
        """
        client = RegisteredClient(
            client_id=self.client_id, client_secret=self.client_secret, issuer=self.issuer
        )
        method = Machine(client=client, private_key=self.private_key)
        return Authorizer(url, Settings(method=method, choices=self))


@attrs.frozen(kw_only=True)
class EnterpriseManaged(Choices):
    """The company decides: its identity provider gives an assertion for the server (ID-JAG)."""

    client_id: str
    """At the authorization server of the MCP server."""
    client_secret: Secret | None = attrs.field(default=None, converter=_maybe_secret)
    issuer: str | None = None
    """That authorization server; None: the first one met, and no other."""
    idp_token_endpoint: str
    idp_client_id: str
    idp_client_secret: Secret | None = attrs.field(default=None, converter=_maybe_secret)
    id_token: Supply = attrs.field(converter=_hide, repr=False)
    """The person's identity token; a function is called with the issuer it will be used for."""
    patience: float = PROGRAM

    def bind(self, url: str) -> Authorizer:
        """Authorize requests to one server.

        Raises:
            ConfigurationError: no http URL, or the identity provider's is not https.
        """
        try:
            check_named(self.idp_token_endpoint, origin_of(url))
        except UnauthorizedError as error:
            raise ConfigurationError(error.message) from error
        method = Enterprise(
            client=RegisteredClient(
                client_id=self.client_id, client_secret=self.client_secret, issuer=self.issuer
            ),
            idp_client=RegisteredClient(
                client_id=self.idp_client_id,
                client_secret=self.idp_client_secret,
                auth_method="client_secret_post",
            ),
            idp_token_endpoint=self.idp_token_endpoint,
        )
        settings = Settings(method=method, choices=self, assertion=_supplier(self.id_token))
        return Authorizer(url, settings)


@attrs.frozen(kw_only=True)
class WorkloadIdentity(Choices):
    """A program proves what it is by a token of the platform it runs on."""

    client_id: str
    assertion: Supply = attrs.field(converter=_hide, repr=False)
    """The platform's token; a function is called with the issuer it will be shown to."""
    issuer: str | None = None
    """The authorization server it may be shown to; None: the first one met, and no other."""
    patience: float = PROGRAM

    def bind(self, url: str) -> Authorizer:
        """Authorize requests to one server.

        Raises:
            ConfigurationError: no http URL.
        """
        client = RegisteredClient(client_id=self.client_id, auth_method="none", issuer=self.issuer)
        settings = Settings(
            method=Workload(client=client), choices=self, assertion=_supplier(self.assertion)
        )
        return Authorizer(url, settings)


@attrs.frozen
class BearerToken:
    """A token that the program has already, or gets in a way of its own."""

    token: Supply = attrs.field(converter=_hide, repr=False)
    """The token; a function is called with the server's URL, before each request, once more when
    the server has refused what it gave, and before an answer that is kept is given."""
    patience: float = attrs.field(default=PROGRAM, kw_only=True)

    def bind(self, url: str) -> httpx2.Auth:
        """Authorize requests to one server.

        Raises:
            ConfigurationError: no http URL.
        """
        return _Fixed(url, _supplier(self.token))


class _Fixed(httpx2.Auth):
    def __init__(self, url: str, supply: Assertion) -> None:
        try:
            self._origin = origin_of(url)
        except UnauthorizedError as error:
            raise ConfigurationError(
                f"authorization needs an http URL: {shown_url(url)}"
            ) from error
        self._url = url
        self._supply = supply
        self._newest: Secret | None = None
        self._identity = object()

    @property
    def identity(self) -> object:
        """Stands for who asks; another one with each other token."""
        return self._identity

    async def settle(self) -> object:
        """Find out who asks, by asking for the token. The `identity` afterwards."""
        await self._token()
        return self._identity

    async def _token(self) -> Secret:
        token = await self._supply(self._url)
        if not sendable(token.reveal()):
            raise ConfigurationError(
                "a token has to be printable ASCII without spaces or line breaks around it"
            )
        if token != self._newest:
            self._newest, self._identity = token, object()
        return token

    def sync_auth_flow(
        self,
        request: httpx2.Request,  # noqa: ARG002 - the contract
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Refuse: tokens are waited for."""
        raise RuntimeError("a BearerToken needs an httpx2.AsyncClient")

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request, once more if there is a newer token."""
        if origin_of(str(request.url)) != self._origin:
            yield request
            return
        token: Secret | None = None
        why = ""
        while True:
            tried, token = token, await self._token()
            if token == tried:
                raise UnauthorizedError(f"the server refuses the token it is given{why}")
            request.headers["authorization"] = f"Bearer {token.reveal()}"
            response = yield request
            if response.status_code != 401 or tried is not None:
                return
            why = _reason(response, token)
            await drain(response)


def _reason(response: httpx2.Response, token: Secret) -> str:
    """What a server says of a token that it refuses, unless it repeats it."""
    told = bearing(read_challenges(response.headers.get_list("www-authenticate")))
    text = "" if told is None else told.parameters.get("error_description", "")
    return f": {text[:200]}" if text and token.reveal() not in text else ""
