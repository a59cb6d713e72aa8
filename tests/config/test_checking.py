"""Checking settings: each kind of fault, several together, and nothing secret in any of them."""

import copy
import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID as Usage
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_trio.catalog.registries.schema import create_registry
from mcp_trio.config import Draft, Settings, check_settings, draft_file
from mcp_trio.config.schema import leaves
from tests.config.test_environment import base

DAY = timedelta(days=1)
CANARY = "c4n4ry-s3cr3t"


@pytest.fixture
def check(tmp_path):
    """Check a text, and tell the findings as severity, line, key and reason."""
    create_registry(tmp_path / "r.sqlite")

    def run(text, environment=None, *, offline=False, registry='registry = "r.sqlite"'):
        path = tmp_path / "production.toml"
        path.write_text(f"[catalog]\n{registry}\n{text}")
        environment = environment or {}
        checked = check_settings(draft_file(path, environment), environment, offline=offline)
        assert (checked.settings is None) == bool(checked.faults)
        for each in checked.findings:
            assert each.advice
            assert CANARY not in json.dumps(each.as_json()) + each.as_text() + str(each)
            assert each.origin.source == str(path)
        return [
            (each.severity, each.origin.line, ".".join(each.path), each.reason)
            for each in checked.findings
        ]

    return run


def test_what_is_right_has_no_findings(check):
    assert check("[server]\nport = 0\n[admin]\nport = 0\n") == []


def secret_file(folder, text=CANARY, mode=0o600):
    path = folder / "secret"
    path.write_text(text)
    path.chmod(mode)
    return path


WITH_AUTH = '[connections.crm]\nbase_url = "https://x"\n[connections.crm.auth]\nkind = "bearer"\n'


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ('secret_env = "TOKEN"', ("fault", 7, "connections.crm.auth.secret_env", "is not set")),
        (
            f'secret_env = "{CANARY}"',
            ("fault", 7, "connections.crm.auth.secret_env", "is not the name of a variable"),
        ),
        (
            'secret_file = "missing"',
            ("fault", 7, "connections.crm.auth.secret_file", "cannot read missing: No such file"),
        ),
        ("", ("fault", 5, "connections.crm.auth", "give either secret_env or secret_file")),
        (
            'secret_env = "A"\nsecret_file = "secret"',
            (
                "fault",
                7,
                "connections.crm.auth.secret_env",
                "give either secret_env or secret_file",
            ),
        ),
        (
            f'password = "{CANARY}"',
            ("fault", 7, "connections.crm.auth.password", "a secret never stands in the settings"),
        ),
        (
            f'secret = "{CANARY}"\nsecret_env = "A"',
            ("fault", 7, "connections.crm.auth.secret", "a secret never stands in the settings"),
        ),
        ('kid = "x"\nsecret_env = "A"', ("fault", 7, "connections.crm.auth.kid", "unknown key")),
    ],
)
def test_a_secret_that_is_not_to_be_had(check, tmp_path, text, finding):
    secret_file(tmp_path)
    ((severity, line, key, reason),) = check(WITH_AUTH + text, {"A": CANARY})
    assert (severity, line, key) == finding[:3]
    assert finding[3] in reason


def test_a_secret_file_that_holds_none_or_is_open_to_everybody(check, tmp_path):
    text = WITH_AUTH + 'secret_file = "secret"\n'
    key = "connections.crm.auth.secret_file"
    secret_file(tmp_path)
    assert check(text) == []
    secret_file(tmp_path, " \n")
    assert check(text) == [("fault", 7, key, "secret is empty")]
    secret_file(tmp_path, f"{CANARY}\nand more\n")
    ((severity, line, *found, reason),) = check(text)
    assert (severity, line, *found) == ("fault", 7, key)
    assert reason.startswith("secret holds a line break")
    by_variable = WITH_AUTH + 'secret_env = "TOKEN"\n'
    ((*_, key_of_variable, reason),) = check(by_variable, {"TOKEN": f"{CANARY}\rx"})
    assert key_of_variable == "connections.crm.auth.secret_env"
    assert reason.startswith("TOKEN holds a line break")
    secret_file(tmp_path, mode=0o644)
    assert check(text) == [("warning", 7, key, "everybody on this machine can read secret")]


