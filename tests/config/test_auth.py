"""`[auth]`: from settings to what says who calls."""

import re
import tomllib

import pytest
from joserfc.jwk import ECKey

from mcp_trio.auth.resource_server import (
    APIKeys,
    ClientCertificates,
    IntrospectedTokens,
    JWTTokens,
    ScopeHierarchy,
)
from mcp_trio.config import SettingsError, parse_settings
from mcp_trio.errors import ConfigurationError
from mcp_trio.secrets import SecretSource
from tests.programs import ROOT

RESOURCE = "https://mcp.example/mcp"
JWT = {"issuer": "https://as.example"}
INTROSPECTION = {
    "url": "https://as.example/introspect",
    "issuer": "https://as.example",
    "client_id": "us",
    "secret_env": "SECRET",
}


def section(**changes):
    auth = {"resource": RESOURCE, "jwt": {"main": JWT}, **changes}
    auth = {name: value for name, value in auth.items() if value is not None}
    return parse_settings({"catalog": {"registry": "r"}, "auth": auth}).auth


def made(folder, environment=(), **changes):
    source = SecretSource(folder=folder, environment=dict(environment))
    return section(**changes).resource_server(source)


def test_the_settings_in_the_documentation_are_read(tmp_path):
    page = (ROOT / "docs" / "authorization.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    values = tomllib.loads(text)
    auth = parse_settings({"catalog": {"registry": "r"}, **values}).auth
    keys = tmp_path / auth.api_keys_file
    keys.write_text("")
    keys.chmod(0o600)
    guard = auth.resource_server(SecretSource(folder=tmp_path, environment={}))
    assert guard.document(frozenset())["authorization_servers"] == ["https://as.example"]


def test_without_it_nobody_is_asked():
    assert parse_settings({"catalog": {"registry": "r"}}).auth is None


def test_every_way_to_prove_it_is_made_in_a_fixed_order(tmp_path):
    keys = tmp_path / "keys.toml"
    keys.write_text("")
    keys.chmod(0o600)
    guard = made(
        tmp_path,
        {"SECRET": "s3cret"},
        introspection={"other": INTROSPECTION},
        api_keys_file="keys.toml",
        certificates={"uri:spiffe://prod/agent": {"subject": "agent", "scopes": ["a"]}},
        implies={"write": ["read"]},
        scopes_supported=["read"],
        anonymous=True,
        name="Ours",
        documentation="https://mcp.example/docs",
        authorization_servers=["https://front.example"],
        dpop={"required": True, "nonces": True, "nonce_key_env": "SECRET"},
    )
    kinds = [type(each) for each in guard.authenticators]
    assert kinds == [JWTTokens, APIKeys, IntrospectedTokens, ClientCertificates]
    assert guard.resource == RESOURCE
    assert guard.implies == ScopeHierarchy({"write": ["read"]})
    assert guard.anonymous
    assert guard.dpop.required
    assert guard.dpop.nonces is not None
    document = guard.document(frozenset())
    assert document["authorization_servers"] == ["https://front.example"]
    assert document["scopes_supported"] == ["read"]
    assert document["resource_name"] == "Ours"
    assert "s3cret" not in repr(guard)


def test_what_an_authorization_server_is_like_can_be_said(tmp_path):
    jwt = {
        **JWT,
        "keys_url": "https://as.example/jwks",
        "audiences": ["api://mcp"],
        "algorithms": ["ES256"],
        "access_tokens_only": True,
        "scope_claims": ["roles"],
        "leeway": 5,
        "allow_private": True,
    }
    (tokens,) = made(tmp_path, jwt={"main": jwt}).authenticators
    assert tokens.keys_url == "https://as.example/jwks"
    assert (tokens.audiences, tokens.algorithms) == (("api://mcp",), ("ES256",))
    assert tokens.access_tokens_only
    assert (tokens.scope_claims, tokens.leeway) == (("roles",), 5.0)
    assert tokens.reach.network.allow_private


def test_a_client_of_introspection_may_have_a_key(tmp_path):
    pem = ECKey.generate_key("P-256").as_pem(private=True)
    (tmp_path / "key.pem").write_bytes(pem)
    asked = {**INTROSPECTION, "private_key_file": "key.pem"}
    del asked["secret_env"]
    (tokens,) = made(tmp_path, jwt=None, introspection={"a": asked}).authenticators
    assert tokens.private_key is not None
    assert tokens.client_secret is None


def test_a_secret_is_read_again_when_its_file_changes(tmp_path):
    (tmp_path / "secret").write_text("one")
    asked = {**INTROSPECTION, "secret_file": "secret"}
    del asked["secret_env"]
    (tokens,) = made(tmp_path, jwt=None, introspection={"a": asked}).authenticators
    assert tokens.client_secret.reveal() == "one"
    (tmp_path / "secret").write_text("two!")
    assert tokens.client_secret.reveal() == "two!"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"resource": None}, "auth.resource: missing key"),
        ({"jwt": None}, "nobody could prove anything"),
        ({"jwt": {"a": {}}}, "auth.jwt.a.issuer: missing key"),
        ({"jwt": {"a": {**JWT, "keys": 1}}}, "auth.jwt.a.keys: unknown key"),
        ({"jwt": {"a": {**JWT, "leeway": -1}}}, "auth.jwt.a.leeway: must be 0 or more"),
        ({"implies": {"a": "b"}}, "auth.implies.a: must be a list of strings"),
        ({"certificates": {"cn:a": {}}}, "auth.certificates.'cn:a'.subject: missing key"),
        ({"dpop": {"window": 0}}, "auth.dpop.window: must be greater than 0"),
        ({"token": "x"}, "auth.token: unknown key"),
    ],
)
def test_faults_are_told_with_their_key(changes, told):
    with pytest.raises(SettingsError) as caught:
        section(**changes)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"resource": "mcp.example"}, "auth: the resource is the URL"),
        ({"jwt": {"a": {"issuer": "http://as.example"}}}, r"auth: jwt\.a: .* has to be https"),
        ({"jwt": {"a": {**JWT, "algorithms": ["none"]}}}, r"auth: jwt\.a: 'none' is no algorithm"),
        ({"introspection": {"b": INTROSPECTION}}, r"auth: introspection\.b: .*SECRET is not set"),
        (
            {"introspection": {"b": {**INTROSPECTION, "private_key_file": "x"}}},
            "either a secret or private_key_file",
        ),
        ({"certificates": {"agent": {"subject": "x"}}}, "auth: 'agent' is no name"),
        ({"api_keys_file": "nothing.toml"}, "auth: cannot read"),
        ({"implies": {"a b": ["c"]}}, "auth: implies: 'a b' is no scope"),
        ({"dpop": {"nonces": True, "nonce_key_file": "nothing"}}, "auth: auth.dpop: cannot read"),
    ],
)
def test_what_cannot_be_is_told_with_its_section(tmp_path, changes, told):
    with pytest.raises(ConfigurationError, match=told):
        made(tmp_path, **changes)
