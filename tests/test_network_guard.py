"""The network policy, address by address, and the backend that enforces it."""

from __future__ import annotations

import httpcore2
import pytest
import trio

from mcp_trio.network_guard import (
    BlockedAddressError,
    BoundedStream,
    Guard,
    GuardedBackend,
    NetworkPolicy,
)

PUBLIC = ["93.184.216.34", "2606:2800:220:1::1"]
PRIVATE = [
    "10.0.0.1",
    "172.16.3.4",
    "192.168.1.1",
    "127.0.0.1",
    "100.64.0.1",
    "::1",
    "fd00::1",
    "::ffff:10.0.0.1",
    "64:ff9b::a00:1",
    "2002:0a00:0001::",
    # Other ways to write an IPv4 address in IPv6, and the private addresses of old.
    "::127.0.0.1",
    "::ffff:0:10.0.0.1",
    "64:ff9b:1::a00:1",
    "fec0::1",
    "2001:0:a9fe:a9fe::1",
]
NEVER = [
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::",
    "fe80::1",
    "fe80::1%eth0",
    "0.0.0.0",
    "::",
    "::169.254.169.254",
    "::ffff:0:169.254.169.254",
    "64:ff9b:1::a9fe:a9fe",
    # Metadata of clouds at addresses that are not link-local.
    "fd00:ec2::254",
    "fd20:ce::254",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "::ffff:100.100.100.200",
    "224.0.0.1",
    "ff02::1",
    "not-an-address",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_reached(address):
    assert Guard(host="api.example").refusal("api.example", address) is None


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_need_permission(address):
    assert Guard(host="api.example").refusal("api.example", address) is not None
    allowing = Guard(host="api.example", policy=NetworkPolicy(allow_private=True))
    assert allowing.refusal("api.example", address) is None


@pytest.mark.parametrize("address", NEVER)
def test_some_addresses_are_never_reached_through_a_name(address):
    allowing = Guard(host="api.example", policy=NetworkPolicy(allow_private=True))
    assert allowing.refusal("api.example", address) is not None


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "fd00::1"])
def test_an_address_written_into_the_configuration_is_meant(address):
    assert Guard(host=address).refusal(address, address) is None
    assert Guard(host=f"[{address}]").refusal(address, address) is None
    assert Guard(host=address).refusal(address, "10.9.9.9") is not None


def test_localhost_means_loopback_and_nothing_else():
    guard = Guard(host="localhost")
    assert guard.refusal("localhost", "127.0.0.1") is None
    assert guard.refusal("localhost", "::1") is None
    assert guard.refusal("localhost", "10.0.0.1") is not None
    assert guard.refusal("localhost", "169.254.169.254") is not None


def test_the_unspecified_address_is_refused_even_if_configured():
    assert Guard(host="0.0.0.0").refusal("0.0.0.0", "0.0.0.0") is not None


def test_another_host_than_the_configured_one_is_refused():
    assert Guard(host="api.example").refusal("evil.example", "93.184.216.34") is not None


class Recorder(httpcore2.AsyncNetworkBackend):
    """Notes where it is asked to connect; connects if the address is in `alive`."""

    def __init__(self, alive=()):
        self.asked: list[tuple[str, int]] = []
        self.alive = alive

    async def connect_tcp(self, host, port, timeout=None, local_address=None, socket_options=None):  # noqa: ASYNC109
        self.asked.append((host, port))
        if host in self.alive:
            await trio.lowlevel.checkpoint()
            return httpcore2.AsyncMockStream([])
        with trio.move_on_after(timeout):
            await trio.sleep_forever()
        raise httpcore2.ConnectTimeout


def answers(*addresses):
    async def resolver(_host, _port):
        await trio.lowlevel.checkpoint()
        return list(addresses)

    return resolver


async def test_it_connects_to_the_judged_address_and_not_to_the_name():
    inner = Recorder(alive={"93.184.216.34"})
    backend = GuardedBackend(Guard(host="api.example"), inner, answers("93.184.216.34"))
    stream = await backend.connect_tcp("api.example", 443)
    assert isinstance(stream, BoundedStream)
    assert inner.asked == [("93.184.216.34", 443)]


