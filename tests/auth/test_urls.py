"""Which URLs of others are visited, and how they are compared and built."""

import pytest

from mcp_trio.auth.urls import canonical, check_named, covers, origin_of, well_known
from mcp_trio.errors import UnauthorizedError
from mcp_trio.secrets import shown_url

FAR = origin_of("https://mcp.example/mcp")
NEAR = origin_of("http://localhost:8000/mcp")


@pytest.mark.parametrize("url", ["https://as.example", "https://as.example:8443/a/b?c=d"])
def test_https_is_visited(url):
    assert check_named(url, FAR) == url


REFUSED = [
    "http://as.example/token",
    "https://localhost/token",
    "https://127.0.0.1/token",
    "https://[::1]/token",
    "https://a.localhost./token",
    "https://user:s3cret@as.example/",
    "https://user@as.example/",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "https://",
    "//as.example",
    "https://as.example:port/",
    "https://as.example/ with space",
    "https://as.example/\r\nx: y",
    "https:\\\\as.example\\",
    "https://as.example/\x9b31m",
    "https://as.example/\u202egpj",
    "https://as.example/\u2028x",
    "",
]


@pytest.mark.parametrize("url", REFUSED)
def test_others_are_not(url):
    with pytest.raises(UnauthorizedError) as caught:
        check_named(url, FAR)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://localhost:9/a", "http://127.0.0.1:9", "https://x.example"])
def test_a_server_on_this_machine_may_lead_to_others_on_it(url):
    assert check_named(url, NEAR) == url
    with pytest.raises(UnauthorizedError):
        check_named("http://as.example", NEAR)


COVERED = [
    ("https://h/mcp", "https://h/mcp", True),
    ("https://h", "https://h/mcp", True),
    ("https://h/", "https://h/mcp", True),
    ("https://h/mcp/", "https://h/mcp", True),
    ("https://h/mcp", "https://h/mcp/", True),
    ("https://H:443/mcp", "https://h/mcp/v1", True),
    ("https://h/m", "https://h/mcp", False),
    ("https://h/mcp/v1", "https://h/mcp", False),
    ("https://h/mcp?a=b", "https://h/mcp", False),
    ("https://h/mcp?a=b", "https://h/mcp?a=b", True),
    ("https://h/mcp#x", "https://h/mcp", False),
    ("http://h/mcp", "https://h/mcp", False),
    ("https://evil.example/mcp", "https://h/mcp", False),
    ("https://h:8443/mcp", "https://h/mcp", False),
    ("urn:mcp", "https://h/mcp", False),
]


@pytest.mark.parametrize(("resource", "url", "expected"), COVERED)
def test_a_resource_is_the_server_or_a_part_above_it(resource, url, expected):
    assert covers(resource, url) is expected


def test_well_known_places_stand_between_host_and_path():
    assert well_known("https://h:1/a/b?c=d", "x") == "https://h:1/.well-known/x/a/b?c=d"
    assert well_known("https://h/", "x") == "https://h/.well-known/x"


def test_a_server_without_metadata_is_called_by_its_url():
    assert canonical("https://h/mcp/#frag") == "https://h/mcp"
    assert canonical("https://h/") == "https://h"


def test_origins_are_shown_and_compared_without_default_ports():
    assert str(origin_of("HTTPS://H:443/x")) == "https://h"
    assert str(origin_of("http://[::1]:80/x")) == "http://[::1]"
    assert str(origin_of("http://h:8080")) == "http://h:8080"


def test_what_is_shown_of_a_url_has_no_secrets():
    assert shown_url("https://u:s3cret@h/p?token=s3cret#s3cret") == "https://h/p"
    assert shown_url("https://[") == "(no URL)"
