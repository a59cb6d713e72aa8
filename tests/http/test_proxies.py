"""What is believed of the fields that proxies add, and of whom."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import ConfigurationError
from mcp_trio.http.proxies import Forwarding, ForwardingError, TrustedProxies

PROXIES = TrustedProxies.of(["10.0.0.0/8", "2001:db8:1::/48", "192.0.2.7", "unix"])


def read(**fields: str) -> Forwarding | None:
    return PROXIES.read(
        [
            (name.replace("_", "-").encode(), value.encode("latin-1"))
            for name, value in fields.items()
        ]
    )


def test_networks_addresses_and_unix_are_names_of_proxies() -> None:
    assert PROXIES.unix
    assert not TrustedProxies.of(["10.0.0.0/8"]).unix
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "192.0.2.7", "2001:db8:1::5"):
        assert PROXIES.trusts(address), address
    for address in ("11.0.0.1", "192.0.2.8", "2001:db8:2::5", "::1", "", "rubbish"):
        assert not PROXIES.trusts(address), address
    assert not TrustedProxies.of([])


@pytest.mark.parametrize("name", ["10.0.0.1/8", "proxy.example", "", "10.0.0.0/33", "Unix"])
def test_what_is_no_network_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="trusted_proxies"):
        TrustedProxies.of([name])


def test_without_the_fields_nothing_is_said() -> None:
    assert read(host="x", user_agent="y") is None


@pytest.mark.parametrize(
    ("value", "client"),
    [
        ("203.0.113.9", ("203.0.113.9", 0)),
        ("203.0.113.9:4711", ("203.0.113.9", 4711)),
        ("[2001:db8:2::1]:4711", ("2001:db8:2::1", 4711)),
        ("2001:db8:2::1", ("2001:db8:2::1", 0)),
        ("::ffff:203.0.113.9", ("203.0.113.9", 0)),
        # What the client has made up stands on the left.
        ("198.51.100.1, 203.0.113.9", ("203.0.113.9", 0)),
        ("rubbish, 203.0.113.9, 10.0.0.2 , 10.0.0.3", ("203.0.113.9", 0)),
        ("10.0.0.9, 10.0.0.2", ("10.0.0.9", 0)),
        # A hop that hides who it has served: what is known is the hop.
        ("203.0.113.9, unknown, 10.0.0.3", ("10.0.0.3", 0)),
        ("unknown", None),
        ("203.0.113.9:99999", None),
        ("203.0.113.9,", None),
        ("", None),
    ],
)
def test_the_rightmost_address_that_is_not_trusted_is_the_client(
    value: str, client: tuple[str, int] | None
) -> None:
    assert read(x_forwarded_for=value) == Forwarding(client=client)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("for=203.0.113.9", Forwarding(client=("203.0.113.9", 0))),
        (
            'For="[2001:db8:2::1]:80";Proto=HTTPS;Host="mcp.example:443";by=_x',
            Forwarding(client=("2001:db8:2::1", 80), scheme="https", host="mcp.example:443"),
        ),
        (
            "for=198.51.100.1;proto=http;host=evil, for=203.0.113.9;proto=https,for=10.0.0.4",
            Forwarding(client=("203.0.113.9", 0), scheme="https"),
        ),
        ('for="\\2\\0\\3.0.113.9"', Forwarding(client=("203.0.113.9", 0))),
        ("for=_hidden;proto=https", Forwarding(scheme="https")),
        ("proto=gopher;host=a/b", Forwarding()),
    ],
)
def test_the_standard_field_is_read_element_by_element(value: str, said: Forwarding) -> None:
    assert read(forwarded=value) == said


@pytest.mark.parametrize(
    "value", ["for", 'for="x', "for=1.2.3.4;for=1.2.3.4", "for=1 2", ",", "for=x;;", ""]
)
def test_a_standard_field_that_cannot_be_read_is_a_fault(value: str) -> None:
    with pytest.raises(ForwardingError):
        read(forwarded=value)


def test_schemes_and_hosts_stand_beside_their_client_or_alone() -> None:
    several = read(
        x_forwarded_for="198.51.100.1, 203.0.113.9, 10.0.0.2",
        x_forwarded_proto="ftp, https, http",
        x_forwarded_host="evil.example, mcp.example, inner.example",
    )
    assert several == Forwarding(client=("203.0.113.9", 0), scheme="https", host="mcp.example")
    alone = read(
        x_forwarded_for="203.0.113.9, 10.0.0.2", x_forwarded_proto="https", x_forwarded_host="a_b"
    )
    assert alone == Forwarding(client=("203.0.113.9", 0), scheme="https", host="a_b")


def test_of_both_kinds_only_what_they_agree_on_is_believed() -> None:
    agreed = read(
        forwarded="for=203.0.113.9;proto=https;host=mcp.example",
        x_forwarded_for="203.0.113.9",
        x_forwarded_proto="https",
        x_forwarded_host="mcp.example",
    )
    assert agreed == Forwarding(client=("203.0.113.9", 0), scheme="https", host="mcp.example")
    # A client that writes the field its proxy does not write.
    forged = read(
        forwarded="for=203.0.113.9;proto=https;host=evil.example", x_forwarded_for="203.0.113.9"
    )
    assert forged == Forwarding(client=("203.0.113.9", 0))


@pytest.mark.parametrize(
    "fields",
    [
        {"forwarded": "for=198.51.100.1", "x_forwarded_for": "203.0.113.9"},
        {
            "forwarded": "for=203.0.113.9;proto=https",
            "x_forwarded_for": "203.0.113.9",
            "x_forwarded_proto": "http",
        },
    ],
)
def test_fields_that_contradict_each_other_are_a_fault(fields: dict[str, str]) -> None:
    with pytest.raises(ForwardingError):
        read(**fields)


TEXT = st.text(st.sampled_from('for=proto;host,"[]:.\\ 0123456789abf_é'), max_size=60)


@given(
    st.lists(
        st.tuples(st.sampled_from(["forwarded", "x_forwarded_for", "x_forwarded_proto"]), TEXT)
    )
)
def test_whatever_is_written_there_names_an_address_or_none(
    fields: list[tuple[bytes, str]],
) -> None:
    try:
        said = PROXIES.read(
            [(n.replace("_", "-").encode(), v.encode("latin-1")) for n, v in fields]
        )
    except ForwardingError:
        return
    if said is not None and said.client is not None:
        ipaddress.ip_address(said.client[0])
        assert 0 <= said.client[1] <= 65535
    assert said is None or said.scheme in {None, "http", "https"}
