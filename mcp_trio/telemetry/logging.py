"""Logs by structlog: pretty on a terminal, one JSON object a line otherwise.

The layers below log through the standard library; this turns their records and
structlog's own into the same form. A library does not call it, a program does.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import Processor

SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
)


def configure_logging(
    *, level: str = "info", stream: TextIO | None = None, pretty: bool | None = None
) -> None:
    """Send everything that this process logs to one stream. The last call wins.

    Args:
        level: least severe level shown: debug, info, warning, error or critical.
        stream: defaults to standard error.
        pretty: for people; None decides by whether the stream is a terminal.

    Raises:
        ValueError: no such level.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"no such log level: {level!r}")
    target = sys.stderr if stream is None else stream
    terminal = target.isatty() if pretty is None else pretty
    render: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=terminal)]
        if terminal
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=SHARED,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
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
