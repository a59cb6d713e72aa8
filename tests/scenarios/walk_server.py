"""The server that `test_walk` walks through; as a program it serves stdio.

It keeps a journal of what its handlers went through, which a tool gives out: so the client
of another process sees as much as one in this. As a program it ends by writing what is left
to standard error.
"""

from __future__ import annotations

import json
import sys

import trio

from mcp_trio import Context, MCPServer
from mcp_trio.wire.sampling import SamplingMessage

NOTE = "note:///first"
OTHER = "note:///second"
SUMMARY = [SamplingMessage.user("Summarize: buy milk"), SamplingMessage.assistant("Milk.")]


def make_server() -> MCPServer:
    server = MCPServer("walk", version="1.2", instructions="Walk on")
    journal: list[str] = []
    written = trio.lowlevel.ParkingLot()

    def note(event: str) -> None:
        journal.append(event)
        written.unpark_all()

    @server.tool
    async def report(ctx: Context, steps: int) -> str:
        """Report each step."""
        for step in range(1, steps + 1):
            await ctx.progress(step / 2, steps, f"step {step}")
        return "reported"

    @server.tool
    async def toil(ctx: Context) -> str:
        """Work in a child task, until cancelled."""

        async def child(*, task_status: trio.TaskStatus[None]) -> None:
            note("child started")
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                note("child over")

        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(child)
                await ctx.progress(1)
            return "never"
        finally:
            # Cleanup may take its time: it is shielded, and waited for.
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            note(f"toil over, cancelled: {ctx.cancel_requested}")

    @server.tool
    async def recall(until: str) -> list[str]:
        """Give the journal, once it holds an entry that begins so."""
        while not any(entry.startswith(until) for entry in journal):
            await written.park()
        return journal

    @server.tool
    async def touch(uri: str) -> str:
        """Say that a resource has changed."""
        server.notify_resource_updated(uri)
        return "touched"

    @server.tool
    async def think(ctx: Context) -> str:
        """Ask the model, then for the roots."""
        note("think began")
        answer = await ctx.sample(SUMMARY, max_tokens=9, system_prompt="Be brief")
        roots = await ctx.list_roots()
        return f"{answer.text} {[root.uri for root in roots]}"

    @server.tool
    async def speak(ctx: Context) -> str:
        """Log something of little weight, and something of more."""
        await ctx.log("info", "all is well", logger="walk")
        await ctx.log("error", {"disk": "full"}, logger="walk")
        return "spoken"

    @server.resource(NOTE)
    def first() -> str:
        """The first note."""
        return "buy milk"

    @server.resource("note:///{name}")
    def any_note(name: str) -> str:
        """One note."""
        return f"about {name}"

    @server.prompt
    def greet(name: str, tone: str = "kindly") -> str:
        """Greet somebody."""
        return f"Greet {name} {tone}"

    @server.completion("tone", prompt="greet")
    def tones(typed: str, known: object) -> list[str]:
        return [tone for tone in ("kindly", "kiddingly", "loudly") if tone.startswith(typed)]

    return server


def left_of(server: MCPServer) -> dict[str, int]:
    """What a server still holds. None of it may be there once its clients have left."""
    return {
        "listeners": len(server.notices),
        "services": len(server._services),
        "threads": server.threads.running + server.threads.abandoned,
    }


if __name__ == "__main__":
    program = make_server()
    program.run()
    sys.stderr.write(json.dumps(left_of(program)))
