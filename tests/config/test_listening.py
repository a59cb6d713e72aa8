"""Where the service listens: nothing is open beyond this machine, or clashes, by accident."""

import os
import socket
from pathlib import Path

import pytest

from mcp_trio.config import parse_settings
from mcp_trio.config.listening import is_loopback, listening_faults
from mcp_trio.http import binding


def told(environment=None, folder=Path(), **sections):
    settings = parse_settings({"catalog": {"registry": "r.sqlite"}, **sections})
    found = listening_faults(settings, environment or {}, folder)
    return [(".".join(each.path), each.severity, each.advice) for each in found]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost", "LOCALHOST"])
def test_on_this_machine_nothing_needs_to_be_allowed(host):
    assert is_loopback(host)
    assert told(server={"host": host}, admin={"host": host}) == []


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.0.7", "2001:db8::1", "example.com", "localhost.example"]
)
def test_beyond_it_each_thing_that_is_missing_has_to_be_allowed(host):
    assert not is_loopback(host)
    anonymous, plaintext = told(server={"host": host})
    assert anonymous[:2] == plaintext[:2] == ("server.host", "fault")
    assert "server.allow_anonymous = true" in anonymous[2]
    assert "server.allow_plaintext = true" in plaintext[2]
    assert anonymous[2].startswith("Safer: ")
    assert told(server={"host": host, "allow_anonymous": True}) == [plaintext]
    assert told(server={"host": host, "allow_plaintext": True}) == [anonymous]
    both = {"host": host, "allow_anonymous": True, "allow_plaintext": True}
    assert told(server=both) == []
    # What is allowed to callers is not allowed to operators.
    ((key, severity, advice),) = told(server=both, admin={"host": host})
    assert (key, severity) == ("admin.host", "fault")
    assert "admin.allow_remote = true" in advice
    assert told(server=both, admin={"host": host, "allow_remote": True}) == []


ALLOWED = {"allow_anonymous": True, "allow_plaintext": True}


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("::1", "localhost", True),
        ("127.0.0.1", "::1", False),
        ("0.0.0.0", "127.0.0.1", True),
        ("0.0.0.0", "::1", False),
        ("::", "::1", True),
        ("::", "127.0.0.1", False),
        ("0.0.0.0", "localhost", True),
        ("192.0.2.1", "192.0.2.2", False),
    ],
)
def test_two_listeners_need_two_ports_where_their_addresses_meet(one, other, clash):
    for first, second in ((one, other), (other, one)):
        found = told(
            server={"host": first, "port": 9000, **ALLOWED},
            admin={"host": second, "port": 9000, "allow_remote": True},
        )
        assert [each[:2] for each in found] == ([("admin.port", "fault")] if clash else [])
    assert told(server={"port": 0}, admin={"port": 0}) == []


PAIR = {"cert_file": "cert.pem", "key_file": "key.pem"}
OPEN = {"host": "192.0.2.1"}


def test_tls_is_not_plaintext_and_who_shows_a_certificate_is_not_anonymous():
    (anonymous,) = told(server=OPEN, tls=PAIR)
    assert "server.allow_anonymous = true" in anonymous[2]
    wanted = {**PAIR, "client_ca_file": "ca.pem", "client_certificates": "optional"}
    assert told(server=OPEN, tls=wanted) == [anonymous]
    assert told(server=OPEN, tls={**wanted, "client_certificates": "required"}) == []


def test_who_is_asked_by_auth_is_not_anonymous():
    auth = {"resource": "https://x/mcp", "jwt": {"x": {"issuer": "https://x"}}}
    (plaintext,) = told(server=OPEN, auth=auth)
    assert "server.allow_plaintext = true" in plaintext[2]
    assert told(server=OPEN, auth=auth, tls=PAIR) == []


def test_a_unix_socket_that_could_not_be_made_is_a_fault(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    fault = [("server.unix_socket", "fault")]
    for name in ("none/mcp.sock", "file", "link", "x" * 108):
        found = told(folder=tmp_path, server={"unix_socket": name})
        assert [each[:2] for each in found] == fault, name
    assert told(folder=tmp_path, server={"unix_socket": "none/x", "socket_activation": True}) == []
    # One that is left of a service that ended in no good way is replaced.
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(os.fspath(tmp_path / "mcp.sock"))
    assert told(folder=tmp_path, server={"unix_socket": "mcp.sock"}) == []


def test_a_header_of_proxies_needs_proxies():
    ((key, severity, _),) = told(server={"proxy_protocol": True})
    assert (key, severity) == ("server.proxy_protocol", "fault")
    assert told(server={"proxy_protocol": True, "trusted_proxies": ["10.0.0.0/8"]}) == []


def test_a_unix_socket_is_on_this_machine_and_has_no_port():
    server = {**OPEN, "port": 9000, "unix_socket": "mcp.sock"}
    assert told(server=server, admin={"port": 9000}) == []


@pytest.mark.parametrize(
    ("address", "faults"), [("127.0.0.1", 0), ("127.0.0.9", 0), (None, 0), ("0.0.0.0", 2)]
)
def test_sockets_of_the_service_manager_are_judged_where_they_are_handed_over(
    monkeypatch, tmp_path, address, faults
):
    family = socket.AF_UNIX if address is None else socket.AF_INET
    server = {**OPEN, "socket_activation": True}
    with socket.socket(family) as handed_over:
        # Bound, and never listened at.
        handed_over.bind(str(tmp_path / "s") if address is None else (address, 0))
        monkeypatch.setattr(binding, "FIRST_INHERITED", handed_over.fileno())
        environment = {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
        found = told(environment, server=server)
        assert [each[0] for each in found] == ["server.socket_activation"] * faults
        assert told({**environment, "LISTEN_PID": "1"}, server=server) == []
        # None was taken.
        assert handed_over.getsockname()


@pytest.mark.parametrize(
    ("server", "name", "key"),
    [
        ({"path": "/"}, "healthz", "toolsets.healthz"),
        ({"path": "/"}, "sse", "toolsets.sse"),
        ({"path": "/"}, "messages", "toolsets.messages"),
        ({"path": "/sse/"}, "crm", "server.path"),
        ({"path": "/messages"}, "crm", "server.path"),
        ({"path": "/sse", "legacy_sse": False}, "crm", None),
        ({"path": "/", "legacy_sse": False}, "sse", None),
        ({}, "sse", None),
    ],
)
def test_a_path_has_one_owner(server, name, key):
    found = told(server=server, toolsets={name: {"tags": ["a"]}})
    assert [each[0] for each in found] == ([] if key is None else [key])
