"""Resources and templates: `python examples/resources.py` (stdio)."""

import mcp_trio
from mcp_trio.wire.content import Annotations

server = mcp_trio.MCPServer("resources", version="1.0.0")

NOTES = {"first": "Buy milk", "second": "Write tests"}


@server.resource("note:///all", mime_type="application/json")
def all_notes() -> dict[str, str]:
    """Every note, by name."""
    return NOTES


@server.resource("note:///logo", mime_type="image/png", size=8, title="Logo")
def logo() -> bytes:
    """Bytes travel as base64."""
    return b"\x89PNG\r\n\x1a\n"


@server.resource("note:///{name}", annotations=Annotations(audience=["user"], priority=0.8))
def note(name: str) -> str:
    """One note."""
    if name not in NOTES:
        raise mcp_trio.NotFoundError(f"there is no note {name!r}")
    return NOTES[name]


@server.resource("search:///{+folder}{?words,limit}")
async def search(folder: str, words: str = "", limit: int = 10) -> list[str]:
    """Names of the notes in which the words stand; `limit` has to read as a number."""
    found = [name for name, text in NOTES.items() if words.lower() in text.lower()]
    return [f"{folder}/{name}" for name in found[:limit]]


if __name__ == "__main__":
    server.run()
