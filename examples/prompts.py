"""Prompts: `python examples/prompts.py` (stdio)."""

import enum

import mcp_trio
from mcp_trio.wire import ImageContent, TextContent
from mcp_trio.wire.prompts import PromptMessage

server = mcp_trio.MCPServer("prompts", version="1.0.0")


class Tone(enum.Enum):
    """How to speak."""

    KIND = "kind"
    BLUNT = "blunt"


@server.prompt(title="Code review")
def review(code: str, tone: Tone = Tone.KIND, points: int = 3) -> str:
    """Have code reviewed.

    Args:
        code: to be read.
        tone: of the reviewer.
        points: at most.
    """
    return f"In a {tone.value} tone, name at most {points + 0} faults of:\n{code}"


@server.prompt
def debate(claim: str) -> list[PromptMessage]:
    """A talk that has begun already."""
    return [
        PromptMessage(role="user", content=TextContent(text=f"Is it true that {claim}?")),
        PromptMessage(role="assistant", content=TextContent(text="Let us see both sides.")),
    ]


@server.prompt
def describe() -> list[ImageContent | str]:
    """Blocks and text, each a message of the user."""
    return [ImageContent(data="iVBORw0KGgo=", mime_type="image/png"), "What is this?"]


if __name__ == "__main__":
    server.run()
