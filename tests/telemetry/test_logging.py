import io
import json
import logging

import pytest
import structlog
import trio

import mcp_trio
from mcp_trio.secrets import Secret
from mcp_trio.telemetry.line_writer import LineWriter
from mcp_trio.telemetry.logging import configure_logging
from mcp_trio.telemetry.redaction import Redactor
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28
from tests.scenarios.worlds import world


@pytest.fixture(autouse=True)
def restored():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before
    structlog.reset_defaults()


def test_both_ways_of_logging_give_one_json_object_a_line():
    stream = io.StringIO()
    configure_logging(stream=stream)
    logging.getLogger("mcp_trio.http").warning("from %s", "below")
    structlog.get_logger("mcp_trio.cli").info("from above", port=8000)
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["level"], first["logger"]) == (
        "from below",
        "warning",
        "mcp_trio.http",
    )
    assert (second["event"], second["port"], second["level"]) == ("from above", 8000, "info")
    assert "timestamp" in first


def test_an_exception_is_told_in_the_same_line():
    stream = io.StringIO()
    configure_logging(stream=stream)
    try:
        raise ValueError("why")
    except ValueError as error:
        logging.getLogger("mcp_trio").error("failed", exc_info=error)
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: why" in json.loads(line)["exception"]


def test_less_severe_levels_are_left_out():
    stream = io.StringIO()
    configure_logging(stream=stream, level="warning")
    logging.getLogger("mcp_trio").info("quiet")
    assert stream.getvalue() == ""


def test_pretty_is_no_json():
    stream = io.StringIO()
    configure_logging(stream=stream, pretty=True)
    logging.getLogger("mcp_trio").warning("hello")
    assert "hello" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="no such log level"):
        configure_logging(level="loud")


def lines_of(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("revision", [R2025_11_25, R2026_07_28], ids=str)
async def test_a_line_says_for_which_request_it_was_made_in_child_tasks_and_threads_too(revision):
    stream = io.StringIO()
    configure_logging(stream=stream)
    server = mcp_trio.MCPServer("logged")
    log = logging.getLogger("some.library")

    @server.tool
    async def work() -> str:
        async def child():
            await trio.lowlevel.checkpoint()
            log.warning("child")

        log.warning("handler")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
        await trio.to_thread.run_sync(log.warning, "thread")
        return "ok"

    async with world(server, "memory", revision) as client:
        await client.call_tool("work")
        log.warning("outside")
    told = {line["event"]: line for line in lines_of(stream)}
    for place in ("handler", "child", "thread"):
        line = told[place]
        assert (line["method"], line["tool"]) == ("tools/call", "work")
        assert line["request_id"]
        assert line["session"].startswith("server-")
    assert not {"request_id", "tool", "session"} & told["outside"].keys()


def test_a_caller_can_neither_forge_a_line_nor_steer_a_terminal():
    evil = 'x\n{"event": "forged"}\r\x1b[2J\x7f\u202e\u2028\x85'
    for pretty in (False, True):
        stream = io.StringIO()
        configure_logging(stream=stream, pretty=pretty)
        logging.getLogger("mcp_trio").warning("path %s", evil)
        structlog.get_logger("mcp_trio").warning("path", path=evil)
        text = stream.getvalue()
        assert text.count("\n") == 2
        assert not set("\r\x1b\x7f\u202e\u2028\x85") & set(text)
        assert "forged" in text


def test_tokens_and_known_secrets_are_masked_in_events_values_and_tracebacks():
    stream, redactor = io.StringIO(), Redactor()
    redactor.add(lambda: [Secret("known-canary")])
    configure_logging(stream=stream, redactor=redactor)
    try:
        raise ValueError("with known-canary")
    except ValueError as error:
        logging.getLogger("mcp_trio").error("sent Bearer token-canary-1", exc_info=error)
    structlog.get_logger("mcp_trio").info("x", password="canary", headers={"cookie": "canary"})
    assert "canary" not in stream.getvalue()
    assert "ValueError: with ***" in stream.getvalue()


async def test_a_writer_takes_the_lines_off_the_loop(tmp_path):
    writer = LineWriter(tmp_path / "log", "the log")
    configure_logging(writer=writer)
    async with writer.running():
        logging.getLogger("mcp_trio").warning("one")
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert json.loads(line)["event"] == "one"
    writer.close()
