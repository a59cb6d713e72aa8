"""The contracts that users may implement: a transport, a registry of operations, and who calls.

Protocols and the values they speak in; no behaviour and no trio. `mcp_trio.testing` has a
battery for transports and registries.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

import attrs

from mcp_trio.engine.envelope import Envelope, Principal
from mcp_trio.errors import UnauthorizedError
from mcp_trio.secrets import Secret
from mcp_trio.wire.basic import JSONObject, RequestId


@runtime_checkable
class Transport(Protocol):
    """A two-way line for messages.

    One task receives at a time; any number of tasks may send. No transport reads a
    method name. One that has an attribute `kind` is called so where sessions are listed, and
    one whose attribute `pumps` is False needs no `pump`, which may then not be run.
    """

    async def send(self, envelope: Envelope) -> None:
        """Send one message whole, or not at all if cancelled.

        Waits while a bounded buffer is full. May be called from several tasks at once.

        Raises:
            TransportClosedError: `aclose` was called.
            TransportError: the line is broken.
        """
        ...

    async def receive(self) -> Envelope:
        """Wait for the next message. Being cancelled loses none.

        Raises:
            trio.EndOfChannel: the peer closed the line, or it broke; nothing more comes. Its
                text, if it has one, tells why.
        """
        ...

    def abandon(self, request_id: RequestId) -> bool:
        """Say that nobody waits for this request of ours any more.

        Returns:
            True when that alone tells the peer, as closing a stream of its own does;
            False when the session has to send a notification.
        """
        ...

    async def pump(self) -> None:
        """Do the work that needs a task of its own, such as writing a bounded buffer out.

        The session runs it in its nursery for as long as the line is open. A transport
        without such work returns at once.
        """
        ...

    async def aclose(self) -> None:
        """Close the line; what was sent before is still delivered if the peer reads.

        Bounded in time. The second call does nothing.
        """
        ...


@attrs.frozen(kw_only=True)
class RequestHead:
    """The head of an HTTP request, or of a WebSocket's opening: what tells who sends it.

    Nothing of it is shown in its text form but method and client: the rest may hold secrets.
    """

    method: str
    """Of a WebSocket too: GET."""
    url: str = attrs.field(repr=False)
    """As the client wrote it, as far as is known here: scheme and path of the request, and the
    name in its `Host`. Behind a proxy that ends TLS the scheme is that of the inner side."""
    headers: Mapping[str, str] = attrs.field(repr=False)
    """The header fields by lower-case name. Repeated ones are joined; `values` has them apart."""
    fields: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)
    """The same one by one, in order."""
    client: str | None = None
    """Address the request came from; None where there is none, as on a Unix socket."""
    certificate: str | None = attrs.field(default=None, repr=False)
    """The client's own certificate, PEM, once the TLS layer has verified its chain."""

    def values(self, name: str) -> tuple[str, ...]:
        """Every header field of a lower-case name, in order."""
        return tuple(value for field, value in self.fields if field == name)


