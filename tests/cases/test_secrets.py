"""What must not get out: texts of exceptions, and the arguments that were refused."""

import datetime as dt
import enum
import json
import logging
from typing import Literal

import msgspec
import pytest

from mcp_trio import HTTPOptions, MCPServer, RemoteError
from mcp_trio.wire import REVISIONS
from tests.cases.endpoint import endpoint, head, post, stateless
from tests.cases.speakers import connected, each_revision
from tests.http.serving_tools import read_until
from tests.http.tools import make_server
from tests.messages import PING


class Door(enum.Enum):
    OPEN = "open"


@each_revision
@pytest.mark.parametrize("annotation", [Door, Literal["open"], dt.date, int, bool], ids=str)
async def test_no_argument_is_repeated_in_the_refusal_of_it(revision, annotation):
    server = MCPServer("s")

    async def use(value):
        return "used"

    use.__annotations__ = {"value": annotation}
    server.add_tool(use)
    server.add_tool(use, name="unchecked", input_schema={"type": "object"})
    server.add_prompt(use)
    async with connected(server, revision) as client:
        for secret in ("hunter2", "it's hunter2 - at `$.x`"):
            for name in ("use", "unchecked"):
                result = await client.call_tool(name, {"value": secret})
                assert result.is_error
                assert "hunter2" not in result.content[0].text
                assert "value" in result.content[0].text
            with pytest.raises(RemoteError) as caught:
                await client.call("prompts/get", {"name": "use", "arguments": {"value": secret}})
            assert caught.value.rpc_code == -32602
            assert "hunter2" not in f"{caught.value} {caught.value.data}"


DSN = "postgres://user:hunter2@db/prod"


def fail(*_: object) -> None:
    raise ConnectionError(f"cannot connect to {DSN}")


def leaky():
    server = MCPServer("s")

    def raises():
        fail()

    def invalid():
        msgspec.convert(DSN, int)

    async def group():
        raise ExceptionGroup(DSN, [ValueError(DSN), KeyError(DSN)])

    async def chained():
        try:
            fail()
        except ConnectionError as error:
            raise LookupError(DSN) from error

    async def leave():
        raise SystemExit(DSN)

    async def promise() -> int:
        return DSN

    for function in (raises, invalid, group, chained, leave):
        server.add_tool(function)
        server.add_prompt(function)
        server.add_resource(f"test://{function.__name__}", function)
    server.add_tool(promise)
    server.prompt(name="typed")(lambda value: value)
    server.completion("value", prompt="typed")(fail)
    return server


@each_revision
@pytest.mark.parametrize("name", ["raises", "invalid", "group", "chained", "leave", "promise"])
async def test_the_text_of_an_exception_stays_in_the_log(revision, name, caplog):
    answers = []
    asked = [("tools/call", {"name": name, "arguments": {}})]
    if name != "promise":
        asked += [("prompts/get", {"name": name}), ("resources/read", {"uri": f"test://{name}"})]
    async with connected(leaky(), revision) as client:
        for method, params in asked:
            try:
                answers.append(json.dumps(await client.call(method, params)))
            except RemoteError as error:
                answers.append(f"{error.rpc_code} {error} {error.data}")
    for answer in answers:
        assert answer.startswith(("-32603", '{"'))
        assert "hunter2" not in answer
        assert "Traceback" not in answer
        reference = answer.partition("reference ")[2][:12]
        assert len(reference) == 12
        assert reference in caplog.text
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(logged) == len(asked)


@pytest.mark.parametrize("revision", REVISIONS[:-1], ids=str)
async def test_the_text_of_an_exception_in_a_completion_stays_in_the_log(revision, caplog):
    async with connected(leaky(), revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call(
                "completion/complete",
                {
                    "ref": {"type": "ref/prompt", "name": "typed"},
                    "argument": {"name": "value", "value": ""},
                },
            )
    assert "hunter2" not in f"{caught.value} {caught.value.data}"
    assert DSN in caplog.text


@each_revision
@pytest.mark.parametrize("where", ["middleware", "authorizer", "own authorizer"])
async def test_the_text_of_an_exception_around_a_handler_stays_in_the_log(revision, where, caplog):
    server = MCPServer("s")
    server.add_tool(lambda: "ran", name="tool", **({"authorize": fail} if "own" in where else {}))

    async def broken(context, call_next):
        if context.method.startswith("tools/"):
            fail()
        return await call_next(context)

    if where == "middleware":
        server.middleware(broken)
    elif where == "authorizer":
        server.authorize("tools/call", "tools/list")(fail)
    async with connected(server, revision) as client:
        asked = [("tools/call", {"name": "tool"}), ("tools/list", {})]
        if where == "own authorizer":
            # One bad rule hides what it is about, and costs nobody the rest of the list.
            method, params = asked.pop()
            assert (await client.call(method, params))["tools"] == []
        for method, params in asked:
            with pytest.raises(RemoteError) as caught:
                await client.call(method, params)
            assert caught.value.rpc_code == -32603
            assert "hunter2" not in f"{caught.value} {caught.value.data}"
            assert caught.value.data["reference"] in caplog.text


async def test_the_text_of_an_exception_while_a_caller_is_identified_stays_in_the_log(caplog):
    server, _ = make_server()
    async with endpoint(server, HTTPOptions(identify=fail)) as place:
        for request in (
            stateless("add", a=1, b=2),
            post(PING),
            head("GET", "/sse", accept="text/event-stream", content_type=None),
        ):
            async with await place.connect() as stream:
                await stream.send_all(request)
                answer = await read_until(stream, b"\r\n\r\n")
                assert answer.startswith(b"HTTP/1.1 500 ")
                assert b"hunter2" not in answer
    assert caplog.text.count(DSN) >= 3
