"""The page of the admin listener as a document: whole, and under a policy that names its parts."""

from __future__ import annotations

import base64
import hashlib
import re

from mcp_trio.http.admin_page import page

TEXT = page().body.decode()


def element(tag):
    (content,) = re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", TEXT, re.DOTALL)
    return content


def test_the_policy_names_the_one_script_and_the_one_style_and_nothing_else_may_run():
    fields = dict(page().headers)
    policy = dict(
        part.split(" ", 1) for part in fields[b"content-security-policy"].decode().split("; ")
    )
    assert page().media == b"text/html; charset=utf-8"
    for directive, tag in (("script-src", "script"), ("style-src", "style")):
        content = element(tag)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy.pop(directive) == f"'sha256-{digest}'"
        assert len(content) > 1000
    assert policy.pop("connect-src") == "'self'"
    assert policy.pop("img-src") == "data:"
    assert policy.pop("require-trusted-types-for") == "'script'"
    assert set(policy.values()) == {"'none'"}
    assert {"default-src", "frame-ancestors", "base-uri", "form-action"} <= set(policy)


def test_it_needs_nothing_from_elsewhere_and_leaves_nothing_to_be_put_in():
    addresses = set(re.findall(r"https?://[^\s'\"]+", TEXT))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of SVG, which nobody fetches
    assert "{{" not in TEXT
    # An attribute with a script or a style in it would be refused by the policy.
    markup = TEXT.replace(element("script"), "").replace(element("style"), "")
    assert not re.search(r"<[^>]*\s(on\w+|style)=", markup)


def test_it_is_put_together_once():
    assert page() is page()