class ChallengeError(UnauthorizedError):
    """A refusal by whoever says who calls, that tells an HTTP client what would be accepted."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 401,
        challenges: tuple[str, ...] = (),
        headers: tuple[tuple[str, str], ...] = (),
        data: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message, data=data)
        self.status = status
        """401 for no or bad credentials, 400 for malformed ones, 403 for too few scopes."""
        self.challenges = challenges
        """Values of `WWW-Authenticate`, each a field of its own."""
        self.headers = headers
        """More fields for the answer, such as a nonce; lower-case names."""


@attrs.frozen(kw_only=True)
class Credentials:
    """What a request shows to prove who sends it."""

    head: RequestHead
    """Of the request, with the certificate of its connection."""
    audiences: frozenset[str]
    """What the endpoint is called: a token has to be meant for one of these."""
    token: Secret | None = None
    """The token in its `Authorization`, if there is one."""


@runtime_checkable
class Authenticator(Protocol):
    """Knows one kind of proof. Several are asked in order until one knows who calls."""

    @property
    def issuers(self) -> tuple[str, ...]:
        """The authorization servers whose tokens it takes, to be told to clients."""
        ...

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        """Say who proves himself; None if there is no proof of this kind, so the next is asked.

        A token that is bound to a key or a certificate says so in the claim `cnf` of the
        principal, and whoever asks here looks at the rest of the proof (RFC 7800).

        Raises:
            UnauthorizedError: this kind of proof, and it does not hold. The text is told.
            OverloadedError: it cannot be said now.
        """
        ...


@runtime_checkable
class ResourceGuard(Protocol):
    """Says who sends a request to one endpoint, and tells HTTP clients how to prove it.

    `HTTPOptions.auth`. `mcp_trio.auth.resource_server.ResourceServer` is one.
    """

    async def identify(self, head: RequestHead, scopes: frozenset[str]) -> Principal | None:
        """Say who sends a request; None lets it pass as nobody in particular.

        Asked once per HTTP request and once per WebSocket; cancelled after
        `mcp_trio.http.options.IDENTIFY_TIMEOUT` seconds.

        Args:
            head: of the request.
            scopes: that everybody needs here, to be told to those who have to prove themselves.

        Raises:
            ChallengeError: the request is refused.
            OverloadedError: it cannot be said now.
        """
        ...

    def lacking(self, scopes: Iterable[str], *, known: bool) -> ChallengeError:
        """The refusal of a request that needs all of these scopes.

        Args:
            scopes: all that the operation needs, those the caller has among them.
            known: whether the caller has proved who it is; then the status is 403, else 401.
        """
        ...

    def document(self, scopes: frozenset[str]) -> JSONObject | None:
        """The protected-resource metadata (RFC 9728, section 2); None to publish none.

        Args:
            scopes: that everybody needs here.
        """
        ...

    def moved(self, path: str, to: str) -> ResourceGuard:
        """The same guard for another endpoint of the same server.

        Args:
            path: where this one stands.
            to: where the other one does.

        Raises:
            ConfigurationError: what this guard protects does not stand at `path`.
        """
        ...


class Trouble(enum.StrEnum):
    """Why a registry could not be read."""

    MISSING = "missing"
    """Nothing stands at its address."""
    LOCKED = "locked"
    """Somebody holds it, longer than the bounded wait."""
    CHANGING = "changing"
    """It is being rewritten: no two looks at it agree."""
    CORRUPT = "corrupt"
    """It is there and it is not a sound registry."""
    SCHEMA = "schema"
    """It is sound, and not laid out as a registry of this format."""
    TOO_LARGE = "too_large"
    """It is larger than it may be."""
    UNREADABLE = "unreadable"
    """The system refuses: permissions, input and output errors."""
    UNREACHABLE = "unreachable"
    """The network, or the server that keeps it, gives no answer in time."""
    DENIED = "denied"
    """The server that keeps it does not accept who we are."""


class RegistryError(Exception):
    """The registry could not be read; the catalog keeps what it has and tries again.

    The text is shown to operators and holds no secret.
    """

    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble
        """The kind."""


@attrs.frozen(kw_only=True)
class RawEntry:
    """One published operation as the registry holds it."""

    operation_id: str
    """Its identity, also when the view cannot be read."""
    fingerprint: bytes
    """Differs whenever view or fault differ; lets unchanged entries be skipped."""
    view: JSONObject | None = None
    """The view, not judged yet; None when there is a fault."""
    fault: str | None = None
    """Why there is no view, such as a column that is not JSON."""


@attrs.frozen(kw_only=True)
class Reading:
    """What one read found."""

    token: str
    """The change token this read belongs to."""
    entries: tuple[RawEntry, ...]
    """Published entries: all of them in a complete reading, else those changed since."""
    removed: tuple[str, ...] = ()
    """Ids that are no longer published; always empty in a complete reading."""
    complete: bool
    """True: what is not among `entries` is not published."""


@runtime_checkable
class Registry(Protocol):
    """A place that keeps published operations.

    It answers two questions: "is anything new?", cheaply, and "what changed since?", at the
    cost of what changed. It knows lifecycle states; a catalog only ever sees what is
    published. It judges no view: broken text is handed over as a fault of that one entry.

    One task at a time uses it, the catalog's actor. Every method may raise RegistryError,
    and may be cancelled; the next call works as if the cancelled one had not been made. No
    call waits without a bound, and none makes a publisher wait.
    """

    async def change_token(self) -> str:
        """Tell the state of the registry by an opaque token.

        Cheap while nothing changes. Equal tokens mean that nothing published has changed.
        """
        ...

    async def read(self, since: str | None) -> Reading:
        """Read what changed since a token, or everything for None.

        What it gives is of one moment, at the time of the call or later. A registry that
        does not recognise the token answers with a complete reading.
        """
        ...

    async def aclose(self) -> None:
        """Let go of files and connections, in a bounded time.

        The registry can be used again afterwards. The second call does nothing.
        """
        ...