def test_keys_of_the_server_and_the_secret_of_the_catalog(check, tmp_path):
    (tmp_path / "good.key").write_text("00" * 32)
    (tmp_path / "good.key").chmod(0o604)
    found = check(
        f'secret_file = "none"\n[server]\ncursor_key = "{CANARY}"\n'
        'state_keys = [\n  "env:A",\n  "file:good.key",\n  "env:SHORT",\n]\n',
        {"SHORT": CANARY},
        registry='registry = "https://registry.example/ops.json"',
    )
    assert [each[:3] for each in found] == [
        ("fault", 3, "catalog.secret_file"),
        ("fault", 5, "server.cursor_key"),
        ("fault", 7, "server.state_keys.0"),
        ("warning", 8, "server.state_keys.1"),
        ("fault", 9, "server.state_keys.2"),
    ]


def certificate(folder, name, **times):
    authority = trustme.CA()
    made = authority.issue_cert("x.example", **times)
    made.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    made.private_key_pem.write_to_path(folder / f"{name}.key")
    (folder / f"{name}.key").chmod(0o600)


WITH_CERTIFICATE = (
    '[connections.crm]\nbase_url = "https://x"\n'
    'client_cert_file = "{0}.pem"\nclient_key_file = "{0}.key"\n'
)


def test_certificates_are_there_and_in_time(check, tmp_path):
    now = datetime.now(UTC)
    certificate(tmp_path, "good")
    certificate(tmp_path, "old", not_after=now - timedelta(days=1))
    certificate(tmp_path, "ageing", not_after=now + timedelta(days=3))
    certificate(tmp_path, "young", not_before=now + timedelta(days=3))
    (tmp_path / "junk.pem").write_text(CANARY)
    (tmp_path / "junk.key").write_text(CANARY)
    (tmp_path / "junk.key").chmod(0o600)
    key = "connections.crm.client_cert_file"
    assert check(WITH_CERTIFICATE.format("good")) == []
    for name, severity, said in (
        ("old", "fault", "old.pem expired on "),
        ("ageing", "warning", "ageing.pem expires on "),
        ("young", "fault", "young.pem is not valid before "),
        ("junk", "fault", "junk.pem holds no certificates"),
        ("none", "fault", "cannot read none.pem"),
    ):
        found = check(WITH_CERTIFICATE.format(name))
        assert found[0][:3] == (severity, 5, key)
        assert found[0][3].startswith(said)
        assert len(found) == (2 if name == "none" else 1), "the key is missing, too"
    # A pair that is none.
    (tmp_path / "good.key").write_bytes((tmp_path / "old.key").read_bytes())
    ((severity, line, key, reason),) = check(WITH_CERTIFICATE.format("good"))
    assert (severity, line, key) == ("fault", 3, "connections.crm")
    assert "cannot use its client_cert_file" in reason


def test_the_certificate_of_the_service_and_its_key_fit(check, tmp_path):
    def tls(name, key, more=""):
        return f'[tls]\ncert_file = "{name}.pem"\nkey_file = "{key}.key"\n{more}'

    certificate(tmp_path, "good")
    certificate(tmp_path, "other")
    certificate(tmp_path, "old", not_after=datetime.now(UTC) - timedelta(days=1))
    assert check(tls("good", "good")) == []
    place = ("fault", 5, "tls.key_file")
    ((*found, reason),) = check(tls("good", "other"))
    assert (tuple(found), reason.endswith("good.pem")) == (place, True)
    assert "other.key is not the key of" in reason
    # Both are told, though either alone would be enough.
    assert [each[:3] for each in check(tls("old", "good"))] == [
        ("fault", 4, "tls.cert_file"),
        place,
    ]
    sealed = load_pem_private_key((tmp_path / "good.key").read_bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")
    )
    (tmp_path / "sealed.key").write_bytes(sealed)
    (tmp_path / "sealed.key").chmod(0o600)
    (tmp_path / "none.key").write_text("none")
    (tmp_path / "none.key").chmod(0o600)
    for name, said in (("sealed", "is encrypted"), ("none", "holds no private key")):
        ((*found, reason),) = check(tls("good", name))
        assert (tuple(found), f"{name}.key {said}" in reason) == (place, True)
    (tmp_path / "none.key").unlink()
    swapped = tls("good", "good").replace("good.pem", "good.key")
    assert [each[:3] for each in check(swapped)] == [("fault", 4, "tls.cert_file")]
    assert [each[:3] for each in check(tls("old", "none"))] == [
        ("fault", 4, "tls.cert_file"),
        ("fault", 5, "tls.key_file"),
    ]
    (tmp_path / "good.key").chmod(0o644)
    assert [each[:3] for each in check(tls("good", "good"))] == [("warning", 5, "tls.key_file")]
    (tmp_path / "good.key").chmod(0o600)
    asked = 'client_certificates = "optional"\nclient_ca_file = "none.pem"'
    ((_, _, key, reason),) = check(tls("good", "good", asked))
    assert (key, reason.partition(":")[0]) == ("tls.client_ca_file", "cannot read none.pem")
    for half in ('client_ca_file = "other.pem"', 'client_certificates = "required"'):
        ((_, _, key, reason),) = check(tls("good", "good", half))
        assert (key, "belongs together" in reason) == ("tls.client_certificates", True)


