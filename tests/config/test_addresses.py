"""Settings that name a place on the network: what can never be one is told, with what was meant."""

import pytest

from mcp_trio.config import SettingsError, parse_settings

GOOD = [
    *[("server.host", each) for each in ("127.0.0.1", "::1", "::", "0.0.0.0", "fe80::1%eth0")],
    *[("server.host", each) for each in ("localhost", "LOCALHOST", "mcp_1.example", "1.example")],
    *[("server.path", each) for each in ("/", "/mcp", "/mcp/", "/a/b;v=1", "/.well", "/healthzz")],
    ("server.allowed_hosts", ["mcp.example", "*", "192.0.2.1", "[2001:db8::1]"]),
    ("server.allowed_origins", ["https://App.example", "http://localhost:5173/", "null", "*"]),
    ("server.allowed_origins", ["chrome-extension://abcdef", "https://[::1]:8443"]),
    ("auth.documentation", "https://docs.example/mcp?v=1"),
    ("auth.authorization_servers", ["https://a.example", "http://127.0.0.1:9000/b"]),
    *[("telemetry.endpoint", each) for each in ("http://otel:4318", "https://[::1]/base")],
]
NO_HOST = ("[::1]", "", "*", " localhost", "10.0.0.256", "127.1", "0", "::1::")
NO_HOST += ("localhost:8443", "http://localhost", "a..b", "-a", "b\u00fccher.example", "a.")
BAD = [
    *[("server.host", each, "no brackets, scheme or port") for each in NO_HOST],
    *[("admin.host", each, "no brackets, scheme or port") for each in ("[::1]", "localhost:80")],
    *[
        (key, [each], "without scheme and port")
        for key in ("server.allowed_hosts", "admin.allowed_hosts")
        for each in ("https://a.example", "a.example:443", "*.a.example", "::1", "[::1]:80", "")
    ],
    *[
        ("server.allowed_origins", [each], "with a scheme and without a path")
        for each in ("a.example", "https://a.example/app", "https://*.a.example", "https://", "")
    ],
    *[
        ("server.path", each, "must begin with a slash")
        for each in ("mcp", "", "/m cp", "/mcp?x", "/mcp#x", "/m%63p", "/m\u00e9", "/healthz/")
    ],
    ("server.path", "/.well-known/oauth-protected-resource", "/.well-known"),
    *[("auth.documentation", each, "http or https URL") for each in ("our page", "a.example", "")],
    ("auth.authorization_servers", ["https://a.example", "b.example"], "http or https URLs"),
    *[
        ("telemetry.endpoint", f"http://otel:4318/v1/{each}", "without the `/v1/traces`")
        for each in ("traces", "traces/", "metrics")
    ],
    *[
        ("telemetry.endpoint", each, "http or https URL")
        for each in ("collector:4318", "localhost", "grpc://a:1", "http://", "http://u:p@a", "")
    ],
]


ISSUER = {"resource": "https://r.example/mcp", "jwt": {"a": {"issuer": "https://a.example"}}}


def read(key, value):
    table, name = key.split(".")
    around = ISSUER if table == "auth" else {}
    return parse_settings({"catalog": {"registry": "r.sqlite"}, table: {**around, name: value}})


@pytest.mark.parametrize(("key", "value"), GOOD)
def test_what_may_be_a_place_is_taken_as_it_is(key, value):
    table, name = key.split(".")
    assert getattr(getattr(read(key, value), table), name) == value


@pytest.mark.parametrize(("key", "value", "said"), BAD)
def test_what_can_be_none_is_told_by_its_key(key, value, said):
    with pytest.raises(SettingsError) as caught:
        read(key, value)
    (fault,) = caught.value.faults
    assert ".".join(fault.path) == key
    assert said in fault.reason


def test_a_host_in_brackets_is_not_said_to_be_reached_from_elsewhere():
    with pytest.raises(SettingsError) as caught:
        read("admin.host", "[::1]")
    assert "beyond" not in str(caught.value)
