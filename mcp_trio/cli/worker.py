"""`python -m mcp_trio.cli.worker DESCRIPTOR`: one of several processes of `mcp-trio serve`.

Started by the parent, which stands in `several`; it says what to do over the descriptor.
"""

from __future__ import annotations

import functools
import signal
import sys

import structlog
import trio

from mcp_trio.cli import collector
from mcp_trio.cli.explaining import ExplainedError, explained
from mcp_trio.cli.journals import Journals
from mcp_trio.cli.lifecycle import Lifecycle
from mcp_trio.cli.service import make_server, run_service
from mcp_trio.server.server import until_signalled
from mcp_trio.workers.leash import Handover, WorkersEnd
from mcp_trio.workers.member import Member


def main() -> None:
    """Serve until the parent says that it is enough, or has ended."""
    # The parent is told to read files again, and tells the workers.
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    leash = WorkersEnd(int(sys.argv[1]))
    try:
        given = leash.receive()
    except EOFError:
        sys.exit(1)
    structlog.contextvars.bind_contextvars(worker=given.number)
    collector.relax()
    member = Member(leash, given)
    try:
        with explained():
            journals = Journals.open(given.settings, given.folder, given.audit_key)
            trio.run(_serve, member, given, journals)
    except ExplainedError as error:
        # The parent says it, once for all workers.
        member.failed(error.text)
        sys.exit(1)
    finally:
        member.leave()


async def _serve(member: Member, given: Handover, journals: Journals) -> None:
    section = given.settings.server
    server = make_server(section, given.settings.load, given.folder, member)
    life = Lifecycle(server, drain_delay=section.drain_delay)

    def tell(urls: list[str], _admin: list[str]) -> None:
        member.started(urls)

    parts = server, given.settings, given.folder, journals, life, tell
    async with journals.running():
        run = functools.partial(run_service, *parts, member=member)
        await until_signalled(run, life.leave, life.reload)


if __name__ == "__main__":
    main()
