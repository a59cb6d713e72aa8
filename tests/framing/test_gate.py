"""Host, Origin, Accept and Content-Type (H1, N2, SEC3): who gets in, and who only looks like it."""

from __future__ import annotations

import pytest

from mcp_trio.framing.gate import (
    Accepts,
    GatePolicy,
    accepts,
    check_media,
    check_source,
)

LOCAL = GatePolicy()
ANYWHERE = GatePolicy(any_address=True)
NAMED = GatePolicy(
    hosts=frozenset({"mcp.example"}), origins=frozenset({"https://app.example", "null"})
)


def admitted(policy: GatePolicy, host: str | None, origin: str | None = None) -> bool:
    headers = {} if host is None else {"host": host}
    if origin is not None:
        headers["origin"] = origin
    refusal = check_source(headers, policy)
    assert refusal is None or refusal.status == 403
    return refusal is None


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "LOCALHOST:8000", "localhost.", "localhost.:80", "127.0.0.1",
     "127.0.0.1:8000", "[::1]", "[::1]:8000", "localhost:"],
)  # fmt: skip
def test_a_loopback_server_answers_to_its_names(host: str) -> None:
    assert admitted(LOCAL, host)


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.test", "evil.test:8000", "localhost.evil.com", "127.0.0.1.evil.com",
     "evil.com.localhost.", "localhost@evil.com", "localhost:80@evil.com", "evil.com@localhost",
     "localhost:evil.com", "localhost:8000:9000", "[::1]evil.com", "[::1].evil.com", "[::1",
     "[localhost]", "::1", "localhost/evil.com", "localhost#", "localhost?", "localhost\\evil.com",
     "localhost evil.com", "localhost, evil.com", "evil.com, localhost", "localhost..",
     "0.0.0.0", "192.168.0.7", "127.1", "2130706433", "0x7f.0.0.1", "[::ffff:127.0.0.1]"],
)  # fmt: skip
def test_a_loopback_server_answers_to_nothing_else(host: str | None) -> None:
    assert not admitted(LOCAL, host)


def test_beyond_loopback_any_address_is_served_and_names_are_not() -> None:
    for host in ("192.168.0.7:8000", "10.0.0.1", "[fe80::1]:80", "localhost", "127.0.0.1"):
        assert admitted(ANYWHERE, host)
    for host in ("evil.test", "10.0.0.1.evil.test", "10.0.0.1@evil.test", "", None, "[10.evil]"):
        assert not admitted(ANYWHERE, host)


def test_a_named_server_answers_to_its_name_only() -> None:
    assert admitted(NAMED, "mcp.example:443")
    assert admitted(NAMED, "MCP.Example.")
    assert not admitted(NAMED, "localhost")
    assert not admitted(NAMED, "sub.mcp.example")
    assert not admitted(NAMED, "10.0.0.1")


def test_a_star_answers_to_everything_and_trusts_no_page_for_it() -> None:
    anyone = GatePolicy(hosts=frozenset({"*"}))
    assert admitted(anyone, "whatever.example")
    assert not admitted(anyone, "evil.test", "http://evil.test")


@pytest.mark.parametrize(
    "origin",
    ["http://localhost", "http://localhost:3000", "HTTPS://LOCALHOST:3000", "http://127.0.0.1",
     "http://[::1]:5173"],
)  # fmt: skip
def test_local_pages_may_use_a_local_server(origin: str) -> None:
    assert admitted(LOCAL, "127.0.0.1:8000", origin)


@pytest.mark.parametrize(
    "origin",
    ["http://evil.test", "null", "", "localhost", "http://", "http://localhost.evil.com",
     "http://127.0.0.1.evil.com", "http://localhost@evil.com", "http://evil.com@localhost",
     "http://localhost:80@evil.com", "http://localhost/", "http://localhost/path",
     "http://localhost?x", "http://localhost#x", "http://localhost:80:90", "http://localhost:evil",
     "ftp://localhost", "file://localhost", "ws://localhost", "javascript://localhost",
     "chrome-extension://localhost", "http:localhost", "//localhost", " http://localhost",
     "http://localhost, http://evil.test", "http://[::1", "http://[::1]evil.test", "http://[bad]",
     "http://\u00e9vil.test", "*"],
)  # fmt: skip
def test_other_pages_may_not(origin: str) -> None:
    assert not admitted(LOCAL, "127.0.0.1:8000", origin)


