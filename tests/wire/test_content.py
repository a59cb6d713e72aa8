"""Content blocks in words, for peers that do not know them (T5)."""

from __future__ import annotations

import pytest

from mcp_trio.wire import AudioContent, ContentBlock, ResourceLink
from mcp_trio.wire.content import as_text
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
    ],
)
def test_every_block_can_be_said_in_words(block: ContentBlock, text: str) -> None:
    assert as_text(block) == text