async def test_one_bad_address_among_good_ones_refuses_all():
    inner = Recorder(alive={"93.184.216.34"})
    resolver = answers("93.184.216.34", "169.254.169.254")
    backend = GuardedBackend(Guard(host="api.example"), inner, resolver)
    with pytest.raises(BlockedAddressError, match="link-local"):
        await backend.connect_tcp("api.example", 443)
    assert inner.asked == []


async def test_a_dead_address_leaves_time_for_the_next(autojump_clock):
    inner = Recorder(alive={"93.184.216.35"})
    resolver = answers("93.184.216.34", "93.184.216.35")
    backend = GuardedBackend(Guard(host="api.example"), inner, resolver)
    start = trio.current_time()
    await backend.connect_tcp("api.example", 443, timeout=4)
    assert trio.current_time() - start == pytest.approx(2)
    assert len(inner.asked) == 2


async def test_nobody_answering_is_a_timeout_within_the_bound(autojump_clock):
    backend = GuardedBackend(
        Guard(host="api.example"), Recorder(), answers("93.184.216.34", "93.184.216.35")
    )
    start = trio.current_time()
    with pytest.raises(httpcore2.ConnectTimeout):
        await backend.connect_tcp("api.example", 443, timeout=4)
    assert trio.current_time() - start == pytest.approx(4)


async def test_a_resolver_that_hangs_is_bounded_too(autojump_clock):
    async def never(_host, _port):
        await trio.sleep_forever()

    backend = GuardedBackend(Guard(host="api.example"), Recorder(), never)
    with pytest.raises(httpcore2.ConnectTimeout):
        await backend.connect_tcp("api.example", 443, timeout=3)


async def test_a_call_cancelled_while_its_name_is_resolved_is_cancelled_and_no_fault():
    with trio.CancelScope() as scope:

        async def resolver(host, port):
            scope.cancel()
            return ["93.184.216.34"]

        await GuardedBackend(Guard(host="api.example"), resolver=resolver).connect_tcp(
            "api.example", 80
        )
    assert scope.cancelled_caught


async def test_time_that_is_over_when_the_name_is_resolved_is_a_timeout(mock_clock):
    async def resolver(host, port):
        mock_clock.jump(10)
        return ["93.184.216.34"]

    backend = GuardedBackend(Guard(host="api.example"), resolver=resolver)
    with pytest.raises(httpcore2.ConnectTimeout):
        await backend.connect_tcp("api.example", 80, timeout=5)


async def test_an_unknown_name_and_an_empty_answer_are_connect_errors():
    async def unknown(_host, _port):
        await trio.lowlevel.checkpoint()
        raise OSError(-2, "Name or service not known")

    for resolver in (unknown, answers()):
        backend = GuardedBackend(Guard(host="api.example"), Recorder(), resolver)
        with pytest.raises(httpcore2.ConnectError):
            await backend.connect_tcp("api.example", 443)


async def test_local_sockets_are_refused():
    backend = GuardedBackend(Guard(host="api.example"), Recorder())
    with pytest.raises(BlockedAddressError):
        await backend.connect_unix_socket("/var/run/docker.sock")


class Stuck(httpcore2.AsyncMockStream):
    """Closes only when cancelled, and its handshake never ends."""

    closes = 0

    async def aclose(self):
        type(self).closes += 1
        await trio.sleep_forever()

    async def start_tls(self, ssl_context, server_hostname=None, timeout=None):  # noqa: ASYNC109
        await trio.sleep_forever()


async def test_closing_takes_a_bounded_time_even_under_a_shield(autojump_clock):
    start = trio.current_time()
    with trio.CancelScope(shield=True):
        await BoundedStream(Stuck([])).aclose()
    assert trio.current_time() - start == pytest.approx(1)


async def test_a_cancelled_handshake_closes_the_socket(autojump_clock):
    Stuck.closes = 0
    with trio.move_on_after(1):
        await BoundedStream(Stuck([])).start_tls(None)
    assert Stuck.closes == 1
