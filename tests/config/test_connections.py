"""`[tls]`, `[limits]` and the keys of listening: read, judged, and what comes of them."""

from pathlib import Path

import attrs
import pytest

from mcp_trio import ConfigurationError, HTTPOptions, LoadLimits, ServingSettings
from mcp_trio.config import (
    LimitsSection,
    RatesSection,
    ServerSection,
    SettingsError,
    parse_settings,
)
from mcp_trio.config.load import load_limits
from mcp_trio.http.tls import TLSOptions

CATALOG = {"registry": "r.sqlite"}
PAIR = {"cert_file": "cert.pem", "key_file": "/etc/key.pem"}


def read(**sections: object):
    return parse_settings({"catalog": CATALOG, **sections})


def test_files_of_tls_are_relative_to_the_settings() -> None:
    tls = read(tls={**PAIR, "client_ca_file": "ca.pem", "client_certificates": "optional"}).tls
    assert tls.options(Path("/srv")) == TLSOptions(
        cert_file="/srv/cert.pem",
        key_file="/etc/key.pem",
        client_ca_file="/srv/ca.pem",
        client_certificates="optional",
    )
    assert read().tls is None


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"tls": {"cert_file": "a"}}, "tls.key_file: missing key"),
        (
            {"tls": {**PAIR, "client_certificates": "yes"}},
            "tls.client_certificates: must be none or optional or required",
        ),
        ({"tls": {**PAIR, "reload_interval": 0}}, "tls.reload_interval: must be greater than 0"),
        (
            {"server": {"trusted_proxies": ["10.0.0.0/33"]}},
            "server.trusted_proxies: must be networks, addresses or `unix`",
        ),
        ({"server": {"unix_mode": "rw"}}, "server.unix_mode: must be three octal digits"),
        ({"limits": {"max_nodes": 0}}, "limits.max_nodes: must be greater than 0"),
        ({"limits": {"max_node": 1}}, "limits.max_node: unknown key"),
    ],
)
def test_faults_are_told_with_their_key(sections: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(**sections)
    (fault,) = caught.value.faults
    assert str(fault).startswith(told)


def test_an_authority_whose_certificates_nobody_asks_for_is_a_fault() -> None:
    tls = read(tls={**PAIR, "client_ca_file": "ca.pem"}).tls
    with pytest.raises(ConfigurationError, match="belong together"):
        tls.options(Path())


def test_every_limit_has_the_default_of_the_code_and_reaches_the_service() -> None:
    """Each one is set to a value of its own, which then has to turn up."""
    server, usual = ServerSection(), LimitsSection()
    values = attrs.asdict(usual)
    for made in (HTTPOptions(), ServingSettings(), LoadLimits()):
        for field in attrs.fields(type(made)):
            # What one caller may take of a service of one's own is left to whoever writes it.
            if field.name in values and not field.name.endswith("_per_caller"):
                assert values[field.name] == getattr(made, field.name), field.name
    others = LimitsSection(**{name: (value or 0) + 1 for name, value in values.items()})
    reached = {
        **attrs.asdict(server.http_options(others)),
        **attrs.asdict(server.serving_settings(others)),
        **attrs.asdict(load_limits(server, others, RatesSection(), {})),
    }
    for name, value in attrs.asdict(others).items():
        assert reached[name] == value, name


def test_http_sse_is_served_at_its_usual_path_unless_the_settings_say_no() -> None:
    served = read(server={}).server.http_options(LimitsSection())
    assert served.legacy_sse_path == HTTPOptions().legacy_sse_path == "/sse"
    refused = read(server={"legacy_sse": False}).server.http_options(LimitsSection())
    assert refused.legacy_sse_path is None


def test_proxies_and_the_size_of_a_message_reach_the_service() -> None:
    server = read(
        server={"trusted_proxies": ["10.0.0.0/8", "unix"], "proxy_protocol": True, "max_body": 9}
    ).server
    settings = server.serving_settings(LimitsSection())
    assert settings.trusted_proxies == ("10.0.0.0/8", "unix")
    assert settings.proxy_protocol
    assert settings.max_websocket_message_bytes == 9