def test_a_page_of_the_server_itself_may_use_it() -> None:
    assert admitted(NAMED, "mcp.example", "https://mcp.example")
    assert admitted(ANYWHERE, "10.0.0.1:8000", "http://10.0.0.1:8000")
    assert not admitted(ANYWHERE, "10.0.0.1:8000", "http://10.0.0.2:8000")
    assert not admitted(ANYWHERE, "10.0.0.1:8000", "http://localhost")


def from_a_page(site: str, mode: str, dest: str) -> bool:
    """Whether a request is admitted that a browser sends without an origin."""
    fields = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
    refusal = check_source({"host": "127.0.0.1:8000", **fields}, LOCAL)
    assert refusal is None or refusal.status == 403
    return refusal is None


@pytest.mark.parametrize(
    ("mode", "dest"),
    [("no-cors", "image"), ("no-cors", "script"), ("no-cors", "empty"), ("navigate", "iframe")],
)
def test_what_a_page_of_another_site_embeds_is_not_made_for_it(mode: str, dest: str) -> None:
    """It could not read it, but have us work."""
    assert not from_a_page("cross-site", mode, dest)
    assert from_a_page("same-origin", mode, dest)


def test_a_link_of_another_site_may_be_followed() -> None:
    assert from_a_page("cross-site", "navigate", "document")
    assert from_a_page("none", "navigate", "document")


def test_listed_origins_are_taken_whole_and_whatever_their_case() -> None:
    assert admitted(NAMED, "mcp.example", "https://APP.example")
    assert admitted(NAMED, "mcp.example", "null")
    for other in (
        "http://app.example",
        "https://app.example:8443",
        "https://app.example.evil.test",
    ):
        assert not admitted(NAMED, "mcp.example", other)


def test_a_star_among_the_origins_admits_every_page() -> None:
    policy = GatePolicy(origins=frozenset({"*"}))
    assert admitted(policy, "localhost", "http://evil.test")
    assert not admitted(policy, "evil.test", "http://evil.test")


@pytest.mark.parametrize(
    ("value", "json", "sse"),
    [
        (None, True, True),
        ("", True, True),
        ("application/json, text/event-stream", True, True),
        ("application/json", True, False),
        ("text/event-stream", False, True),
        ("APPLICATION/JSON;Q=0.5", True, False),
        ("*/*", True, True),
        ("application/*, text/*", True, True),
        ("text/*", False, True),
        ("application/json;q=0", False, False),
        ("application/json;q=0.0, text/event-stream;q=1.000", False, True),
        ("*/*, application/json;q=0", False, True),
        ("*/*;q=0, text/event-stream", False, True),
        ("application/*;q=0, */*", False, True),
        ("application/json; charset=utf-8", True, False),
        ("application/json; q = 0", False, False),
        ("application/json;q=x, text/event-stream;q=nan", False, False),
        ("application/json;q=-1, text/event-stream;q=1e9", False, False),
        ("application/json;q=", False, False),
        ("text/html, application/xml", False, False),
        ("garbage", False, False),
        (",,;;", False, False),
        ("application/jsonp, text/event-streams", False, False),
    ],
)
def test_accept_is_read_with_its_weights(value: str | None, json: bool, sse: bool) -> None:
    assert accepts(value) == Accepts(json=json, sse=sse)


@pytest.mark.parametrize(
    ("accept", "content_type", "status"),
    [
        ("*/*", "application/json", None),
        ("*/*", "Application/JSON ; charset=utf-8", None),
        ("application/json", "application/json", None),
        ("text/html", "application/json", 406),
        ("application/json;q=0", "application/json", 406),
        ("*/*", "text/plain", 415),
        ("*/*", "application/json-rpc", 415),
        ("*/*", "", 415),
        ("*/*", "application/json, text/plain", 415),
    ],
)
def test_a_post_names_forms_that_can_be_served(
    accept: str, content_type: str, status: int | None
) -> None:
    refusal = check_media({"accept": accept, "content-type": content_type})
    assert (refusal.status if refusal else None) == status


def test_a_post_without_a_content_type_is_refused() -> None:
    refusal = check_media({})
    assert refusal is not None
    assert refusal.status == 415
