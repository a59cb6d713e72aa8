"""`[auth]`: who may call, and how callers prove who they are."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import attrs

from mcp_trio.abc import Authenticator
from mcp_trio.auth import NetworkPolicy, PrivateKey
from mcp_trio.auth.keys import Algorithm
from mcp_trio.auth.resource_server import (
    APIKeys,
    CertificateIdentity,
    ClientCertificates,
    DPoP,
    IntrospectedTokens,
    JWTTokens,
    Nonces,
    Reach,
    ResourceServer,
)
from mcp_trio.auth.resource_server.claims import SCOPE_CLAIMS
from mcp_trio.auth.resource_server.signed import ASYMMETRIC
from mcp_trio.config.addresses import URL, URLS
from mcp_trio.errors import ConfigurationError
from mcp_trio.secrets import Secret, SecretSource
from mcp_trio.setting_rules import NOT_EMPTY, NOT_NEGATIVE, POSITIVE


@contextlib.contextmanager
def _named(where: str) -> Generator[None, None, None]:
    """Say in which section something cannot be."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from error


def _tuple(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)


@attrs.frozen(kw_only=True)
class JWTSection:
    """`[auth.jwt.NAME]`: an authorization server whose tokens are JWTs, verified with its keys."""

    issuer: str
    """As its tokens name it, to the letter."""
    keys_url: str | None = None
    """Where its keys are (JWKS), if its metadata do not say so."""
    audiences: list[str] = attrs.field(factory=list[str])
    """What tokens may be meant for beside the URL of the endpoint."""
    algorithms: list[str] = attrs.field(factory=lambda: list(ASYMMETRIC))
    """That may have signed a token."""
    access_tokens_only: bool = False
    """Demand the profile of RFC 9068, with `typ` `at+jwt`."""
    scope_claims: list[str] = attrs.field(factory=lambda: list(SCOPE_CLAIMS))
    """Claims that hold scopes."""
    leeway: float = attrs.field(default=30.0, validator=NOT_NEGATIVE)
    """Seconds by which clocks may differ."""
    allow_private: bool = False
    """Let its host resolve to private or loopback addresses."""

    def authenticator(self) -> JWTTokens:
        """What judges its tokens.

        Raises:
            ConfigurationError: it cannot be.
        """
        return JWTTokens(
            issuer=self.issuer,
            keys_url=self.keys_url,
            audiences=tuple(self.audiences),
            algorithms=tuple(self.algorithms),
            access_tokens_only=self.access_tokens_only,
            scope_claims=tuple(self.scope_claims),
            leeway=self.leeway,
            reach=Reach(network=NetworkPolicy(allow_private=self.allow_private)),
        )


@attrs.frozen(kw_only=True)
class IntrospectionSection:
    """`[auth.introspection.NAME]`: an authorization server that is asked about each token."""

    url: str
    """Its introspection endpoint."""
    issuer: str
    """How it calls itself."""
    client_id: str = attrs.field(validator=NOT_EMPTY)
    """Who we are there."""
    secret_env: str | None = None
    """Environment variable that holds our secret."""
    secret_file: str | None = None
    """File that holds it, read again when it changes."""
    private_key_file: str | None = None
    """A private key (PEM) in place of the secret (private_key_jwt)."""
    key_algorithm: Algorithm = "ES256"
    """Of the private key."""
    audiences: list[str] = attrs.field(factory=list[str])
    """What tokens may be meant for beside the URL of the endpoint."""
    trusts_audience: bool = False
    """Take answers without an audience: the server calls only tokens for us active."""
    scope_claims: list[str] = attrs.field(factory=lambda: list(SCOPE_CLAIMS))
    """Fields that hold scopes."""
    kept_for: float = attrs.field(default=60.0, validator=NOT_NEGATIVE)
    """Seconds for which an answer is used again: how long a revoked token may still work."""
    leeway: float = attrs.field(default=30.0, validator=NOT_NEGATIVE)
    """Seconds by which clocks may differ."""
    allow_private: bool = False
    """Let its host resolve to private or loopback addresses."""

    def authenticator(self, whose: str, source: SecretSource) -> IntrospectedTokens:
        """What judges its tokens, with our secret fetched.

        Raises:
            ConfigurationError: it cannot be.
        """
        secret: Secret | None = None
        key: PrivateKey | None = None
        if self.private_key_file is None:
            secret = source.secret(whose, "secret", env=self.secret_env, file=self.secret_file)
        elif self.secret_env is None and self.secret_file is None:
            pem = source.secret(whose, "private_key", env=None, file=self.private_key_file)
            key = PrivateKey(pem=pem, algorithm=self.key_algorithm)
        else:
            raise ConfigurationError(f"{whose}: give either a secret or private_key_file")
        return IntrospectedTokens(
            url=self.url,
            issuer=self.issuer,
            client_id=self.client_id,
            client_secret=secret,
            private_key=key,
            audiences=tuple(self.audiences),
            trusts_audience=self.trusts_audience,
            scope_claims=tuple(self.scope_claims),
            kept_for=self.kept_for,
            leeway=self.leeway,
            reach=Reach(network=NetworkPolicy(allow_private=self.allow_private)),
        )


