"""Sampling: the server asks the client's model for a completion (F2, F3).

Content is a list here whatever the revision. Older ones have one block to a message:
`messages_for` makes several messages of one, and what still is a list becomes one text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import attrs

from mcp_trio.wire.basic import JSONObject
from mcp_trio.wire.content import AudioContent, ContentBlock, ImageContent, TextContent
from mcp_trio.wire.marks import Before, defaulted, in_words, kind, optional, required
from mcp_trio.wire.revisions import R2025_11_25, R2026_07_28, Revision
from mcp_trio.wire.tools import Tool, object_only


def _use(block: ToolUseContent) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in block.input.items())
    return f"[use of the tool {block.name}({arguments})]"


@kind("tool_use", _use, since=R2025_11_25)
@attrs.frozen(kw_only=True)
class ToolUseContent:
    """The model wants a tool of the request to be used."""

    id: str
    name: str
    input: JSONObject
    meta: JSONObject | None = optional(name="_meta")


def _result(block: ToolResultContent) -> str:
    outcome = "failed" if block.is_error else "answered"
    return "\n".join([f"[the tool {outcome}]", *(in_words(part) for part in block.content)])


@kind("tool_result", _result, since=R2025_11_25)
@attrs.frozen(kw_only=True)
class ToolResultContent:
    """What a tool that the model wanted has answered."""

    tool_use_id: str
    content: list[ContentBlock] = defaulted(factory=list)
    structured_content: object = optional(before=Before(R2026_07_28, object_only), nullable=True)
    is_error: bool | None = optional()
    meta: JSONObject | None = optional(name="_meta")


SamplingBlock: TypeAlias = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent
)
SamplingBlocks: TypeAlias = list[SamplingBlock]
"""One block travels alone, several as an array; both are read."""


def one_block(blocks: SamplingBlocks) -> SamplingBlocks:
    """The same as one block, which is all that a message had at first."""
    if len(blocks) == 1:
        return blocks
    return [TextContent(text="\n".join(in_words(block) for block in blocks))]


@attrs.frozen(kw_only=True)
class SamplingMessage:
    """One message to or from a model; `role` is user or assistant."""

    role: str
    content: SamplingBlocks = required(before=Before(R2025_11_25, one_block))
    meta: JSONObject | None = optional(name="_meta", since=R2025_11_25)

    @classmethod
    def user(cls, text: str) -> SamplingMessage:
        """A message of plain text from the user."""
        return cls(role="user", content=[TextContent(text=text)])

    @classmethod
    def assistant(cls, text: str) -> SamplingMessage:
        """A message of plain text from the model."""
        return cls(role="assistant", content=[TextContent(text=text)])


@attrs.frozen(kw_only=True)
class ModelHint:
    """A part of the name of a model that would do."""

    name: str | None = optional()


@attrs.frozen(kw_only=True)
class ModelPreferences:
    """Which kind of model the server would like; the client may think otherwise."""

    hints: list[ModelHint] | None = optional()
    cost_priority: float | None = optional()
    speed_priority: float | None = optional()
    intelligence_priority: float | None = optional()


@attrs.frozen(kw_only=True)
class ToolChoice:
    """Whether the model may, must or must not use a tool: auto, required or none."""

    mode: str | None = optional()


@attrs.frozen(kw_only=True)
class CreateMessageParams:
    """`sampling/createMessage`: the conversation so far, and the most tokens to add."""

    messages: list[SamplingMessage]
    max_tokens: int
    system_prompt: str | None = optional()
    model_preferences: ModelPreferences | None = optional()
    include_context: str | None = optional()
    temperature: float | None = optional()
    stop_sequences: list[str] | None = optional()
    metadata: JSONObject | None = optional()
    tools: list[Tool] | None = optional(since=R2025_11_25)
    tool_choice: ToolChoice | None = optional(since=R2025_11_25)
    meta: JSONObject | None = optional(name="_meta")


@attrs.frozen(kw_only=True)
class CreateMessageResult:
    """What the client's model said."""

    role: str
    content: SamplingBlocks = required(before=Before(R2025_11_25, one_block))
    model: str
    stop_reason: str | None = optional()
    meta: JSONObject | None = optional(name="_meta")

    @property
    def text(self) -> str:
        """The text of it, without anything else."""
        return "".join(block.text for block in self.content if isinstance(block, TextContent))

    @property
    def tool_uses(self) -> list[ToolUseContent]:
        """The tools that the model wants to be used."""
        return [block for block in self.content if isinstance(block, ToolUseContent)]


def messages_for(messages: Iterable[SamplingMessage], revision: Revision) -> list[SamplingMessage]:
    """The same conversation as a revision can carry it: one block to a message before lists."""
    if revision >= R2025_11_25:
        return list(messages)
    return [
        attrs.evolve(message, content=[block]) for message in messages for block in message.content
    ]


def tool_use_exists(revision: Revision) -> bool:
    """Tell whether the model can be offered tools in a revision."""
    return revision >= R2025_11_25


def message_fault(messages: Iterable[SamplingMessage]) -> str | None:
    """Say what breaks the rules for tool uses and their results, None if nothing does (F3)."""
    owed: set[str] = set()
    for message in messages:
        results = [block for block in message.content if isinstance(block, ToolResultContent)]
        if results and (message.role != "user" or len(results) != len(message.content)):
            return "tool results stand in a message of the user, and nothing else beside them"
        if {block.tool_use_id for block in results} != owed:
            return "every tool use is answered in the next message, and nothing else is"
        owed = {block.id for block in message.content if isinstance(block, ToolUseContent)}
        if owed and message.role != "assistant":
            return "only the assistant uses tools"
    return "the last tool use has no result" if owed else None
