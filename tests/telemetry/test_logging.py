import io
import json
import logging

import pytest
import structlog

from mcp_trio.telemetry.logging import configure_logging


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
