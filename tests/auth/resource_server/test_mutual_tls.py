"""Client certificates over real TLS, alone and as what a token is bound to."""

import ssl
from functools import partial

import httpx2
import pytest
import trio
import trustme

from mcp_trio import HTTPOptions, TLSOptions
from mcp_trio.auth.resource_server import (
    CertificateIdentity,
    ClientCertificates,
    DPoP,
    ResourceServer,
)
from mcp_trio.auth.resource_server.client_certificates import read_certificate
from tests.auth.resource_server.authority import NOW, Authority
from tests.auth.resource_server.test_server import bearer, make_server
from tests.http.asgi import META, STATELESS

OURS, STRANGER = trustme.CA(), trustme.CA()
AGENT, OTHER = OURS.issue_cert("agent.internal"), OURS.issue_cert("other.internal")
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "who", "_meta": META},
}
HEADERS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": STATELESS,
    "mcp-method": "tools/call",
    "mcp-name": "who",
}


def context(cert=None):
    made = ssl.create_default_context()
    OURS.configure_trust(made)
    if cert is not None:
        cert.configure_cert(made)
    return made


async def ask(url, cert=None, **headers):
    async with httpx2.AsyncClient(verify=context(cert), trust_env=False) as http:
        return await http.post(url, json=CALL, headers={**HEADERS, **headers})


@pytest.fixture
def tls(tmp_path):
    cert = OURS.issue_cert("127.0.0.1")
    cert.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    cert.private_key_pem.write_to_path(tmp_path / "key.pem")
    OURS.cert_pem.write_to_path(tmp_path / "ca.pem")
    return TLSOptions(
        cert_file=tmp_path / "cert.pem",
        key_file=tmp_path / "key.pem",
        client_ca_file=tmp_path / "ca.pem",
        client_certificates="optional",
    )


async def test_a_machine_proves_itself_by_its_certificate_alone_or_with_its_token(tls):
    authority = Authority()
    identities = {"dns:agent.internal": CertificateIdentity(subject="the agent")}
    auth = ResourceServer(
        resource="https://mcp.example/mcp",
        authenticators=[authority.tokens(), ClientCertificates(identities=identities)],
        dpop=DPoP(clock=lambda: NOW),
    )
    serve = partial(make_server().serve_http, options=HTTPOptions(auth=auth), tls=tls)
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(serve, "127.0.0.1", 0)
        assert url.startswith("https://")
        assert '"the agent"' in (await ask(url, AGENT)).text
        # One that nobody has listed, and none at all, are nobody's.
        for cert in (OTHER, None):
            assert (await ask(url, cert)).status_code == 401
        # One of another authority does not get as far as that.
        with pytest.raises(httpx2.TransportError):
            await ask(url, STRANGER.issue_cert("agent.internal"))
        thumbprint = read_certificate(AGENT.cert_chain_pems[0].bytes().decode()).thumbprint
        bound = bearer(authority.sign(cnf={"x5t#S256": thumbprint}))
        assert '"ann"' in (await ask(url, AGENT, **bound)).text
        for cert in (OTHER, None):
            assert (await ask(url, cert, **bound)).status_code == 401
        nursery.cancel_scope.cancel()