JWT = '[auth.jwt.x]\nissuer = "https://as"\n'
SCOPES = "toolsets.a.required_scopes"
AUTH = '[auth]\nresource = "https://x/mcp"\n'
ASKED = '[auth.introspection.x]\nurl = "https://x"\nissuer = "https://x"\nclient_id = "us"\n'


@pytest.mark.parametrize(
    ("text", "line", "key", "said"),
    [
        (AUTH, 3, "auth", "nobody could prove anything"),
        (AUTH + 'api_keys_file = "none"\n', 5, "auth.api_keys_file", "none: No such file"),
        (f'{AUTH}{ASKED}secret_env = "OURS"', 9, "auth.introspection.x.secret_env", "is not set"),
        (AUTH + ASKED, 5, "auth.introspection.x", "give either secret_env or secret_file"),
        (AUTH + ASKED + f'secret = "{CANARY}"', 9, "auth.introspection.x.secret", "never stands"),
        (
            f'{AUTH}{ASKED}private_key_file = "none"',
            9,
            "auth.introspection.x.private_key_file",
            "cannot read none",
        ),
        (AUTH + '[auth.jwt.x]\nissuer = "ftp://x"\n', 6, "auth.jwt.x.issuer", "http"),
        (AUTH + f"required_scopes = ['a b']\n{JWT}", 5, "auth.required_scopes", "'a b' is no"),
        (AUTH + JWT + "[toolsets.a]\ntags = ['a']\nrequired_scopes = ['']", 9, SCOPES, "'' is no"),
        (
            f'{AUTH}{JWT}[auth.jwt.y]\nissuer = "https://as"',
            8,
            "auth.jwt.y.issuer",
            "is the issuer of auth.jwt.x, too",
        ),
        (
            AUTH + '[auth.certificates."dns:a"]\nsubject = "a"',
            5,
            "auth.certificates",
            "nobody is asked for a certificate",
        ),
        (
            f'{AUTH.replace("mcp", "other")}{JWT}[toolsets.a]\ntags = ["a"]',
            4,
            "auth.resource",
            "does not end with server.path, /mcp",
        ),
    ],
)
def test_what_keeps_callers_from_being_known_is_told(check, text, line, key, said):
    ((severity, *place, reason),) = check(text)
    assert (severity, *place) == ("fault", line, key)
    assert said in reason


def test_a_log_has_a_folder(check, tmp_path):
    assert check('[logging]\nfile = "a.log"\n[access_log]\n[audit]\nfile = "stdout"\n') == []
    (tmp_path / "folder").mkdir()
    text = '[logging]\nfile = "none/a"\n[access_log]\nfile = "none/b"\n[audit]\nfile = "folder"\n'
    assert [each[:3] for each in check(text)] == [
        ("fault", 4, "logging.file"),
        ("fault", 6, "access_log.file"),
        ("fault", 8, "audit.file"),
    ]


