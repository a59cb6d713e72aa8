"""As whom upstreams are asked: keys, tokens of our own and of callers, certificates, rotation."""

from __future__ import annotations

import functools
import json
import logging
import os
import ssl
from urllib.parse import parse_qs

import pytest
import trio
import trustme
from trio.testing import wait_all_tasks_blocked

from mcp_trio.catalog.operation import OperationError
from mcp_trio.config import make_connections, parse_settings
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import ConfigurationError
from mcp_trio.network_guard import NetworkPolicy
from mcp_trio.runtime.http_connection import Auth, ClientCertificate
from mcp_trio.runtime.upstream_tokens import TokenEndpoint, Tokens
from mcp_trio.secrets import FileSecret, Secret

INBOUND = "inbound-token-of-ann"
ANN = Principal(subject="ann", token=Secret(INBOUND))
BOB = Principal(subject="bob", token=Secret("inbound-token-of-bob"))
ON_BEHALF = {"auth": "on_behalf_of"}


class Guarded:
    """An upstream and its token endpoint, on one port."""

    def __init__(self, upstream):
        self.upstream = upstream
        self.forms = []
        self.shown = []
        self.good = set()
        self.refuses = None
        self.gate = None
        self.lifetime = 3600
        upstream.handler = self.answer

    @property
    def url(self):
        return f"{self.upstream.url}/token"

    async def answer(self, line, seen):
        if seen.target == "/token":
            await self.give(line, seen)
            return
        token = (seen.header("authorization") or "").removeprefix("Bearer ")
        self.shown.append(token)
        status = 200 if token in self.good else 401
        await line.answer(json.dumps({"token": token}).encode(), status)

    async def give(self, line, seen):
        self.forms.append({k: v[0] for k, v in parse_qs(seen.body.decode()).items()})
        if self.gate is not None:
            await self.gate.wait()
        if self.refuses is not None:
            status, error = self.refuses
            body = {"error": error, "error_description": "s3cret-of-ours is wrong"}
            await line.answer(json.dumps(body).encode(), status)
            return
        token = f"upstream-token-{len(self.forms)}"
        self.good.add(token)
        body = {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime}
        await line.answer(json.dumps(body).encode())


@pytest.fixture
def guarded(upstream):
    return Guarded(upstream)


def endpoint(guarded, **more):
    return TokenEndpoint(
        url=guarded.url, client_id="us", client_secret=Secret("s3cret-of-ours"), **more
    )


# -- keys ------------------------------------------------------------------------------


async def test_a_key_in_the_query_stands_behind_the_others_and_is_never_shown(
    upstream, make_bench, failure, caplog
):
    caplog.set_level(logging.DEBUG)
    auth = Auth(kind="query", parameter="api key", secret=Secret("k&y=1/2 3"))
    upstream.says({"error": "the key k&y=1/2 3, or k%26y%3D1%2F2%203, is old"}, status=400)
    bench = make_bench(upstream.url, auth=auth)
    async with bench.connections:
        text, _ = failure(await bench.call())
        assert upstream.last.target == "/leads/1?api%20key=k%26y%3D1%2F2%203"
        await bench.call(input_mapping={"path": {"id": "1"}, "query": {"a": "b"}})
        assert upstream.last.target == "/leads/1?a=b&api%20key=k%26y%3D1%2F2%203"
        await bench.call(execution_config={"auth": "none"})
        assert upstream.last.target == "/leads/1"
    assert text.count("***") == 2
    assert "k&y" not in text + caplog.text
    assert "k%26y" not in text + caplog.text


# -- tokens of our own -----------------------------------------------------------------


async def test_one_token_serves_many_calls_also_at_once(guarded, make_bench):
    auth = endpoint(guarded, scopes=("a", "b"), audience="crm", resource="https://crm.example")
    bench = make_bench(guarded.upstream.url, auth=auth)
    async with bench.connections:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(bench.call)
        assert guarded.forms == [
            {
                "grant_type": "client_credentials",
                "scope": "a b",
                "audience": "crm",
                "resource": "https://crm.example",
            }
        ]
        assert guarded.shown == ["upstream-token-1"] * 20