@attrs.frozen(kw_only=True)
class CertificateSection:
    """`[auth.certificates."NAME"]`: a client certificate, by a name in it.

    Such as `uri:spiffe://prod/agent`, `dns:agent.internal`, `email:...`, `ip:...`,
    `dn:CN=agent,O=Acme`, `cn:agent`, or `sha256:` and its fingerprint. The first that fits counts.
    """

    subject: str
    """Whom it stands for."""
    scopes: list[str] = attrs.field(factory=list[str])
    """What they may do."""


@attrs.frozen(kw_only=True)
class DPoPSection:
    """`[auth.dpop]`: proofs of possession for tokens that are bound to a key (RFC 9449)."""

    required: bool = False
    """Take no token of an authorization server that is not bound to a key."""
    window: float = attrs.field(default=60.0, validator=POSITIVE)
    """Seconds for which a proof can be used."""
    leeway: float = attrs.field(default=30.0, validator=NOT_NEGATIVE)
    """Seconds by which clocks may differ."""
    nonces: bool = False
    """Demand nonces of the server's in proofs."""
    nonce_key_env: str | None = None
    """Environment variable with a text of your own that nonces are made from; share it between
    replicas. Without one each server makes its own."""
    nonce_key_file: str | None = None
    """File that holds it."""

    def proofs(self, source: SecretSource, nonce_key: Secret | None = None) -> DPoP:
        """What judges proofs.

        Args:
            source: where secrets are.
            nonce_key: of the nonces, if the settings name none.

        Raises:
            ConfigurationError: the key of the nonces cannot be read.
        """
        nonces: Nonces | None = None
        if self.nonces:
            key = nonce_key
            if self.nonce_key_env is not None or self.nonce_key_file is not None:
                env, file = self.nonce_key_env, self.nonce_key_file
                key = source.secret("auth.dpop", "nonce_key", env=env, file=file)
            nonces = Nonces(key)
        return DPoP(required=self.required, window=self.window, leeway=self.leeway, nonces=nonces)


@attrs.frozen(kw_only=True)
class AuthSection:
    """`[auth]`: who may call. Without it nobody is asked who they are."""

    resource: str
    """The URL of the endpoint as clients see it; tokens have to be meant for it."""
    required_scopes: list[str] = attrs.field(factory=list[str])
    """Scopes that everybody needs for anything."""
    anonymous: bool = False
    """Serve callers who prove nothing, too, as far as no scopes are needed."""
    scopes_supported: list[str] | None = None
    """What clients ask for when they are told no better; `required_scopes` if not given."""
    implies: dict[str, list[str]] = attrs.field(factory=dict[str, list[str]])
    """Scopes that hold others: a broad one, and the narrower ones it implies."""
    authorization_servers: list[str] | None = attrs.field(default=None, validator=URLS)
    """Told to clients; the issuers below if not given."""
    name: str | None = None
    """What people call this resource."""
    documentation: str | None = attrs.field(default=None, validator=URL)
    """URL of a page for people."""
    api_keys_file: str | None = None
    """File with the digests of API keys, one line each as `mcp-trio new-key` prints it; read again
    when it changes."""
    jwt: dict[str, JWTSection] = attrs.field(factory=dict[str, JWTSection])
    """Authorization servers with JWTs."""
    introspection: dict[str, IntrospectionSection] = attrs.field(
        factory=dict[str, IntrospectionSection]
    )
    """Authorization servers that are asked."""
    certificates: dict[str, CertificateSection] = attrs.field(factory=dict[str, CertificateSection])
    """Client certificates."""
    dpop: DPoPSection | None = None
    """Proofs of possession."""

    def __attrs_post_init__(self) -> None:
        if not (self.jwt or self.introspection or self.certificates or self.api_keys_file):
            raise ConfigurationError(
                "nobody could prove anything: add jwt, introspection, certificates or api_keys_file"
            )

    def resource_server(
        self, source: SecretSource, nonce_key: Secret | None = None
    ) -> ResourceServer:
        """What says who calls, with secrets fetched and keys read.

        It asks in this order: JWTs, API keys, introspection, client certificates.

        Args:
            source: where secrets and files are.
            nonce_key: that nonces are made from, if the settings name none.

        Raises:
            ConfigurationError: naming the section that cannot be.
        """
        try:
            return ResourceServer(
                resource=self.resource,
                authenticators=self._authenticators(source),
                authorization_servers=_tuple(self.authorization_servers),
                scopes_supported=_tuple(self.scopes_supported),
                implies=self.implies,
                anonymous=self.anonymous,
                dpop=(self.dpop or DPoPSection()).proofs(source, nonce_key),
                name=self.name,
                documentation=self.documentation,
            )
        except ConfigurationError as error:
            raise ConfigurationError(f"auth: {error}") from error

    def _authenticators(self, source: SecretSource) -> list[Authenticator]:
        found: list[Authenticator] = []
        for name, jwt in self.jwt.items():
            with _named(f"jwt.{name}"):
                found.append(jwt.authenticator())
        if self.api_keys_file is not None:
            found.append(APIKeys(path=source.folder / self.api_keys_file))
        for name, asked in self.introspection.items():
            with _named(f"introspection.{name}"):
                found.append(asked.authenticator("its client", source))
        if self.certificates:
            found.append(ClientCertificates(identities=self.identities()))
        return found

    def identities(self) -> dict[str, CertificateIdentity]:
        """Whom certificates stand for, by a name in them."""
        return {
            name: CertificateIdentity(subject=section.subject, scopes=frozenset(section.scopes))
            for name, section in self.certificates.items()
        }