def test_all_that_is_wrong_with_auth_is_told_at_once_each_at_its_key(check):
    found = check(
        """[auth]
resource = "mcp.example/mcp"
required_scopes = ["a b"]
scopes_supported = ["a\\"b"]
implies = { "x y" = ["x"] }
api_keys_file = "none"
[auth.jwt.x]
issuer = "http://as.example"
keys_url = "as.example/keys"
algorithms = ["HS256"]
[auth.introspection.y]
url = "http://as.example/ask"
issuer = "as.example"
client_id = "us"
[auth.certificates.agent]
subject = "agent"
scopes = [""]
[auth.dpop]
nonces = true
nonce_key_env = "NONE"
nonce_key_file = "none"
"""
    )
    assert [(severity, line, key) for severity, line, key, _ in found] == [
        ("fault", 4, "auth.resource"),
        ("fault", 5, "auth.required_scopes"),
        ("fault", 6, "auth.scopes_supported"),
        ("fault", 7, "auth.implies"),
        ("fault", 8, "auth.api_keys_file"),
        ("fault", 10, "auth.jwt.x.issuer"),
        ("fault", 11, "auth.jwt.x.keys_url"),
        ("fault", 12, "auth.jwt.x.algorithms"),
        ("fault", 13, "auth.introspection.y"),
        ("fault", 14, "auth.introspection.y.url"),
        ("fault", 15, "auth.introspection.y.issuer"),
        ("fault", 17, "auth.certificates.agent"),
        ("fault", 17, "auth.certificates"),
        ("fault", 19, "auth.certificates.agent.scopes"),
        ("fault", 20, "auth.dpop"),
        ("fault", 22, "auth.dpop.nonce_key_env"),
        ("fault", 23, "auth.dpop.nonce_key_file"),
    ]


def test_a_resource_elsewhere_is_a_warning_since_a_proxy_may_change_paths(check):
    ((severity, line, key, _),) = check(AUTH.replace("mcp", "other") + JWT)
    assert (severity, line, key) == ("warning", 4, "auth.resource")


def test_the_mark_that_some_editors_begin_a_file_with_is_no_fault(tmp_path):
    path = tmp_path / "marked.toml"
    path.write_text('\ufeff[catalog]\nregistry = "r.sqlite"\ninterval = 0\n')
    (fault,) = check_settings(draft_file(path, {}), {}, offline=True).findings
    assert (fault.path, fault.origin.line) == (("catalog", "interval"), 3)


def test_of_many_authorities_some_may_be_over(check, tmp_path):
    certificate(tmp_path, "good")
    certificate(tmp_path, "old", not_after=datetime.now(UTC) - timedelta(days=1))
    bundle = tmp_path / "ca.pem"
    text = '[connections.crm]\nbase_url = "https://x"\nca_file = "ca.pem"\n'
    old, good = ((tmp_path / f"{name}.pem").read_bytes() for name in ("old", "good"))
    bundle.write_bytes(old + good)
    assert check(text) == []
    bundle.write_bytes(old)
    ((severity, line, key, reason),) = check(text)
    assert (severity, line, key) == ("fault", 5, "connections.crm.ca_file")
    assert "expired on" in reason


@pytest.mark.parametrize(
    ("text", "line", "key", "said"),
    [
        ('[connections.a]\nbase_url = "ftp://x"', 4, "connections.a.base_url", "must be http"),
        ('[connections.a]\nkind = "pigeon"', 4, "connections.a.kind", "no kind of connection"),
        ('[connections.a]\nkind = "sql"', 3, "connections.a.address", "missing key"),
        ('[connections.a]\nkind = "mcp"', 3, "connections.a", "either a url or a command"),
        (
            '[connections.a]\nkind = "mcp"\ncommand = ["x"]\n[connections.a.env_from]\nT = "TT"',
            7,
            "connections.a.env_from.T",
            "TT is not set",
        ),
        (
            '[connections.a]\nbase_url = "http://x"\ntotal_timeuot = 3',
            5,
            "connections.a.total_timeuot",
            "did you mean connections.a.total_timeout?",
        ),
        ("[toolsets.crm]", 3, "toolsets.crm", "has neither names nor tags"),
        ("allow_http = true", 3, "catalog.allow_http", "SQLite file has no allow_http"),
        ("[server]\nhost = '0.0.0.0'\nallow_anonymous = true", 4, "server.host", "without TLS"),
    ],
)
def test_what_could_not_be_made_is_told_where_it_stands(check, text, line, key, said):
    ((severity, *place, reason),) = check(text)
    assert (severity, *place) == ("fault", line, key)
    assert said in reason


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f'headers = {{ Authorization = "{CANARY}" }}', "connections.a.headers.Authorization"),
        (f'headers = {{ X-Api-Key = "{CANARY}" }}', "connections.a.headers.X-Api-Key"),
        ("verify_tls = false", "connections.a.verify_tls"),
    ],
)
def test_what_looks_unwise_is_a_warning(check, text, key):
    ((severity, line, *found),) = check(f'[connections.a]\nbase_url = "https://x"\n{text}\n')
    assert (severity, line, found[0]) == ("warning", 5, key)