async def test_a_token_that_is_refused_is_got_anew_once(guarded, make_bench, failure):
    bench = make_bench(guarded.upstream.url, auth=endpoint(guarded))
    async with bench.connections:
        await bench.call()
        guarded.good.clear()
        assert (await bench.call()).is_error is None
        assert guarded.shown == ["upstream-token-1"] * 2 + ["upstream-token-2"]
        guarded.good = frozenset()
        guarded.give = functools.partial(_give_a_bad_token, guarded)
        _, told = failure(await bench.call())
        assert (told["stage"], told["upstream_status"]) == ("external_service", 401)
        assert guarded.shown[3:] == ["upstream-token-2", "bad"]


async def _give_a_bad_token(guarded, line, _seen):
    await line.answer(json.dumps({"access_token": "bad", "token_type": "Bearer"}).encode())


@pytest.mark.parametrize(
    ("refuses", "code", "retryable"),
    [((401, "invalid_client"), "invalid_client", False), ((503, "busy"), "unavailable", True)],
)
async def test_without_a_token_nothing_is_sent_and_nothing_is_told(
    guarded, make_bench, failure, refuses, code, retryable
):
    guarded.refuses = refuses
    bench = make_bench(guarded.upstream.url, auth=endpoint(guarded))
    async with bench.connections:
        text, told = failure(await bench.call())
    assert (told["stage"], told["sub"]) == ("adapter_execution", "credentials")
    assert (told["code"], told["retryable"]) == (code, retryable)
    assert "s3cret" not in text
    assert guarded.shown == []


async def test_who_is_cancelled_while_asking_leaves_the_next_one_to_ask(guarded, make_bench):
    guarded.gate = trio.Event()
    bench = make_bench(guarded.upstream.url, auth=endpoint(guarded))
    results = []

    async def call():
        results.append(await bench.call())

    async with bench.connections, trio.open_nursery() as nursery:
        first = trio.CancelScope()

        async def give_up():
            with first:
                await bench.call()

        nursery.start_soon(give_up)
        await guarded.upstream.asked.wait()
        nursery.start_soon(call)
        await wait_all_tasks_blocked(0.01)
        first.cancel()
        guarded.gate.set()
    assert results[0].is_error is None
    assert guarded.shown == ["upstream-token-2"]


async def test_a_token_is_renewed_before_its_end():
    now = 1000.0

    class Outward:
        asked = 0

        async def ask(self, _question):
            from mcp_trio.auth.steps import Answer

            await trio.lowlevel.checkpoint()
            self.asked += 1
            body = {"access_token": f"t{self.asked}", "token_type": "bearer", **self.more}
            return Answer(status=200, body=json.dumps(body).encode())

        async def __aexit__(self, *_):
            await trio.lowlevel.checkpoint()

    outward = Outward()
    outward.more = {"expires_in": 600}
    where = TokenEndpoint(url="https://as.example/t", client_id="us", client_secret=Secret("x" * 9))
    tokens = Tokens(where, outward, clock=lambda: now)
    assert (await tokens.token(None)).reveal() == "t1"
    now += 569
    assert (await tokens.token(None)).reveal() == "t1"
    now += 2
    outward.more = {}
    assert (await tokens.token(None)).reveal() == "t2"
    now += 299
    assert (await tokens.token(None)).reveal() == "t2"
    now += 2
    assert (await tokens.token(None)).reveal() == "t3"
    await tokens.aclose()


async def test_the_token_endpoint_is_guarded_as_upstreams_are(guarded, make_bench, failure):
    async def resolver(_host, _port):
        await trio.lowlevel.checkpoint()
        return ["127.0.0.1"]

    where = guarded.url.replace("127.0.0.1", "as.example").replace("http:", "https:")
    auth = TokenEndpoint(url=where, client_id="us", client_secret=Secret("s3cret-of-ours"))
    bench = make_bench(guarded.upstream.url, auth=auth, resolver=resolver)
    async with bench.connections:
        text, told = failure(await bench.call())
    assert told["sub"] == "credentials"
    assert "must not be reached" in text


# -- tokens of callers -----------------------------------------------------------------


