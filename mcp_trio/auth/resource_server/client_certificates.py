"""Machines that prove themselves with a client certificate (mutual TLS).

The TLS layer has verified the chain; here the names in the certificate are turned into a caller.
A certificate of a trusted authority whose names nobody has listed is nobody's.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Callable, Mapping

import attrs
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from mcp_trio.abc import Credentials
from mcp_trio.auth.pkce import unpadded
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import ConfigurationError, UnauthorizedError
from mcp_trio.session.middleware import check_scopes

ISSUER = "client-certificates"
"""The issuer of these subjects: they are nobody's of an authorization server."""
KINDS = ("uri", "dns", "email", "ip", "dn", "cn", "sha256")
"""What a name may be: a subject alternative name, the whole subject (RFC 4514), its common name,
or the fingerprint of the certificate."""
_FINGERPRINT = re.compile("[0-9a-f]{64}")


@attrs.frozen(kw_only=True)
class Certificate:
    """What is read of one."""

    names: tuple[str, ...]
    """Each as its kind, a colon and the name."""
    thumbprint: str
    """SHA-256 of its DER, as tokens name it in `x5t#S256` (RFC 8705, section 3.1)."""
    begins: dt.datetime
    ends: dt.datetime


@functools.lru_cache(maxsize=256)
def read_certificate(pem: str) -> Certificate | None:
    """Read a certificate; None if it is none."""
    try:
        found = x509.load_pem_x509_certificate(pem.encode())
        names = tuple(_names(found))
    except (ValueError, x509.DuplicateExtension):
        return None
    digest = hashlib.sha256(found.public_bytes(Encoding.DER)).digest()
    return Certificate(
        names=(*names, f"sha256:{digest.hex()}"),
        thumbprint=unpadded(digest),
        begins=found.not_valid_before_utc,
        ends=found.not_valid_after_utc,
    )


def _names(certificate: x509.Certificate) -> list[str]:
    found: list[str] = []
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        pass
    else:
        for name in extension.value:
            match name:
                case x509.UniformResourceIdentifier(value=value):
                    found.append(f"uri:{value}")
                case x509.DNSName(value=value):
                    found.append(f"dns:{value.lower()}")
                case x509.RFC822Name(value=value):
                    found.append(f"email:{value}")
                case x509.IPAddress(value=value):
                    found.append(f"ip:{value}")
                case _:
                    pass
    found.append(f"dn:{certificate.subject.rfc4514_string()}")
    common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return [*found, *(f"cn:{attribute.value!s}" for attribute in common)]


def is_bound_to(thumbprint: object, pem: str | None) -> bool:
    """Whether a token that names a certificate came over a connection with that one."""
    certificate = None if pem is None else read_certificate(pem)
    if certificate is None or not isinstance(thumbprint, str):
        return False
    return hmac.compare_digest(certificate.thumbprint.encode(), thumbprint.encode())


@attrs.frozen(kw_only=True)
class CertificateIdentity:
    """Whom a certificate stands for."""

    subject: str
    scopes: frozenset[str] = frozenset()


_FORMS = {
    "sha256": "a fingerprint is 64 hex digits in small letters, without colons",
    "dns": "a DNS name is written in small letters",
    "ip": "an address is written in its shortest form, such as 192.0.2.1 or 2001:db8::1",
}
"""How a name is written of which another spelling would never be found."""


def _may_be(kind: str, name: str) -> bool:
    match kind:
        case "sha256":
            return _FINGERPRINT.fullmatch(name) is not None
        case "dns":
            return name == name.lower()
        case "ip":
            try:
                return str(ipaddress.ip_address(name)) == name
            except ValueError:
                return False
        case _:
            return True


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@attrs.frozen(kw_only=True, eq=False)
class ClientCertificates:
    """Takes verified client certificates, of requests without a token. An `Authenticator`."""

    identities: Mapping[str, CertificateIdentity]
    """By a name in the certificate, such as `uri:spiffe://prod/agent`, `dns:agent.internal`,
    `dn:CN=agent,O=Acme` or `sha256:<hex>`; to the letter, DNS names in lower case. The first entry
    that fits counts."""
    clock: Callable[[], dt.datetime] = attrs.field(default=_now, repr=False)
    """The time, with its zone."""

    def __attrs_post_init__(self) -> None:
        """Raise `ConfigurationError` now if a name or a scope cannot be."""
        for name, identity in self.identities.items():
            kind, _, rest = name.partition(":")
            if kind not in KINDS or not rest:
                raise ConfigurationError(
                    f"{name[:80]!r} is no name in a certificate: {', '.join(KINDS)}, and a colon"
                )
            if not _may_be(kind, rest):
                raise ConfigurationError(f"{name[:80]!r} fits no certificate: {_FORMS[kind]}")
            check_scopes(identity.scopes, name)

    @property
    def issuers(self) -> tuple[str, ...]:
        """None: nobody gives them out to clients."""
        return ()

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        """Find out whose certificate a connection has."""
        pem = credentials.head.certificate
        if pem is None or credentials.token is not None:
            return None
        certificate = read_certificate(pem)
        if certificate is None:
            raise UnauthorizedError("the client certificate cannot be read")
        # It was good when the connection was made, which may be long ago.
        if not certificate.begins <= self.clock() <= certificate.ends:
            raise UnauthorizedError("the client certificate has expired")
        held = frozenset(certificate.names)
        for name, identity in self.identities.items():
            if name in held:
                return Principal(
                    subject=identity.subject,
                    issuer=ISSUER,
                    scopes=identity.scopes,
                    expires=certificate.ends.timestamp(),
                )
        return None