def test_a_registry_that_is_not_there_is_a_warning_unless_nobody_looks(check):
    ((severity, line, key, reason),) = check("", registry='registry = "none.sqlite"')
    assert (severity, line, key) == ("warning", 2, "catalog.registry")
    assert "there is no registry at" in reason
    assert check("", registry='registry = "none.sqlite"', offline=True) == []
    # Nobody listens on port 1.
    text = "connect_timeout = 1\n"
    ((severity, *_),) = check(text, registry='registry = "http://127.0.0.1:1/ops.json"')
    assert severity == "warning"


@pytest.mark.parametrize("registry", ["", "registry = 3", 'registry = " "', 'registy = "r.sqlite"'])
def test_without_a_registry_all_else_is_judged_still(check, registry):
    found = check('[server]\nport = -1\n[connections.a]\nbase_url = "ftp://x"\n', registry=registry)
    keys = [key for _, _, key, _ in found]
    assert "catalog.registry" in keys
    assert keys[-2:] == ["server.port", "connections.a.base_url"]
    assert all(severity == "fault" for severity, *_ in found)


def test_many_faults_are_told_together_in_the_order_of_the_file(check):
    found = check(
        "intervall = 3\n"
        "[server]\nport = 70000\nprot = 1\nhost = 3\nrequest_timeout = false\n"
        '[admin]\nhost = "0.0.0.0"\n'
        "[toolsets.crm]\nnames = 3\n"
        '[connections.a]\nbase_url = 3\nauth = { kind = "beare" }\n'
        '[connections.b]\nbase_url = "http://b"\nca_file = "none"\n'
        'auth = { kind = "bearer", secret_env = "B" }\nclient_cert_file = "x"\n'
        "[what]\never = 1\n"
    )
    assert [(line, key) for _, line, key, _ in found] == [
        (3, "catalog.intervall"),
        (5, "server.port"),
        (6, "server.prot"),
        (7, "server.host"),
        (8, "server.request_timeout"),
        (10, "admin.host"),
        (12, "toolsets.crm.names"),
        (14, "connections.a.base_url"),
        (15, "connections.a.auth.kind"),
        (18, "connections.b.ca_file"),
        (19, "connections.b.auth.secret_env"),
        (20, "connections.b.client_cert_file"),
        (21, "what"),
    ]


def test_all_that_is_wrong_with_a_connection_is_told_by_its_keys(check, tmp_path):
    secret_file(tmp_path)
    found = check(
        '[connections.a]\nbase_url = "ftp://x"\ndeadline_header = "X Y"\n'
        'headers = { "X Y" = "1", good = "2", bad = "a\\nb" }\n'
        'auth = { kind = "client_credentials", secret_file = "secret", client_id = "c", '
        'token_url = "http://x.example" }\n'
        "defaults = { retry = { max_attempts = 99 }, concurency = 1 }\n"
        '[connections.b]\nkind = "sql"\naddress = "b.sqlite"\nsecret_file = "secret"\n'
        'secret_env = "B"\n'
        '[connections.c]\nkind = "mcp"\nheaders = { "X Y" = "1" }\n'
        '[connections.d]\nkind = "mcp"\nurl = "ftp://x"\ncommand = []\n'
        '[connections.e]\nkind = "sql"\naddress = "postgresql://u:p@db/x"\n'
        'secret_file = "secret"\n'
        '[connections.f]\nbase_url = "https://f"\nclient_cert_file = "none.pem"\n'
        'client_key_file = "none.key"\ndeadline_header = "X Y"\n',
        {"B": CANARY},
    )
    assert sorted((line, key) for _, line, key, _ in found) == [
        (4, "connections.a.base_url"),
        (5, "connections.a.deadline_header"),
        (6, "connections.a.headers.X Y"),
        (6, "connections.a.headers.bad"),
        (7, "connections.a.auth.token_url"),
        (8, "connections.a.defaults.concurency"),
        (8, "connections.a.defaults.retry.max_attempts"),
        (12, "connections.b.secret_file"),
        (13, "connections.b.secret_env"),
        (14, "connections.c"),
        (16, "connections.c.headers.X Y"),
        (19, "connections.d.url"),
        (20, "connections.d.command"),
        (23, "connections.e.address"),
        (27, "connections.f.client_cert_file"),
        (28, "connections.f.client_key_file"),
        (29, "connections.f.deadline_header"),
    ]


