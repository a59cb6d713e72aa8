"""The page for people: files of `page/`, put together into one document that needs no other.

It only shows what the JSON of the same listener tells. The policy of the page lets it run this
script, use this style and ask the listener it came from, and nothing else; it also forbids to make
markup from texts, so a name that looks like markup is a name whatever the script does.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib.resources import files

from mcp_trio.http.admin import Document

_SCRIPTS = ("texts.js", "tables.js", "charts.js", "scopes.js", "tree.js", "page.js")
"""One module in the end: each file uses those before it."""


@functools.cache
def page() -> Document:
    """The page, read when it is asked for the first time."""
    folder = files("mcp_trio.http") / "page"
    parts = {
        "style": folder.joinpath("page.css").read_text("utf-8"),
        "script": "".join(folder.joinpath(name).read_text("utf-8") for name in _SCRIPTS),
    }
    text = folder.joinpath("page.html").read_text("utf-8")
    for name, content in parts.items():
        text = text.replace("{{" + name + "}}", content)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(parts['script'])}'",
            f"style-src '{_digest(parts['style'])}'",
            "connect-src 'self'",
            "img-src data:",  # the icon
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "trusted-types 'none'",
            "require-trusted-types-for 'script'",
        )
    )
    headers = (
        (b"content-security-policy", policy.encode()),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
    )
    return Document(text.encode(), b"text/html; charset=utf-8", headers=headers)


def _digest(text: str) -> str:
    """How a policy names the content of an element."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
