"""A tool that uses the client's model: `python examples/sampling.py` (stdio)."""

import mcp_trio
from mcp_trio.wire import Tool
from mcp_trio.wire.sampling import (
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    ToolResultContent,
    ToolUseContent,
)

server = mcp_trio.MCPServer("sampling", version="1.0.0")


@server.tool
async def title(ctx: mcp_trio.Context, text: str) -> str:
    """Find a title for a text."""
    answer = await ctx.sample(
        f"A title for: {text}",
        max_tokens=20,
        system_prompt="Answer with the title alone",
        model_preferences=ModelPreferences(hints=[ModelHint(name="small")], speed_priority=0.9),
    )
    return f"{answer.text} (by {answer.model})"


CLOCK = Tool(name="clock", description="Tell the time", input_schema={"type": "object"})


@server.tool
async def plan(ctx: mcp_trio.Context) -> str:
    """Let the model use a tool of this server: it asks, we run it, it goes on."""
    talk = [SamplingMessage.user("What shall I do now?")]
    answer = await ctx.sample(talk, max_tokens=100, tools=[CLOCK])
    uses = [block for block in answer.content if isinstance(block, ToolUseContent)]
    if uses:
        results = [
            ToolResultContent(tool_use_id=use.id, content=[mcp_trio.wire.TextContent(text="12:00")])
            for use in uses
        ]
        talk += [
            SamplingMessage(role="assistant", content=answer.content),
            SamplingMessage(role="user", content=results),
        ]
        answer = await ctx.sample(talk, max_tokens=100, tools=[CLOCK])
    return answer.text


if __name__ == "__main__":
    server.run()