def test_a_fault_within_a_connection_names_the_variable_that_it_came_from(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text('[catalog]\nregistry = "r"\n[connections.crm-eu]\nbase_url = "https://x"\n')
    environment = {
        "MCP_TRIO_CONNECTIONS__CRM_EU__AUTH": '{"kind": "basic"}',
        "MCP_TRIO_CONNECTIONS__CRM_EU__HEADERS": '{"X Y": "1"}',
        "MCP_TRIO_CATALOG__ALLOW_HTTP": "true",
    }
    found = check_settings(draft_file(path, environment), environment, offline=True).findings
    assert {each.origin.source for each in found} == set(environment)


@pytest.mark.parametrize(
    ("registry", "keys"),
    [
        ("r.json", ["secret_file", "header", "ca_file", "allow_http"]),
        ("http://r.example/x.json", ["registry", "header"]),
        ("https://u:p@r.example/x.json", ["registry", "header"]),
        ("ftp://r.example", ["registry", "header"]),
        ("postgresql://u:p@r.example/x", ["registry", "header"]),
    ],
)
def test_all_that_a_registry_does_not_heed_is_told(check, tmp_path, registry, keys):
    certificate(tmp_path, "good")
    secret_file(tmp_path)
    allowed = "" if registry.startswith("http:") else "allow_http = true\n"
    text = f'secret_file = "secret"\nheader = "X Y"\nca_file = "good.pem"\n{allowed}'
    found = check(text, registry=f'registry = "{registry}"', offline=True)
    assert [key for _, _, key, _ in found] == [f"catalog.{key}" for key in keys]


def test_a_certificate_that_is_not_for_servers_is_a_warning(check, tmp_path):
    text = '[tls]\ncert_file = "c.pem"\nkey_file = "c.key"\n'
    key = ec.generate_private_key(ec.SECP256R1())
    pem = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "c.key").write_bytes(key.private_bytes(*pem))
    (tmp_path / "c.key").chmod(0o600)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x.example")])
    now = datetime.now(UTC)
    found = []
    for usage in ([], [Usage.CLIENT_AUTH], [Usage.CLIENT_AUTH, Usage.SERVER_AUTH]):
        made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + 99 * DAY)
        if usage:
            made = made.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        (tmp_path / "c.pem").write_bytes(made.sign(key, SHA256()).public_bytes(Encoding.PEM))
        found.append(check(text))
    assert found[0] == found[2] == []
    ((severity, line, where, reason),) = found[1]
    assert (severity, line, where) == ("warning", 4, "tls.cert_file")
    assert reason.startswith("c.pem is not for servers")


def test_scopes_of_auth_that_are_none_are_told_once_by_their_key(check):
    text = AUTH + 'scopes_supported = ["x y"]\nimplies = { "a b" = ["c"] }\n'
    text += '[auth.jwt.a]\nissuer = "https://a.example"\n[auth.introspection.b]\n'
    text += 'issuer = "https://b.example"\nurl = "https://b.example/i"\nclient_id = " "\n'
    found = check(text + 'secret_env = "B"\n', {"B": CANARY})
    assert {key: reason for _, _, key, reason in found} == {
        "auth.scopes_supported": "'x y' is no scope",
        "auth.implies": "'a b' is no scope",
        "auth.introspection.b.client_id": "must not be empty",
    }