async def test_a_callers_token_is_exchanged_and_never_sent_on(guarded, make_bench):
    exchange = endpoint(guarded, subject_token_type="urn:x:jwt", audience="crm")
    bench = make_bench(guarded.upstream.url, on_behalf_of=exchange)
    async with bench.connections:
        for who in (ANN, BOB, ANN):
            result = await bench.call(principal=who, execution_config=ON_BEHALF)
            assert result.is_error is None
        again = Principal(subject="ann", token=Secret("another-token-of-ann"))
        await bench.call(principal=again, execution_config=ON_BEHALF)
    assert guarded.shown == [f"upstream-token-{n}" for n in (1, 2, 1, 3)]
    assert [form["subject_token"] for form in guarded.forms] == [
        INBOUND,
        "inbound-token-of-bob",
        "another-token-of-ann",
    ]
    assert guarded.forms[0] == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": INBOUND,
        "subject_token_type": "urn:x:jwt",
        "audience": "crm",
    }
    sent = [
        (seen.target, value)
        for seen in guarded.upstream.seen
        for _, value in seen.headers
        if "inbound" in value
    ]
    assert sent == []


@pytest.mark.parametrize("who", [None, Principal(subject="ann")])
async def test_nobody_acts_on_behalf_of_somebody_unknown(guarded, make_bench, failure, who):
    bench = make_bench(
        guarded.upstream.url, on_behalf_of=endpoint(guarded, subject_token_type="urn:x:jwt")
    )
    async with bench.connections:
        _, told = failure(await bench.call(principal=who, execution_config=ON_BEHALF))
    assert (told["sub"], told["code"], told["retryable"]) == ("credentials", "no_caller", False)
    assert guarded.upstream.seen == []


async def test_an_operation_cannot_act_on_behalf_where_nothing_exchanges(bench):
    with pytest.raises(OperationError, match="has no on_behalf_of"):
        bench.compile(execution_config=ON_BEHALF)


async def test_an_operation_cannot_set_the_header_of_the_token(guarded, make_bench):
    bench = make_bench(guarded.upstream.url, auth=endpoint(guarded))
    with pytest.raises(OperationError, match="not for an operation to set"):
        bench.compile(input_mapping={"path": {"id": "1"}, "headers": {"Authorization": "x"}})


async def test_the_token_of_a_caller_has_no_text_and_is_no_part_of_who_it_is():
    assert INBOUND not in repr(ANN) + str(ANN)
    assert Principal(subject="ann", token=Secret("other")) == ANN


# -- rotation --------------------------------------------------------------------------


def rotate(path, value, stamp):
    new = path.with_suffix(".new")
    new.write_text(value)
    os.utime(new, ns=(stamp, stamp))
    new.replace(path)


async def test_a_secret_file_is_read_again_when_it_changes(
    upstream, make_bench, failure, tmp_path, caplog
):
    path = tmp_path / "token"
    path.write_text("first-secret\n")
    bench = make_bench(upstream.url, auth=Auth(kind="bearer", secret=FileSecret(path)))
    async with bench.connections:
        await bench.call()
        assert upstream.last.header("authorization") == "Bearer first-secret"
        rotate(path, "second-secret", 10**18)
        upstream.says({"error": "neither first-secret nor second-secret"}, status=400)
        text, _ = failure(await bench.call())
        assert upstream.last.header("authorization") == "Bearer second-secret"
        assert "-secret" not in text
        rotate(path, " \n", 2 * 10**18)
        await bench.call()
        assert upstream.last.header("authorization") == "Bearer second-secret"
        path.unlink()
        await bench.call()
        assert upstream.last.header("authorization") == "Bearer second-secret"
        # One that would be another field of the request changes nothing either.
        rotate(path, "evil\r\nx-injected: 1", 25 * 10**17)
        before = len(upstream.seen)
        await bench.call()
        assert len(upstream.seen) == before + 1
        assert upstream.last.header("authorization") == "Bearer second-secret"
        rotate(path, "third-secret", 3 * 10**18)
        await bench.call()
        assert upstream.last.header("authorization") == "Bearer third-secret"
    assert caplog.text.count("the last secret stays") == 1
    assert "is empty; the last secret stays" in caplog.text
    assert "-secret\n" not in caplog.text


