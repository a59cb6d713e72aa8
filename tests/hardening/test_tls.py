"""TLS: handshakes given up by the thousand, other protocols on the port, files that break."""

import contextlib
import functools
import os
import random
import signal
import ssl

import pytest
import trio
import trustme

from tests.hardening.attackers import call, connect, each, post, read_answer, reset
from tests.hardening.target import Target, back_to_baseline, descriptors, size, until

AUTHORITY, STRANGER = trustme.CA(), trustme.CA()
TLS = """
[tls]
cert_file = "cert.pem"
key_file = "key.pem"
client_ca_file = "ca.pem"
client_certificates = "optional"
reload_interval = 0.2
"""


def write_pair(folder):
    """A new certificate with its key."""
    made = AUTHORITY.issue_cert("127.0.0.1")
    for name, content in (
        ("key.pem", made.private_key_pem.bytes()),
        ("cert.pem", b"".join(pem.bytes() for pem in made.cert_chain_pems)),
    ):
        new = folder / f"{name}.new"
        new.write_bytes(content)
        new.chmod(0o600)
        new.replace(folder / name)


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    descriptors(4000)
    folder = tmp_path_factory.mktemp("secured")
    write_pair(folder)
    AUTHORITY.cert_pem.write_to_path(folder / "ca.pem")
    target = Target(folder, more=TLS)
    target.folder = folder
    trio.run(functools.partial(is_served_over_tls, target))
    yield target
    target.close()


@pytest.fixture
def target(secured):
    del secured.lines[:]
    yield secured
    assert secured.process.poll() is None
    assert "Traceback" not in "".join(secured.lines)


@functools.cache  # it takes longer than a handshake
def client_context(cert=None):
    made = ssl.create_default_context()
    AUTHORITY.configure_trust(made)
    if cert is not None:
        cert.configure_cert(made)
    return made


@contextlib.asynccontextmanager
async def secure(target, cert):
    """A connection after its handshake; closed without a word."""
    plain = await connect(target)
    try:
        stream = trio.SSLStream(plain, client_context(cert), server_hostname="127.0.0.1")
        await stream.do_handshake()
        yield stream
    finally:
        plain.socket.close()


async def is_served_over_tls(target, cert=None, within=10):
    with trio.fail_after(within):
        async with secure(target, cert) as stream:
            await stream.send_all(post(call("hello")))
            status, _, body = await read_answer(stream)
    assert (status, b"hello" in body) == (200, True)


def greeting():
    """What a client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    made = client_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        made.do_handshake()
    return outgoing.read()


async def test_handshakes_given_up_by_the_thousand_leave_nothing(target):
    """At any byte, with other bytes, after the answer, with no word or a reset."""
    hello = greeting()
    before = target.footprint()

    async def one(index):
        stream = await connect(target)
        with contextlib.suppress(trio.BrokenResourceError):
            match index % 6:
                case 0:
                    await stream.send_all(hello[: index % len(hello)])
                case 1:
                    await stream.send_all(random.randbytes(200))
                case 2:
                    await stream.send_all(post(call("hello")))
                    await stream.receive_some()
                case 3:
                    await stream.send_all(hello)
                    await stream.receive_some()
                case 4:
                    at = index % len(hello)
                    await stream.send_all(hello[:at] + b"\xff" + hello[at + 1 :])
                    await stream.receive_some()
                case _:
                    await stream.send_all(hello + hello)
                    await stream.receive_some()
        if index % 2:
            reset(stream)
        else:
            stream.socket.close()

    await each(range(size(600, 20_000)), one, at_once=100)
    await is_served_over_tls(target)
    await back_to_baseline(target, before)


async def test_a_handshake_with_a_certificate_of_others_gets_nothing(target):
    stranger = STRANGER.issue_cert("robot.example")

    async def one(_index):
        with pytest.raises(trio.BrokenResourceError):
            await is_served_over_tls(target, stranger)

    await each(range(size(50, 1000)), one, at_once=20)
    await is_served_over_tls(target, AUTHORITY.issue_cert("robot.example"))


async def test_whatever_becomes_of_its_files_handshakes_go_on(target):
    """Broken, torn, gone, of others, of another format: the last good ones stay."""
    folder = target.folder
    cert, authority = (folder / "cert.pem"), (folder / "ca.pem")
    der = ssl.PEM_cert_to_DER_cert(authority.read_text())
    misspelled = ssl.DER_cert_to_PEM_cert(der.replace(b"trustme", b"\xff" * 7)).encode()
    numbered = ssl.DER_cert_to_PEM_cert(der.replace(b"\2\1\2", b"\2\1\7", 1)).encode()
    whole = authority.read_bytes()
    served = 0

    async def ask():
        nonlocal served
        while True:
            await is_served_over_tls(target)
            served += 1

    async def spoil(path, content):
        good = path.read_bytes()
        said = len(target.lines)
        path.write_bytes(content)
        target.process.send_signal(signal.SIGHUP)
        await until(lambda: any("in use stays" in line for line in target.lines[said:]))
        path.write_bytes(good)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(ask)
        for _ in range(size(1, 20)):
            for content in (b"", whole[: len(whole) // 2], misspelled, numbered, os.urandom(9999)):
                await spoil(authority, content)
                await spoil(cert, content)
            await spoil(cert, whole)
            said = len(target.lines)
            write_pair(folder)
            await until(lambda at=said: "certificate loaded" in "".join(target.lines[at:]))
        nursery.cancel_scope.cancel()
    assert served > 10
    await is_served_over_tls(target, AUTHORITY.issue_cert("robot.example"))
