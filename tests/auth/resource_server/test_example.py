"""The example of a whole: its authorization server, its MCP server, and our own client."""

import hashlib
import re
import socket
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import parse_qs, urlsplit

import attrs
import httpx2
import pytest
import trio
from joserfc.jwk import ECKey

from mcp_trio import ClientOptions, ErrorCode, MCPClient, MCPError
from mcp_trio.auth import ClientCredentials, OAuth, Redirect
from mcp_trio.auth.resource_server import DPoP, Nonces
from mcp_trio.auth.resource_server.signed import take_apart
from mcp_trio.http.serving import HTTPService
from tests.auth.resource_server.authority import encode, raw_token
from tests.programs import ROOT, load

EXAMPLE = ROOT / "examples" / "authorization"
BACK = "http://127.0.0.1:1/callback"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as made:
        return made.getsockname()[1]


@asynccontextmanager
async def running(**changes):
    """Both servers; gives the URL of the endpoint and the authorization server itself.

    Args:
        changes: to what says who calls.
    """
    authority = load(EXAMPLE / "authorization_server.py").AuthorizationServer("")
    notes = load(EXAMPLE / "server.py")
    async with trio.open_nursery() as nursery:
        (issuer,) = await nursery.start(HTTPService(authority).run, "127.0.0.1", 0)
        authority.issuer = issuer
        port = free_port()
        options = notes.options(f"http://127.0.0.1:{port}/mcp", issuer)
        options = attrs.evolve(options, auth=attrs.evolve(options.auth, **changes))
        serve = partial(notes.server.serve_http, options=options)
        (url,) = await nursery.start(serve, "127.0.0.1", port)
        yield url, authority
        nursery.cancel_scope.cancel()


class Person:
    """Opens the page, reads it, and answers."""

    def __init__(self, answer="yes"):
        self.answer = answer
        self.scopes = []

    async def __call__(self, url):
        asked = set(parse_qs(urlsplit(url).query).get("scope", [""])[0].split())
        self.scopes.append(asked - {"offline_access"})
        async with httpx2.AsyncClient(trust_env=False) as browser:
            page = await browser.get(url)
            assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
            number = re.search(r'name="number" value="([^"]+)"', page.text)[1]
            form = {"number": number, "answer": self.answer}
            place = urlsplit(url)._replace(path="/consent", query="").geturl()
            sent = await browser.post(place, data=form)
            again = await browser.post(place, data=form)
            assert again.status_code == 400
        return sent.headers["location"]


def signed_in(person):
    return ClientOptions(auth=OAuth(redirect=Redirect(BACK, person), client_name="Test"))


async def test_a_person_is_asked_for_the_least_first_and_for_more_when_it_is_needed():
    person = Person()
    async with (
        running() as (url, _),
        MCPClient(url, options=signed_in(person)) as client,
    ):
        assert [tool.name async for tool in client.tools()] == ["read_note"]
        assert (await client.call_tool("read_note")).content[0].text == "nothing yet"
        assert person.scopes == [{"notes:read"}]
        written = await client.call_tool("write_note", {"text": "hello"})
        assert written.content[0].text == "written"
        assert person.scopes == [{"notes:read"}, {"notes:read", "notes:write"}]
        assert (await client.call_tool("read_note")).content[0].text == "hello"
        assert len(person.scopes) == 2


async def test_a_person_may_say_no():
    async with running() as (url, _):
        with pytest.raises(MCPError) as refused:
            async with MCPClient(url, options=signed_in(Person("no"))):
                pass
        assert refused.value.code is ErrorCode.UNAUTHORIZED


async def test_a_machine_has_its_own_way_and_its_own_note():
    machine = ClientCredentials(client_id="machine", client_secret="machine-secret")
    person = Person()
    async with running() as (url, _):
        async with MCPClient(url, options=signed_in(person)) as client:
            await client.call_tool("write_note", {"text": "of ann"})
        async with MCPClient(url, options=ClientOptions(auth=machine)) as client:
            assert (await client.call_tool("read_note")).content[0].text == "nothing yet"
            with pytest.raises(MCPError) as refused:
                await client.call_tool("write_note", {"text": "x"})
            assert refused.value.code is ErrorCode.UNAUTHORIZED