async def test_a_secret_that_was_rotated_while_a_request_ran_is_tried_at_once(
    upstream, make_bench, tmp_path
):
    path = tmp_path / "token"
    path.write_text("first-secret")

    async def handler(line, seen):
        if seen.header("authorization") == "Bearer second-secret":
            await line.answer()
            return
        rotate(path, "second-secret", 10**18)
        await line.answer(status=401)

    upstream.handler = handler
    bench = make_bench(upstream.url, auth=Auth(kind="bearer", secret=FileSecret(path)))
    async with bench.connections:
        assert (await bench.call()).is_error is None
    assert len(upstream.seen) == 2


async def test_a_rotated_secret_that_cannot_be_a_header_is_not_sent(
    upstream, make_bench, failure, tmp_path
):
    path = tmp_path / "token"
    path.write_text("first-secret")
    bench = make_bench(upstream.url, auth=Auth(kind="bearer", secret=FileSecret(path)))
    async with bench.connections:
        rotate(path, "schl\u00fcssel", 10**18)
        text, told = failure(await bench.call())
    assert (told["stage"], told["sub"]) == ("adapter_execution", "credentials")
    assert "schl" not in text
    assert upstream.seen == []


# -- certificates ----------------------------------------------------------------------


def write(cert, folder):
    found = ClientCertificate(certificate=folder / "cert.pem", key=folder / "key.pem")
    for path, blobs in (
        (found.certificate, cert.cert_chain_pems),
        (found.key, [cert.private_key_pem]),
    ):
        path.write_bytes(b"".join(blob.bytes() for blob in blobs))
    return found


