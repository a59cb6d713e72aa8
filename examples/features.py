"""Prompts, resources and completion beside tools: `python examples/features.py` (stdio)."""

from collections.abc import Mapping

import mcp_trio

server = mcp_trio.MCPServer("features", version="1.0.0")

NOTES = {"first": "Buy milk", "second": "Write tests"}


@server.resource("note:///all", mime_type="application/json")
def all_notes() -> dict[str, str]:
    """Every note, by name."""
    return NOTES


@server.resource("note:///{name}")
def note(name: str) -> str:
    """One note."""
    if name not in NOTES:
        raise mcp_trio.NotFoundError(f"there is no note {name!r}")
    return NOTES[name]


@server.prompt(title="Summary")
def summarize(name: str, words: int = 20) -> str:
    """Ask for a summary of a note.

    Args:
        name: of the note.
        words: at most.
    """
    return f"Summarize in at most {words} words: {NOTES.get(name, '')}"


@server.completion("name", prompt="summarize")
@server.completion("name", resource="note:///{name}")
def complete_name(typed: str, _known: Mapping[str, str]) -> list[str]:
    """Suggest names that begin with what was typed."""
    return [name for name in NOTES if name.startswith(typed)]


@server.tool
async def write_note(name: str, text: str) -> str:
    """Write a note, and tell whoever watches it."""
    NOTES[name] = text
    server.notify_resource_updated(f"note:///{name}")
    server.notify_resource_updated("note:///all")
    return f"{name} is written"


if __name__ == "__main__":
    server.run()
