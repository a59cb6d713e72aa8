"""The last net under a log: telling keys, tokens in texts, known secrets."""

import pytest

from mcp_trio.secrets import Secret
from mcp_trio.telemetry.redaction import Redactor


def redacted(redactor=None, **event):
    return (redactor or Redactor())(None, "info", dict(event))


@pytest.mark.parametrize(
    "key",
    [
        "authorization",
        "Authorization",
        "access_token",
        "password",
        "client_secret",
        "cookie",
        "Set-Cookie",
        "api_key",
        "X-API-Key",
        "private_key",
        "DPoP",
    ],
)
def test_what_stands_under_a_telling_key_is_not_shown_at_any_depth(key):
    deep = {"headers": [{"one": {key: "canary"}}]}
    told = redacted(event="x", **{key: "canary"}, deep=deep)
    assert "canary" not in repr(told)
    assert told["event"] == "x"


def test_what_says_nothing_stays_as_it_is():
    event = {"event": "catalog: 3 operations", "count": 3, "ok": True, "none": None, "f": 1.5}
    assert redacted(**event) == event
    assert redacted(token_count=3) == {"token_count": 3}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sent Authorization: Bearer abcdef.123456", "sent Authorization: Bearer ***"),
        ("basic dXNlcjpwYXNz went out", "basic *** went out"),
        ("got eyJhbGciOiJub25lIn0.eyJzdWIiOiIxMjM0In0.c2ln back", "got *** back"),
        ("the bearer of news", "the bearer of news"),
    ],
)
def test_tokens_in_texts_are_masked(text, shown):
    assert redacted(event=text) == {"event": shown}
    assert redacted(exception=f"ValueError: {text}") == {"exception": f"ValueError: {shown}"}


def test_known_secrets_are_masked_as_they_are_now():
    values = [Secret("first-canary")]
    redactor = Redactor()
    redactor.add(lambda: values)
    assert redacted(redactor, event="it is first-canary") == {"event": "it is ***"}
    assert redacted(redactor, url={"q": ["a=first%2Dcanary"]}) == {"url": {"q": ["a=***"]}}
    values.append(Secret("second-canary"))
    assert redacted(redactor, event="second-canary") == {"event": "***"}


def test_a_bottomless_value_has_an_end():
    deep = []
    deep.append(deep)
    assert "***" in repr(redacted(event="x", deep=deep))