@pytest.fixture
async def wants_certificates(upstream, nursery, tmp_path):
    """An upstream over TLS that notes who shows which certificate."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    upstream.names = []

    async def serve(stream):
        secured = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        try:
            await secured.do_handshake()
            names = secured.getpeercert()["subjectAltName"]
            upstream.names.append(names[0][1])
            await upstream.serve(secured)
        except (trio.BrokenResourceError, ssl.SSLError):
            upstream.hung_up.set()

    listeners = await nursery.start(functools.partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
    upstream.url = f"https://localhost:{listeners[0].socket.getsockname()[1]}"
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    return upstream, authority, str(bundle)


async def test_a_certificate_is_shown_and_replaced_without_a_restart(
    wants_certificates, make_bench, failure, tmp_path
):
    upstream, authority, bundle = wants_certificates
    mine = write(authority.issue_cert("first.example"), tmp_path)
    bench = make_bench(upstream.url, verify_tls=bundle, client_certificate=mine)

    async def close(line, _seen):
        await line.answer(headers=[("connection", "close")])

    upstream.handler = close
    async with bench.connections:
        assert (await bench.call()).is_error is None
        mine.key.write_text("half of a pair")
        os.utime(mine.key, ns=(10**18, 10**18))
        assert (await bench.call()).is_error is None
        write(authority.issue_cert("second.example"), tmp_path)
        assert (await bench.call()).is_error is None
    assert upstream.names == ["first.example", "first.example", "second.example"]
    bench = make_bench(upstream.url, verify_tls=bundle)
    async with bench.connections:
        _, told = failure(await bench.call())
    assert told["stage"] == "adapter_execution"


# -- settings --------------------------------------------------------------------------


def connection(tmp_path, **section):
    values = {
        "catalog": {"registry": "r"},
        "connections": {"crm": {"base_url": "https://crm.example", **section}},
    }
    environment = {"KEY": "s3cret-of-ours"}
    (made,) = make_connections(parse_settings(values).connections, tmp_path, environment)
    return made


def test_all_of_it_can_be_set(tmp_path):
    write(trustme.CA().issue_cert("us.example"), tmp_path)
    made = connection(
        tmp_path,
        auth={
            "kind": "client_credentials",
            "token_url": "https://as.example/token",
            "client_id": "us",
            "secret_env": "KEY",
            "auth_method": "client_secret_post",
            "scopes": ["a"],
            "audience": "crm",
        },
        on_behalf_of={
            "token_url": "https://as.example/token",
            "client_id": "us",
            "private_key_file": "key.pem",
            "key_algorithm": "ES256",
        },
        client_cert_file="cert.pem",
        client_key_file="key.pem",
    )
    assert made.auth.client_secret == Secret("s3cret-of-ours")
    assert (made.auth.scopes, made.auth.audience) == (("a",), "crm")
    assert made.on_behalf_of.subject_token_type.endswith(":access_token")
    assert made.on_behalf_of.private_key is not None
    assert made.client_certificate.certificate == tmp_path / "cert.pem"
    assert connection(
        tmp_path, auth={"kind": "query", "parameter": "key", "secret_env": "KEY"}
    ).auth.query() == {"key": "s3cret-of-ours"}


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"auth": {"kind": "client_credentials", "client_id": "us"}}, "token_url and client_id"),
        ({"auth": {"kind": "query", "secret_env": "KEY"}}, "name of the parameter"),
        (
            {"auth": {"kind": "client_credentials", "token_url": "x", "client_id": "us"}},
            "either secret_env or secret_file",
        ),
        (
            {
                "on_behalf_of": {
                    "token_url": "http://as.example/token",
                    "client_id": "us",
                    "secret_env": "KEY",
                }
            },
            "on_behalf_of: token_url must be https",
        ),
        ({"client_cert_file": "cert.pem"}, "go together"),
        ({"client_cert_file": "no.pem", "client_key_file": "no.pem"}, "cannot use its client_cert"),
    ],
)
def test_what_cannot_work_is_explained_and_no_secret_with_it(tmp_path, section, told):
    with pytest.raises(ConfigurationError, match=told) as caught:
        connection(tmp_path, **section)
    assert "s3cret" not in str(caught.value)
    assert "crm" in str(caught.value) or "auth kind" in str(caught.value)


def test_private_networks_have_to_be_allowed_for_each_place(tmp_path):
    made = connection(
        tmp_path,
        allow_private=True,
        auth={
            "kind": "client_credentials",
            "token_url": "https://as.example/token",
            "client_id": "us",
            "secret_env": "KEY",
        },
    )
    assert made.network == NetworkPolicy(allow_private=True)
    assert made.auth.allow_private is False


async def test_what_one_token_of_a_caller_got_is_not_given_for_another(guarded, make_bench):
    exchange = endpoint(guarded, subject_token_type="urn:x:jwt")
    bench = make_bench(guarded.upstream.url, auth=endpoint(guarded), on_behalf_of=exchange)
    other = Principal(subject="ann", token=Secret("inbound-token-of-ann-for-less"))
    config = {"cache": {"ttl_s": 60}}
    async with bench.connections:
        for who in (ANN, other, ANN, other):
            await bench.call(principal=who, execution_config={**config, **ON_BEHALF})
        assert len(guarded.shown) == 2
        for who in (ANN, other):
            await bench.call(principal=who, execution_config=config)
        assert len(guarded.shown) == 3


# -- what an upstream repeats ----------------------------------------------------------


@pytest.fixture
def repeating(guarded):
    """Answers with the token it was shown, wherever a text can be."""
    said = {"status": 400, "kind": "application/json"}

    async def answer(line, seen):
        if seen.target == "/token":
            await guarded.give(line, seen)
            return
        token = seen.header("authorization").removeprefix("Bearer ")
        body = {"message": f"bad {token}", "code": f"x-{token}", token: [1, 2, 3]}
        raw = json.dumps(body).encode()
        if said["kind"] != "application/json":
            raw = b"data: " + raw + b"\n\n"
        await line.answer(raw, said["status"], said["kind"])

    guarded.upstream.handler = answer
    return said


WHERE = {
    "the text and the code of a failure": {"output_mapping": {"error": {"code": "=body.code"}}},
    "a key that the schema does not know": {
        "output_schema": {"type": "object", "additionalProperties": False},
    },
    "a place that the schema refuses": {
        "output_schema": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "a list that is too long": {"execution_config": {"limits": {"items": 2}}},
}


@pytest.mark.parametrize("whose", ["ours", "the caller's"])
@pytest.mark.parametrize("where", WHERE)
async def test_a_token_that_the_upstream_repeats_is_masked(
    guarded, make_bench, failure, repeating, where, whose
):
    repeating["status"] = 400 if "failure" in where else 200
    changes = {**WHERE[where]}
    options = {"auth": endpoint(guarded)}
    if whose == "the caller's":
        options = {"on_behalf_of": endpoint(guarded, subject_token_type="urn:x:jwt")}
        changes["execution_config"] = {**changes.get("execution_config", {}), **ON_BEHALF}
    bench = make_bench(guarded.upstream.url, **options)
    async with bench.connections:
        text, told = failure(await bench.call(principal=ANN, **changes))
    assert guarded.forms != []
    assert "***" in text
    assert "upstream-token" not in f"{text} {told}"


async def test_a_token_in_a_message_of_progress_is_masked(guarded, make_bench, recorded, repeating):
    repeating.update(status=200, kind="text/event-stream")
    context, told = recorded()
    bench = make_bench(guarded.upstream.url, auth=endpoint(guarded))
    target = {"connection": "crm", "method": "GET", "path": "/leads/{id}"}
    stream = {"progress": {"message": "=data.message"}}
    operation = bench.compile(
        target={**target, "stream": stream}, execution_config={"stream_progress": True}
    )
    async with bench.connections:
        await operation.call(context, {"id": "1"})
    assert told == [(1, None, "bad ***")]


async def test_a_long_key_of_the_upstream_does_not_fill_the_error(bench, upstream, failure):
    upstream.says({"k" * 5000: 1})
    schema = {"type": "object", "additionalProperties": {"type": "string"}}
    text, told = failure(await bench.call(output_schema=schema))
    assert len(text) < 1500
    assert len(told["violations"][0]["pointer"]) == 500


async def test_a_failure_is_that_of_everybody_who_waited_for_the_token(
    guarded, make_bench, failure
):
    guarded.refuses, guarded.gate = (500, "server_error"), trio.Event()
    bench = make_bench(guarded.upstream.url, auth=endpoint(guarded))
    told = []

    async def call():
        told.append(failure(await bench.call())[1]["sub"])

    async with bench.connections:
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(call)
            while not guarded.forms:
                await wait_all_tasks_blocked()
            await wait_all_tasks_blocked()
            guarded.gate.set()
        assert told == ["credentials"] * 100
        assert len(guarded.forms) == 1
        guarded.refuses = None
        assert (await bench.call()).is_error is None


@pytest.mark.parametrize("secret", ["s3cret-of-ours", INBOUND])
async def test_a_token_endpoint_that_repeats_a_secret_gives_nothing_away(
    guarded, make_bench, failure, secret
):
    guarded.refuses = (400, f"bad {secret}")
    exchange = endpoint(guarded, subject_token_type="urn:x:jwt")
    bench = make_bench(guarded.upstream.url, on_behalf_of=exchange)
    async with bench.connections:
        text, told = failure(await bench.call(principal=ANN, execution_config=ON_BEHALF))
    assert told["code"] == "bad ***"
    assert secret not in text


async def test_a_token_without_end_is_none(guarded, make_bench, failure):
    async def give(line, _seen):
        body = {"access_token": "x" * 32_769, "token_type": "Bearer"}
        await line.answer(json.dumps(body).encode())

    guarded.give = give
    bench = make_bench(guarded.upstream.url, auth=endpoint(guarded))
    async with bench.connections:
        _, told = failure(await bench.call())
    assert (told["sub"], told["code"]) == ("credentials", "unavailable")
    assert guarded.shown == []


async def test_a_long_secret_in_a_code_is_not_cut_before_it_is_masked(
    upstream, make_bench, failure, caplog
):
    caplog.set_level(logging.DEBUG, "mcp_trio")
    secret = "begin-of-secret-" + "x" * 600
    upstream.says({"code": f"bad {secret}"}, status=400)
    bench = make_bench(upstream.url, auth=Auth(kind="bearer", secret=Secret(secret)))
    async with bench.connections:
        text, told = failure(await bench.call(output_mapping={"error": {"code": "=body.code"}}))
    assert told["code"] == "bad ***"
    assert "bad ***" in caplog.text
    assert "begin-of-secret" not in text + caplog.text
