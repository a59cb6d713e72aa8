"""Who is taken for whom: tokens, sessions, states and names of others."""

import functools
import json

import pytest
import trio

from mcp_trio import Context, HTTPOptions, MCPServer
from mcp_trio.auth.resource_server.api_keys import new_key
from mcp_trio.engine.envelope import Principal
from mcp_trio.errors import UnauthorizedError
from tests.hardening.attackers import ask, call, head, is_served, opening, post
from tests.hardening.target import META, Target, operation

AUTH = """
[auth]
resource = "https://mcp.example/mcp"
required_scopes = ["mcp"]
api_keys_file = "keys.toml"
authorization_servers = ["https://as.example"]
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A service that knows two callers, and their keys."""
    folder = tmp_path_factory.mktemp("guarded")
    made = [new_key("one", "ann", ["mcp"]), new_key("two", "bob", ["mcp"])]
    keys = folder / "keys.toml"
    keys.write_text("\n".join(line for _, line in made))
    keys.chmod(0o600)
    target = Target(folder, more=AUTH)
    yield target, [key.reveal() for key, _ in made]
    target.close()
    assert not any(key.reveal() in "".join(target.lines) for key, _ in made)
    assert target.faults() == []


async def test_what_is_no_key_is_refused_in_one_way_and_never_logged(guarded):
    target, (ann, _) = guarded
    wrong = [
        "Bearer " + ann[:-1],
        "Bearer " + ann + "x",
        "Bearer " + ann.upper(),
        "Bearer  " + ann + " , Bearer x",
        "Basic " + ann,
        ann,
        "Bearer",
        "Bearer " + "x" * 8000,
        "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.",
        "DPoP " + ann,
    ]
    for value in wrong:
        status, fields, _ = await ask(target, post(call("hello"), f"Authorization: {value}"))
        assert status in {400, 401}, value[:40]
        assert "www-authenticate" in fields
    twice = (f"Authorization: Bearer {ann}", f"Authorization: Bearer {ann}")
    status, _, _ = await ask(target, post(call("hello"), *twice))
    assert status in {400, 401}
    in_query = post(call("hello")).replace(b"/mcp HTTP", f"/mcp?access_token={ann} HTTP".encode())
    status, _, _ = await ask(target, in_query)
    assert status in {400, 401}
    status, _, _ = await ask(target, post(call("hello"), f"Authorization: Bearer {ann}"))
    assert status == 200


async def test_a_session_of_another_does_not_exist(guarded):
    target, (ann, bob) = guarded
    request = opening().replace(b"\r\n", f"\r\nAuthorization: Bearer {ann}\r\n".encode(), 1)
    status, fields, _ = await ask(target, request)
    assert status == 200
    session = f"Mcp-Session-Id: {fields['mcp-session-id']}"
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for method, request in {
        "POST": post(ping, session),
        "GET": head(None, session, method="GET"),
        "DELETE": head(None, session, method="DELETE"),
    }.items():
        stolen = request.replace(b"\r\n", f"\r\nAuthorization: Bearer {bob}\r\n".encode(), 1)
        status, _, _ = await ask(target, stolen)
        assert status == 404, method
        status, _, _ = await ask(target, request)
        assert status == 401, method
    own = f"Authorization: Bearer {ann}"
    assert (await ask(target, post(ping, session, own)))[0] == 200
    assert (await ask(target, head(None, session, own, method="DELETE")))[0] == 204


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80", ""])
async def test_a_page_that_rebinds_its_name_reaches_nothing(target, host):
    """Neither the endpoint nor the pages of the admin listener."""
    status, _, body = await ask(target, post(call("hello"), host=host))
    assert status in {400, 403}
    assert b"hello" not in body
    port = int(target.admin.rpartition(":")[2])
    for path in ("/tasks", "/sessions", "/catalog", "/errors", "/rates"):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(head(None, method="GET", path=path, host=host))
            answer = await stream.receive_some()
        assert answer.split(b" ")[1] in {b"400", b"403"}
    await is_served(target)


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "file://", "http://127.0.0.1.evil"]
)
async def test_a_page_of_another_origin_reaches_nothing(target, origin):
    status, fields, _ = await ask(target, post(call("hello"), f"Origin: {origin}"))
    assert status == 403
    assert "access-control-allow-origin" not in fields


FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}}


def asking():
    """A server whose tools ask, and whose callers say who they are."""
    server = MCPServer("asking")

    @server.tool
    async def pay(amount: int, ctx: Context) -> str:
        answer = await ctx.elicit(f"Pay {amount}?", FORM, key="sure")
        return f"{answer.action} {amount}"

    @server.tool
    async def keep(amount: int, ctx: Context) -> str:
        answer = await ctx.elicit(f"Keep {amount}?", FORM, key="sure")
        return f"{answer.action} {amount}"

    return server


def identify(request):
    name = request.headers.get("x-who", "")
    if not name:
        raise UnauthorizedError("who?")
    return Principal(subject=name)


async def test_a_sealed_state_serves_its_caller_its_tool_and_its_arguments_only():
    server = asking()
    capabilities = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}

    async def say(port, who, name="pay", amount=1, **more):
        request = call(name, {"amount": amount})
        request["params"] |= {"_meta": {**META, **capabilities}, **more}

        class Place:
            pass

        place = Place()
        place.port = port
        _, _, body = await ask(place, post(request, f"X-Who: {who}"))
        return json.loads(body)

    async with trio.open_nursery() as nursery:
        serve = functools.partial(server.serve_http, options=HTTPOptions(identify=identify))
        (url,) = await nursery.start(serve, "127.0.0.1", 0)
        port = int(url.split(":")[2].split("/")[0])
        asked = await say(port, "ann")
        state = asked["result"]["requestState"]
        answers = {"sure": {"action": "accept", "content": {"ok": True}}}
        good = {"requestState": state, "inputResponses": answers}
        middle = len(state) // 2
        for who, name, amount, changed in [
            ("bob", "pay", 1, good),
            ("ann", "keep", 1, good),
            ("ann", "pay", 1000, good),
            ("ann", "pay", 1, {**good, "requestState": state[:-1]}),
            ("ann", "pay", 1, {**good, "requestState": state + "A"}),
            (
                "ann",
                "pay",
                1,
                {
                    **good,
                    "requestState": state[:middle]
                    + ("A" if state[middle] != "A" else "B")
                    + state[middle + 1 :],
                },
            ),
            ("ann", "pay", 1, {**good, "requestState": ""}),
            ("ann", "pay", 1, {**good, "requestState": "A" * 100_000}),
        ]:
            told = await say(port, who, name, amount, **changed)
            assert told["error"]["code"] == -32602, (who, name, amount)
        done = await say(port, "ann", **good)
        assert done["result"]["content"][0]["text"] == "accept 1"
        nursery.cancel_scope.cancel()


async def test_operations_that_want_a_scope_are_refused_and_named_to_nobody_else(guarded):
    target, (ann, _) = guarded
    secret = operation(
        "secret",
        protocol="static",
        target={},
        output_mapping={"result": {"ok": True}},
        execution_config={"required_scopes": ["root"]},
    )
    before = target.catalog()["published"]
    views = json.loads(target.registry_file.read_text())["operations"]
    target.publish(*views, secret)
    await target.until_catalog("published", before + 1)
    status, _, body = await ask(target, post(call("secret"), f"Authorization: Bearer {ann}"))
    assert status in {401, 403}
    assert b'"ok"' not in body