def test_a_header_that_has_no_secret_to_carry_is_a_fault(check):
    registry = 'registry = "https://r.example/x.json"'
    ((severity, _, key, reason),) = check('header = "X-Token"', registry=registry, offline=True)
    assert (severity, key) == ("fault", "catalog.header")
    assert "has no secret to carry" in reason


WITH_EXCHANGE = (
    "[connections.a]\nbase_url = 'http://x'\n[connections.a.on_behalf_of]\n"
    "token_url = 'https://x'\nclient_id = 'x'\nsecret_env = 'A'\n"
)


@pytest.mark.parametrize(
    ("table", "near"),
    [
        ("[server]\nprot", "server.port"),
        ("[admin]\nhots", "admin.host"),
        ("[toolsets.a]\nnames = ['x']\ntag", "toolsets.a.tags"),
        ("[connections.a]\nbase_url = 'http://x'\nmax_conections", "connections.a.max_connections"),
        ("[connections.a]\nkind = 'grpc'\naddress = 'x:1'\ntsl", "connections.a.tls"),
        ("[connections.a]\nkind = 'mcp'\nurl = 'http://x'\nsesions", None),
        ("[connections.a]\nkind = 'sql'\naddress = 'x'\nadress", "connections.a.address"),
        (
            "[connections.a]\nbase_url = 'http://x'\n[connections.a.auth]\nkind = 'none'\ntoken_ur",
            "connections.a.auth.token_url",
        ),
        (
            f"{WITH_EXCHANGE}audence",
            "connections.a.on_behalf_of.audience",
        ),
        ("[sever]\nx", "server"),
    ],
)
def test_an_unknown_key_is_a_fault_in_every_table_and_the_nearest_is_named(check, table, near):
    found = check(f"{table} = 1\n", {"A": "x"}, offline=True)
    assert len(found) == 1
    assert found[0][3].startswith("unknown key")
    if near is not None:
        assert found[0][3] == f"unknown key; did you mean {near}?"


@pytest.mark.parametrize("key", ["password", "token", "secret", "api_key", "db_passwd"])
@pytest.mark.parametrize(
    "table",
    [
        "",
        "[server]",
        "[admin]",
        "[connections.a]\nbase_url = 'http://x'",
        "[connections.a]\nkind = 'sql'\naddress = 'x'",
    ],
)
def test_a_secret_in_the_file_is_refused_with_the_way_to_give_it(check, table, key):
    ((severity, _, _, reason),) = check(f'{table}\n{key} = "{CANARY}"\n')
    assert severity == "fault"
    assert reason == "unknown key; a secret never stands in the settings"


def test_a_key_of_another_table_is_told_its_place(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text('interval = 3\n[catalog]\nregistry = "r"\nlegacy_sse = true\n')
    found = check_settings(draft_file(path, {}), {}, offline=True).findings
    assert [each.advice for each in found] == [
        "Move it to catalog.interval, or remove it.",
        "Move it to server.legacy_sse, or remove it.",
    ]


KEYS = list(leaves(Settings, base()))
JUNK = (3, -1, True, "x", "", 1.5, math.inf, [], ["a"], [{"a": 1}], {}, {"a": {"b": 1}}, "env:X")
TABLES = ({"kind": "grpc"}, {"kind": 3}, {"": {}}, {"a b": {"names": ["*"]}})
ANYTHING = st.sampled_from((*JUNK, *TABLES)).map(copy.deepcopy)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KEYS), ANYTHING, st.booleans()), min_size=1, max_size=6))
def test_whatever_stands_in_a_file_is_judged_and_each_fault_has_advice(changes):
    values = base()
    for path, junk, unknown in changes:
        node = values
        for part in path[:-1]:
            node = node.setdefault(part, {}) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node[f"{path[-1]}_" if unknown else path[-1]] = junk
    draft = Draft.of("settings.toml", Path("/nowhere"), values)
    checked = check_settings(draft, {}, offline=True)
    assert checked.faults, "the secrets are not there, at the least"
    assert all(each.advice and each.as_text() for each in checked.findings)
