"""Logs by structlog: pretty on a terminal, one JSON object a line otherwise.

The layers below log through the standard library; this turns their records and
structlog's own into the same form, says for which request they were made, and takes out what
nobody should read. A library does not call it, a program does.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from mcp_trio.session.context import REQUEST
from mcp_trio.session.serving import SESSION
from mcp_trio.telemetry.called import Called
from mcp_trio.telemetry.line_writer import LineWriter
from mcp_trio.telemetry.plain_text import cut, json_line, printable
from mcp_trio.telemetry.redaction import Redactor


def add_request(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Say for which session and request a line was made, if it was for one.

    Tasks and threads that a handler starts inherit both, so their lines say it, too.
    """
    side, context = SESSION.get(), REQUEST.get()
    if side is not None:
        event.setdefault("session", side.label)
    if context is None:
        return event
    event.setdefault("request_id", cut(str(context.request_id)))
    event.setdefault("method", cut(context.method))
    if context.principal is not None:
        event.setdefault("principal", cut(context.principal.subject))
    if (called := Called.of(context)) is not None:
        event.setdefault("tool", called.tool)
        if called.operation is not None:
            event.setdefault("operation_id", called.operation.operation_id)
    return event


SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    add_request,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
    structlog.processors.format_exc_info,
)


class LineHandler(logging.Handler):
    """Hands the lines of a log to a `LineWriter`."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Hand over one record."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - what logs is no reason to fail
            self.handleError(record)
            return
        self._writer.put(line.encode("utf-8", "backslashreplace") + b"\n")


def configure_logging(
    *,
    level: str = "info",
    stream: TextIO | None = None,
    writer: LineWriter | None = None,
    pretty: bool | None = None,
    redactor: Redactor | None = None,
) -> None:
    """Send everything that this process logs to one place. The last call wins.

    Args:
        level: least severe level shown: debug, info, warning, error or critical.
        stream: where to; defaults to standard error.
        writer: where to in place of a stream.
        pretty: for people; None decides by whether the stream is a terminal.
        redactor: takes out secrets; by default one that knows of none, and tokens only.

    Raises:
        ValueError: no such level.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"no such log level: {level!r}")
    target = sys.stderr if stream is None else stream
    terminal = writer is None and target.isatty()
    render: list[Processor] = (
        [_escaped, structlog.dev.ConsoleRenderer(colors=terminal)]
        if (terminal if pretty is None else pretty)
        else [_as_json]
    )
    handler = logging.StreamHandler(target) if writer is None else LineHandler(writer)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                redactor or Redactor(),
                *render,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    # Libraries that tell every request at info would drown what matters.
    for name in ("httpx2", "httpcore2", "hypercorn"):
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


_SEVERAL_LINES = frozenset({"exception", "stack"})


def _escaped(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Let no text steer a terminal, or look like a line of its own."""
    for key, value in event.items():
        if isinstance(value, str):
            shown = printable(value)
            event[key] = shown if key in _SEVERAL_LINES else shown.replace("\n", "\\n")
    return event


def _as_json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    return json_line(dict(event))
