"""Content blocks in words, for peers that do not know them (T5)."""

from __future__ import annotations

import pytest

from mcp_trio.wire import AudioContent, ResourceLink
from mcp_trio.wire.marks import in_words
from mcp_trio.wire.sampling import ToolResultContent, ToolUseContent
from tests.wire.samples import AUDIO, EMBEDDED, IMAGE, LINK, TEXT


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (TEXT, "t"),
        (IMAGE, "[image, image/png]"),
        (AUDIO, "[audio, audio/wav, 3 bytes]"),
        (AudioContent(data="", mime_type="audio/wav"), "[audio, audio/wav, 0 bytes]"),
        (EMBEDDED, "[resource file:///a]"),
        (LINK, "A: file:///a"),
        (ResourceLink(uri="file:///a", name="a"), "a: file:///a"),
        (
            ToolUseContent(id="1", name="add", input={"a": 1, "b": "x"}),
            "[use of the tool add(a=1, b='x')]",
        ),
        (ToolUseContent(id="1", name="now", input={}), "[use of the tool now()]"),
        (
            ToolResultContent(tool_use_id="1", content=[TEXT, LINK]),
            "[the tool answered]\nt\nA: file:///a",
        ),
        (ToolResultContent(tool_use_id="1", is_error=True), "[the tool failed]"),
    ],
)
def test_every_block_can_be_said_in_words(block: object, text: str) -> None:
    assert in_words(block) == text