async def test_a_code_and_a_refresh_token_are_good_once_and_for_their_client():
    async with running() as (url, authority), httpx2.AsyncClient(trust_env=False) as http:
        issuer = authority.issuer
        made = await http.post(f"{issuer}/register", json={"redirect_uris": [BACK]})
        client_id = made.json()["client_id"]
        verifier = "v" * 43
        query = {
            "client_id": client_id,
            "redirect_uri": BACK,
            "response_type": "code",
            "code_challenge": encode(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
            "resource": url,
            "state": "s",
        }
        back = await Person()(f"{issuer}/authorize?{httpx2.QueryParams(query)}")
        answer = parse_qs(urlsplit(back).query)
        assert (answer["state"], answer["iss"]) == (["s"], [issuer])
        form = {
            "grant_type": "authorization_code",
            "client_id": client_id,
            "code": answer["code"][0],
            "redirect_uri": BACK,
            "code_verifier": verifier,
            "resource": url,
        }
        first = await http.post(f"{issuer}/token", data=form)
        assert first.status_code == 200
        again = await http.post(f"{issuer}/token", data=form)
        assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
        refresh = {
            "grant_type": "refresh_token",
            "client_id": client_id,
            "refresh_token": first.json()["refresh_token"],
            "resource": url,
        }
        assert (await http.post(f"{issuer}/token", data=refresh)).status_code == 200
        assert (await http.post(f"{issuer}/token", data=refresh)).status_code == 400


@pytest.mark.parametrize(
    "uri", ["http://evil.example/back", "javascript:alert(1)", "https://x.example/#a", 5]
)
async def test_a_client_cannot_have_just_any_redirect_uri(uri):
    authority = load(EXAMPLE / "authorization_server.py").AuthorizationServer("https://as.example")
    with pytest.raises(Exception, match="https, or http on this machine"):
        authority.register({"redirect_uris": [uri]})


# -- tokens that are bound to a key ----------------------------------------------------


def binding(authority):
    """Have the authorization server bind its tokens to the key of the proof it is shown."""

    class Binding(type(authority)):
        jkt = None

        def metadata(self):
            return {**super().metadata(), "dpop_signing_alg_values_supported": ["ES256"]}

        def _answer(self, scope, headers, body):
            shown = take_apart(headers.get("dpop", ""))
            self.jkt = None if shown is None else ECKey.import_key(shown.header["jwk"]).thumbprint()
            return super()._answer(scope, headers, body)

        def _made(self, *arguments):
            made = super()._made(*arguments)
            if self.jkt is None:
                return made
            claims = {**take_apart(made["access_token"]).claims, "cnf": {"jkt": self.jkt}}
            header = {"typ": "at+jwt", "alg": "ES256", "kid": self.key.kid}
            return {
                **made,
                "access_token": raw_token(header, claims, self.key),
                "token_type": "DPoP",
            }

    authority.__class__ = Binding


async def test_our_own_client_proves_that_it_holds_the_key_of_its_token():
    dpop = DPoP(required=True, nonces=Nonces())
    machine = partial(ClientCredentials, client_id="machine", client_secret="machine-secret")
    async with running(dpop=dpop) as (url, authority):
        binding(authority)
        async with MCPClient(url, options=ClientOptions(auth=machine())) as client:
            for _ in range(3):
                assert (await client.call_tool("read_note")).content[0].text == "nothing yet"
        with pytest.raises(MCPError) as refused:
            async with MCPClient(url, options=ClientOptions(auth=machine(dpop=False))) as client:
                await client.call_tool("read_note")
        assert refused.value.code is ErrorCode.UNAUTHORIZED
