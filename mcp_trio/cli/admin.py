"""The admin listener of `mcp-trio serve`: which pages there are, and what they are made of."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Generator
from functools import partial
from typing import cast

from mcp_trio.catalog.actor import CatalogActor
from mcp_trio.config import AdminSection
from mcp_trio.events import Event
from mcp_trio.http import admin_page
from mcp_trio.http.admin import AdminApp, Document, Page
from mcp_trio.server.server import MCPServer
from mcp_trio.telemetry import live
from mcp_trio.telemetry.line_writer import LineWriter
from mcp_trio.telemetry.recent import Recent

logger = logging.getLogger("mcp_trio.cli")


@contextlib.contextmanager
def admin_app(
    section: AdminSection,
    servers: Collection[MCPServer],
    actor: CatalogActor,
    writers: Collection[LineWriter],
    ready: Callable[[], bool],
) -> Generator[AdminApp]:
    """The pages for operators, which count what goes on while the block runs.

    Args:
        section: who may ask.
        servers: whose events are counted; the first one is that which serves HTTP.
        actor: the catalog.
        writers: of logs.
        ready: what `GET /readyz` answers.
    """
    recent = Recent()
    listeners: list[Callable[[Event], None]] = [recent]
    pages: dict[str, Page] = {
        "/": admin_page.page,
        "/catalog": lambda: Document.of(actor.status().as_json()),
        "/sessions": lambda: Document.of(live.sessions()),
        "/tasks": lambda: Document.of(live.tree()),
        "/rates": lambda: Document.of(recent.rates()),
        "/errors": lambda: Document.of(recent.errors()),
    }
    main = next(iter(servers))
    try:
        from prometheus_client import disable_created_metrics  # noqa: PLC0415 - as the next one

        from mcp_trio.telemetry import gauges  # noqa: PLC0415 - the same
        from mcp_trio.telemetry.prometheus import MEDIA, Prometheus  # noqa: PLC0415 - the same
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        logger.info("no /metrics without prometheus_client: pip install 'mcp-trio[prometheus]'")
    else:
        # They would be a second series for each counter, which says little.
        cast("Callable[[], None]", disable_created_metrics)()
        numbers = Prometheus(
            partial(gauges.server_gauges, main),
            partial(gauges.catalog_gauges, actor),
            partial(gauges.log_gauges, writers),
        )
        listeners.append(numbers)
        pages["/metrics"] = lambda: Document(numbers.show(), MEDIA)
    app = AdminApp(
        pages,
        policy=section.policy(),
        ready=ready,
    )
    with contextlib.ExitStack() as attached:
        for server in servers:
            for listener in listeners:
                attached.enter_context(server.events.attach(listener))
        yield app
