"""URI templates matched: values, decoding, and what is not let through (O3)."""

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.framing.uri_template import UriTemplate, UriTemplateError, normal


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("test://static", "test://static", {}),
        ("test://static", "test://other", None),
        ("test://t/{id}/data", "test://t/123/data", {"id": "123"}),
        ("test://t/{id}/data", "test://t//data", None),
        ("test://t/{id}/data", "test://t/1/2/data", None),
        ("test://t/{id}", "test://t/a%20b", {"id": "a b"}),
        ("test://t/{id}", "test://t/é", {"id": "é"}),
        ("test://t/{id}", "test://t/%C3%A9", {"id": "é"}),
        ("test://t/é/{id}", "test://t/%C3%A9/1", {"id": "1"}),
        ("test://{a}/{b}", "test://x/y", {"a": "x", "b": "y"}),
        ("file:///{+path}", "file:///a/b/c.txt", {"path": "a/b/c.txt"}),
        ("file:///{+path}", "file:///a?b=c", {"path": "a?b=c"}),
        ("file:///{+path}{?q}", "file:///a/b?q=c", {"path": "a/b", "q": "c"}),
        ("file:///{+path}{?q}", "file:///a/b", {"path": "a/b"}),
        ("file:///{+path}?v=1{&q}", "file:///a/b?v=1&q=c", {"path": "a/b", "q": "c"}),
        (
            "file:///{+path}/{name}{?q}",
            "file:///a/b/c?q=/d",
            {"path": "a/b", "name": "c", "q": "/d"},
        ),
        ("test://t{/id}", "test://t/9", {"id": "9"}),
        ("test://t{?a,b}", "test://t?b=2&a=1", {"a": "1", "b": "2"}),
        ("test://t{?a,b}", "test://t?a=x%20y&c=3", {"a": "x y"}),
        ("test://t{?a,b}", "test://t", {}),
        ("test://t?x=1{&a}", "test://t?x=1&a=2", {"a": "2"}),
        ("test://t/{id}", "test://t/1\n", {"id": "1\n"}),
        ("test://a.b/{id}", "test://aXb/1", None),
    ],
)
def test_a_uri_gives_the_variables_their_values(template, uri, values):
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", ".", "..%2Fetc", "a%2Fb", "a%5Cb", "%00", "..%5c..", "%2E%2E%2fetc"]
)
def test_a_simple_variable_is_one_safe_segment(name):
    assert UriTemplate("file:///{name}").match(f"file:///{name}") is None


@pytest.mark.parametrize(
    "path", ["../etc", "a/../b", "a/%2e%2e/b", "a%2f..%2fb", "a\\..\\b", "%00"]
)
def test_a_path_variable_does_not_climb(path):
    assert UriTemplate("file:///{+path}").match(f"file:///{path}") is None


@pytest.mark.parametrize(
    "template",
    [
        "test://{",
        "test://}",
        "test://{}",
        "test://{a",
        "test://{a}{a}",
        "test://{a,b}",
        "test://{a*}",
        "test://{a:3}",
        "test://{#a}",
        "test://{?a}/{b}",
        "test://{?a}x",
        "test://{1a}",
    ],
)
def test_a_template_that_cannot_be_matched_is_refused(template):
    with pytest.raises(UriTemplateError):
        UriTemplate(template)


@given(st.text(st.sampled_from("%%%0123456789abcdefABCDEF/?#{}é \0~s"), max_size=30))
def test_the_normal_spelling_is_its_own_and_means_the_same(uri: str) -> None:
    spelled = normal(uri)
    assert normal(spelled) == spelled
    assert unquote_to_bytes(spelled) == unquote_to_bytes(uri)
    assert spelled.isascii()


@pytest.mark.parametrize(
    ("uri", "spelled"),
    [
        ("test://a/%7e%41", "test://a/~A"),
        ("test://é/%c3%a9", "test://%C3%A9/%C3%A9"),
        ("test://a%2fb%3f", "test://a%2Fb%3F"),
        ("test://100%", "test://100%25"),
        ("test://%%373ecret", "test://%2573ecret"),
        ("test://{x}/%7Bx%7D", "test://{x}/{x}"),
    ],
)
def test_a_uri_has_one_normal_spelling(uri: str, spelled: str) -> None:
    assert normal(uri) == spelled
