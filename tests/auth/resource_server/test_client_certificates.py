"""Client certificates: whose they are by the names in them."""

import datetime as dt
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from mcp_trio.auth.resource_server import CertificateIdentity, ClientCertificates
from mcp_trio.auth.resource_server.client_certificates import is_bound_to, read_certificate
from mcp_trio.errors import ConfigurationError, UnauthorizedError
from tests.auth.resource_server.authority import credentials, head

NOW = dt.datetime(2026, 12, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
NAMES = (
    x509.UniformResourceIdentifier("spiffe://prod/agent"),
    x509.DNSName("Agent.Internal"),
    x509.RFC822Name("agent@example"),
    x509.IPAddress(ipaddress.ip_address("10.1.2.3")),
    x509.RegisteredID(x509.ObjectIdentifier("1.2.3")),
)
DN = x509.Name(
    [
        x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "Acme"),
        x509.NameAttribute(x509.NameOID.COMMON_NAME, "agent"),
    ]
)


def certificate(*names, begins=NOW - DAY, ends=NOW + DAY):
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(DN)
        .issuer_name(DN)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


PEM = certificate(*NAMES)


async def ask(pem, identities, now=NOW, token=None):
    known = {name: CertificateIdentity(subject=who) for name, who in identities.items()}
    asker = ClientCertificates(identities=known, clock=lambda: now)
    return await asker.authenticate(credentials(token, head=head(certificate=pem)))


@pytest.mark.parametrize(
    "name",
    [
        "uri:spiffe://prod/agent",
        "dns:agent.internal",
        "email:agent@example",
        "ip:10.1.2.3",
        "dn:CN=agent,O=Acme",
        "cn:agent",
        read_certificate(PEM).names[-1],
    ],
)
async def test_a_name_in_a_certificate_says_whose_it_is(name):
    principal = await ask(PEM, {"dns:other": "nobody", name: "the agent"})
    assert (principal.subject, principal.issuer) == ("the agent", "client-certificates")


async def test_the_first_entry_that_fits_counts_and_brings_its_scopes():
    identities = {
        "cn:agent": CertificateIdentity(subject="first", scopes=frozenset({"a"})),
        "dns:agent.internal": CertificateIdentity(subject="second"),
    }
    asker = ClientCertificates(identities=identities, clock=lambda: NOW)
    principal = await asker.authenticate(credentials(None, head=head(certificate=PEM)))
    assert (principal.subject, principal.scopes) == ("first", {"a"})


@pytest.mark.parametrize(
    "name",
    [
        "uri:spiffe://prod/agent/",
        "dns:internal",
        "dns:agent.internal.evil",
        "cn:Agent",
        "dn:CN=agent",
    ],
)
async def test_a_name_that_is_only_alike_is_another(name):
    assert await ask(PEM, {name: "x"}) is None


async def test_without_a_certificate_or_with_a_token_it_is_left_to_others():
    assert await ask(None, {"cn:agent": "x"}) is None
    assert await ask(PEM, {"cn:agent": "x"}, token="t") is None
    assert (await ask(certificate(), {"cn:agent": "x"})).subject == "x"


async def test_a_certificate_ends_while_its_connection_lives():
    assert await ask(PEM, {"cn:agent": "x"}, NOW + DAY)
    for then in (NOW + DAY + dt.timedelta(seconds=1), NOW - 2 * DAY):
        with pytest.raises(UnauthorizedError, match="expired"):
            await ask(PEM, {"cn:agent": "x"}, then)


@pytest.mark.parametrize(
    "pem", ["", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
async def test_what_is_no_certificate_is_nobodys(pem):
    with pytest.raises(UnauthorizedError, match="cannot be read"):
        await ask(pem, {"cn:agent": "x"})


def test_a_token_is_bound_to_one_certificate():
    thumbprint = read_certificate(PEM).thumbprint
    assert is_bound_to(thumbprint, PEM)
    for other in (None, "x", certificate(*NAMES)):
        assert not is_bound_to(thumbprint, other)
    assert not is_bound_to(None, PEM)
    assert not is_bound_to("", PEM)


@pytest.mark.parametrize("name", ["agent", "cn:", "CN:agent", "x509:agent", ""])
def test_names_that_cannot_be_are_told_at_once(name):
    with pytest.raises(ConfigurationError, match="no name in a certificate"):
        ClientCertificates(identities={name: CertificateIdentity(subject="x")})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sha256:" + "AB:" * 31 + "AB", "64 hex digits"),
        ("sha256:" + "AB" * 32, "64 hex digits"),
        ("sha256:zz", "64 hex digits"),
        ("dns:Agent.internal", "small letters"),
        ("ip:2001:DB8:0::1", "shortest form"),
        ("ip:agent", "shortest form"),
    ],
)
def test_a_spelling_that_fits_no_certificate_is_told_at_once(name, said):
    with pytest.raises(ConfigurationError, match=said):
        ClientCertificates(identities={name: CertificateIdentity(subject="x")})
    good = ("sha256:" + "ab" * 32, "dns:agent.internal", "ip:2001:db8::1", "ip:192.0.2.1")
    assert ClientCertificates(
        identities=dict.fromkeys(good, CertificateIdentity(subject="x"))
    ).identities


def test_scopes_that_cannot_be_are_told_at_once():
    bad = CertificateIdentity(subject="x", scopes=frozenset({"a b"}))
    with pytest.raises(ConfigurationError, match="scope"):
        ClientCertificates(identities={"cn:x": bad})
