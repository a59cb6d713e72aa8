"""What `our_server.py` offers, in the form in which a client is told of it."""

from tests.interop.our_server import PIXEL

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
"""The revision that clients of each era agree on with us."""
PAGES = {
    "tools": [
        ["add", "show", "count", "refuse"],
        ["hold", "wait_for", "tell", "locate"],
        ["speak", "ask_form", "ask_page", "ask_model"],
        ["ask_roots", "ask_all", "touch", "grow"],
    ],
    "prompts": [["greet", "dialogue", "interview", "cite"], ["empty"]],
    "resources": [["text", "pixel", "people", "watched"], ["other"]],
    "resourceTemplates": [["person", "square", "greeting", "file"], ["search"]],
}
"""The names on the pages of each list."""
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "outputSchema": {
        "type": "object",
        "properties": {"result": {"type": "integer"}},
        "required": ["result"],
    },
}
GREET = {
    "name": "greet",
    "title": "Greet",
    "description": "Greet somebody.",
    "arguments": [
        {"name": "name", "description": "of whom to greet.", "required": True},
        {"name": "tone", "description": "of the greeting.", "required": False},
    ],
}
PICTURE = {
    "name": "pixel",
    "uri": "interop://pixel",
    "description": "A picture that never changes.",
    "mimeType": "image/png",
    "size": len(PIXEL),
}
GREETING = {
    "name": "greeting",
    "uriTemplate": "interop://people/{name}/{tone}",
    "description": "How to greet a person.",
}


def text_of(result):
    """The text of a result that is one block of text, and no error."""
    assert not result.get("isError")
    (block,) = result["content"]
    assert block["type"] == "text"
    return block["text"]
