"""TLS of a service: what a handshake needs, what the application is told, certificates renewed."""

import logging
import ssl
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme

from mcp_trio import ConfigurationError, HTTPOptions, MCPServer, TLSOptions
from mcp_trio.http.asgi_call import Receive, Scope, Send
from mcp_trio.http.serving import HTTPService, ServingSettings
from mcp_trio.http.tls import Certificates

from .serving_tools import GET, H2Client, MemoryListener, answer, hello, read_until

AUTHORITY, STRANGER = trustme.CA(), trustme.CA()


def write_pair(folder: Path, cert: trustme.LeafCert) -> None:
    cert.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    cert.private_key_pem.write_to_path(folder / "key.pem")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_pair(tmp_path, AUTHORITY.issue_cert("mcp.example"))
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path


def options(folder: Path, **more: object) -> TLSOptions:
    return TLSOptions(cert_file=folder / "cert.pem", key_file=folder / "key.pem", **more)


def demanding(folder: Path, how: str) -> TLSOptions:
    return options(folder, client_ca_file=folder / "ca.pem", client_certificates=how)


class World:
    def __init__(self, service: HTTPService, listener: MemoryListener) -> None:
        self.service = service
        self.listener = listener

    async def connect(
        self,
        cert: trustme.LeafCert | None = None,
        *protocols: str,
        resuming: trio.SSLStream | None = None,
        **limits: object,
    ) -> trio.SSLStream:
        """A connection; with `resuming` in the session of an earlier one."""
        context = ssl.create_default_context()
        AUTHORITY.configure_trust(context)
        context.set_alpn_protocols([*protocols])
        for name, value in limits.items():
            setattr(context, name, value)
        if cert is not None:
            cert.configure_cert(context)
        if resuming is not None:
            context = resuming.context
        stream = trio.SSLStream(
            await self.listener.connect(),
            context,
            server_hostname="mcp.example",
            https_compatible=True,
        )
        if resuming is not None:
            stream._ssl_object.session = resuming.session
        await stream.do_handshake()
        return stream

    async def ask(self, cert: trustme.LeafCert | None = None) -> bytes:
        """Get the answer to one request on a connection of its own; what is left of it ends."""
        stream = await self.connect(cert)
        await stream.send_all(GET)
        return await read_until(stream, b"\r\n\r\n")

    async def serial(self) -> int:
        """Which certificate a new connection is shown."""
        stream = await self.connect()
        return int(stream.getpeercert()["serialNumber"], 16)


@asynccontextmanager
async def secured(app: object, tls: TLSOptions, **limits: float) -> AsyncIterator[World]:
    service = HTTPService(app, settings=ServingSettings(**limits), tls=tls)
    listener = MemoryListener()
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run_listeners, [listener])
        yield World(service, listener)
        nursery.cancel_scope.cancel()
    assert service.statistics().connections == 0


class Told:
    """An application that keeps its scope."""

    scope: Scope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        await answer(send, b"hello")

    @property
    def tls(self) -> dict[str, object]:
        return self.scope["extensions"]["tls"]


async def test_the_application_is_told_how_the_connection_is_secured(folder: Path) -> None:
    app = Told()
    async with secured(app, options(folder)) as world:
        await world.ask()
        assert app.scope["scheme"] == "https"
        assert app.tls["tls_version"] == 0x0304
        assert app.tls["cipher_suite"] in {0x1301, 0x1302, 0x1303}
        assert app.tls["client_cert_name"] is None
        assert list(app.tls["client_cert_chain"]) == []


async def test_without_tls_there_is_no_extension() -> None:
    app = Told()
    service, listener = HTTPService(app), MemoryListener()
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run_listeners, [listener])
        stream = await listener.connect()
        await stream.send_all(GET)
        await read_until(stream, b"hello")
        nursery.cancel_scope.cancel()
    assert "tls" not in app.scope["extensions"]
    assert app.scope["scheme"] == "http"


async def test_both_http_versions_are_offered_and_http2_is_preferred(folder: Path) -> None:
    async with secured(hello, options(folder)) as world:
        stream = await world.connect(None, "http/1.1", "h2")
        assert stream.selected_alpn_protocol() == "h2"
        client = H2Client(stream)
        assert await client.read(await client.ask()) == ("200", b"hello")
        assert (await world.connect(None, "http/1.1")).selected_alpn_protocol() == "http/1.1"


async def test_tls_1_2_is_spoken_with_forward_secrecy_and_nothing_older(folder: Path) -> None:
    app = Told()
    async with secured(app, options(folder)) as world:
        stream = await world.connect(maximum_version=ssl.TLSVersion.TLSv1_2)
        await stream.send_all(GET)
        await read_until(stream, b"hello")
        assert app.tls["tls_version"] == 0x0303
        name, _, _ = stream.cipher()
        assert name.startswith("ECDHE-")
        assert "GCM" in name or "CHACHA20" in name
        assert stream.compression() is None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.minimum_version = ssl.TLSVersion.TLSv1
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        stale = trio.SSLStream(
            await world.listener.connect(), old, server_hostname="x", https_compatible=True
        )
        with pytest.raises(trio.BrokenResourceError):
            await stale.do_handshake()


# Certificates of clients.


async def test_a_client_with_a_certificate_is_named(folder: Path) -> None:
    app = Told()
    cert = AUTHORITY.issue_cert("robot.example", common_name="robot", organization_name="Works")
    async with secured(app, demanding(folder, "required")) as world:
        assert b" 200 " in await world.ask(cert)
        name = app.tls["client_cert_name"]
        assert "CN=robot" in name
        assert "O=Works" in name
        assert list(app.tls["client_cert_chain"]) == [
            ssl.DER_cert_to_PEM_cert(
                ssl.PEM_cert_to_DER_cert(cert.cert_chain_pems[0].bytes().decode())
            )
        ]


@pytest.mark.parametrize("cert", [None, STRANGER.issue_cert("robot.example")])
async def test_a_client_without_a_certificate_that_counts_is_refused(
    folder: Path, cert: trustme.LeafCert | None
) -> None:
    called = False

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal called
        called = True

    async with secured(app, demanding(folder, "required")) as world:
        with pytest.raises(trio.BrokenResourceError):
            await world.ask(cert)
    assert not called


async def test_a_certificate_that_is_optional_may_be_missing_and_not_false(folder: Path) -> None:
    app = Told()
    async with secured(app, demanding(folder, "optional")) as world:
        assert b" 200 " in await world.ask()
        assert app.tls["client_cert_name"] is None
        await world.ask(AUTHORITY.issue_cert("robot.example", common_name="robot"))
        assert "CN=robot" in app.tls["client_cert_name"]
        with pytest.raises(trio.BrokenResourceError):
            await world.ask(STRANGER.issue_cert("robot.example"))


async def turned_away(stream: trio.SSLStream) -> bool:
    """Whether a connection is closed without an answer."""
    try:
        await stream.send_all(GET)
        return await stream.receive_some() == b""
    except trio.BrokenResourceError:
        return True


async def test_no_session_outlives_the_certificate_that_it_began_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL looks at it in a full handshake, and not when a session is resumed."""
    cert = AUTHORITY.issue_cert("robot.example")
    async with secured(hello, demanding(folder, "required")) as world:
        new = await world.connect(cert)
        await new.send_all(GET)
        assert await read_until(new, b"hello")
        again = await world.connect(cert, resuming=new)
        assert not again.session_reused

        old = await world.connect(cert, maximum_version=ssl.TLSVersion.TLSv1_2)
        again = await world.connect(cert, resuming=old)
        assert again.session_reused
        await again.send_all(GET)
        assert await read_until(again, b"hello")
        end = datetime.now(UTC) + timedelta(days=365 * 1000)
        monkeypatch.setattr("mcp_trio.http.tls._now", lambda: end)
        late = await world.connect(cert, resuming=old)
        assert late.session_reused
        assert await turned_away(late)


async def test_sessions_are_resumed_where_nobody_shows_a_certificate(folder: Path) -> None:
    async with secured(hello, options(folder)) as world:
        first = await world.connect()
        await first.send_all(GET)
        assert await read_until(first, b"hello")
        assert (await world.connect(resuming=first)).session_reused


async def test_a_certificate_that_nobody_can_read_is_closed_and_no_fault_of_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cert = AUTHORITY.issue_cert("robot.example")
    pem = misspelled(cert.cert_chain_pems[0].bytes()).decode()
    signed = ssl.PEM_cert_to_DER_cert(pem)
    # As if our authority had signed that.
    monkeypatch.setattr(ssl.SSLObject, "getpeercert", lambda *_, **__: signed)
    async with secured(hello, demanding(folder, "required")) as world:
        assert await turned_away(await world.connect(cert))
    assert caplog.records == []


# New certificates.


async def test_a_changed_certificate_is_found_in_time_and_old_connections_go_on(
    folder: Path, autojump_clock: trio.testing.MockClock
) -> None:
    tls = options(folder, reload_interval=10)
    async with secured(hello, tls, header_timeout=60) as world:
        before = await world.serial()
        old = await world.connect()
        write_pair(folder, AUTHORITY.issue_cert("mcp.example"))
        assert await world.serial() == before
        await trio.sleep(11)
        assert await world.serial() != before
        await old.send_all(GET)
        assert await read_until(old, b"hello")


async def test_a_changed_certificate_is_taken_at_once_where_that_is_asked_for(
    folder: Path,
) -> None:
    async with secured(hello, options(folder)) as world:
        before = await world.serial()
        write_pair(folder, AUTHORITY.issue_cert("mcp.example"))
        assert world.service.reload_certificates()
        assert await world.serial() != before


async def test_a_broken_pair_is_told_once_and_the_one_in_use_stays(
    folder: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    cert = AUTHORITY.issue_cert("mcp.example")
    async with secured(hello, options(folder, reload_interval=10)) as world:
        before = await world.serial()
        cert.cert_chain_pems[0].write_to_path(folder / "cert.pem")  # half of a new pair
        assert not world.service.reload_certificates()
        await trio.sleep(35)
        assert await world.serial() == before
        faults = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert len(faults) == 1
        assert "key.pem is not the key of" in faults[0].getMessage()
        cert.private_key_pem.write_to_path(folder / "key.pem")
        await trio.sleep(11)
        assert await world.serial() != before
        (folder / "key.pem").unlink()
        await trio.sleep(11)
        assert (await world.ask()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("days", "said"), [(-1, "cert.pem expired on"), (1, "cert.pem is not valid before")]
)
async def test_a_new_certificate_that_is_not_good_now_is_not_taken(
    folder: Path, caplog: pytest.LogCaptureFixture, days: int, said: str
) -> None:
    now = datetime.now(UTC)
    begin, end = sorted((now + timedelta(days=days), now + timedelta(days=days * 9)))
    async with secured(hello, options(folder)) as world:
        before = await world.serial()
        write_pair(folder, AUTHORITY.issue_cert("mcp.example", not_before=begin, not_after=end))
        assert not world.service.reload_certificates()
        assert await world.serial() == before
    assert said in caplog.text


async def test_with_a_certificate_that_has_run_out_authorities_are_still_kept_up_to_date(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    over = datetime.now(UTC) - timedelta(days=1)
    write_pair(folder, AUTHORITY.issue_cert("mcp.example", not_after=over))
    certificates = Certificates(demanding(folder, "required"))
    STRANGER.cert_pem.write_to_path(folder / "ca.pem")
    assert certificates.reload()
    (authority,) = certificates.context.get_ca_certs(binary_form=True)
    assert authority == ssl.PEM_cert_to_DER_cert(STRANGER.cert_pem.bytes().decode())
    assert "which expired on" in caplog.text


def ending(folder: Path, days: float) -> datetime:
    """Put a certificate there that ends so soon."""
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
    write_pair(folder, AUTHORITY.issue_cert("mcp.example", not_after=end))
    return end


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


async def test_a_certificate_that_ends_soon_is_warned_of_at_the_start_and_each_day(
    folder: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    end = ending(folder, 13.9)
    async with secured(hello, options(folder, reload_interval=3600)):
        await trio.sleep(1)
        (told,) = warnings_in(caplog)
        assert "the certificate in use" in told
        assert f"cert.pem, expires on {end:%Y-%m-%d}" in told
        await trio.sleep(2.5 * 86400)
        assert warnings_in(caplog) == [told] * 3


async def test_a_certificate_that_is_long_good_is_not_warned_of_and_a_new_one_is_judged_at_once(
    folder: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    ending(folder, 14.1)
    async with secured(hello, options(folder, reload_interval=1e6)) as world:
        await trio.sleep(1)
        assert warnings_in(caplog) == []
        end = ending(folder, 3)
        assert world.service.reload_certificates()
        (told,) = warnings_in(caplog)
        assert told.startswith("certificate loaded from ")
        assert told.endswith(f"which expires on {end:%Y-%m-%d}")


async def test_the_end_of_the_certificate_in_use_is_told(folder: Path) -> None:
    end = ending(folder, 100)
    async with secured(hello, options(folder)) as world:
        assert world.service.statistics().certificate_expires == end.timestamp()
        later = ending(folder, 200)
        assert world.service.statistics().certificate_expires == end.timestamp()
        assert world.service.reload_certificates()
        assert world.service.statistics().certificate_expires == later.timestamp()
    assert HTTPService(hello).statistics().certificate_expires is None


async def test_an_authority_that_is_taken_off_counts_no_more(folder: Path) -> None:
    cert = AUTHORITY.issue_cert("robot.example")
    async with secured(hello, demanding(folder, "required")) as world:
        assert b" 200 " in await world.ask(cert)
        STRANGER.cert_pem.write_to_path(folder / "ca.pem")
        assert world.service.reload_certificates()
        with pytest.raises(trio.BrokenResourceError):
            await world.ask(cert)


# Faults.


def of_another_version(pem: bytes) -> bytes:
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    return ssl.DER_cert_to_PEM_cert(der.replace(b"\xa0\3\2\1\2", b"\xa0\3\2\1\3", 1)).encode()


def misspelled(pem: bytes) -> bytes:
    """One whose names are no UTF-8; its outer form is well."""
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    assert b"trustme" in der
    return ssl.DER_cert_to_PEM_cert(der.replace(b"trustme", b"\xff" * 7)).encode()


@pytest.mark.parametrize("name", ["cert.pem", "ca.pem"])
@pytest.mark.parametrize("spoil", [of_another_version, misspelled, lambda pem: pem[:200]])
async def test_a_file_that_breaks_while_it_is_watched_ends_nothing(
    folder: Path, autojump_clock: trio.testing.MockClock, name: str, spoil: Callable[[bytes], bytes]
) -> None:
    async with secured(hello, demanding(folder, "optional")) as world:
        before = await world.serial()
        good = (folder / name).read_bytes()
        (folder / name).write_bytes(spoil(good))
        await trio.sleep(25)
        assert not world.service.reload_certificates()
        assert await world.serial() == before
        (folder / name).write_bytes(good)
        assert world.service.reload_certificates()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("cert.pem", None, "cannot read .*cert.pem: No such file"),
        ("key.pem", None, "cannot read .*key.pem: No such file"),
        ("ca.pem", None, "cannot read .*ca.pem: No such file"),
        ("cert.pem", b"rubbish", "cert.pem holds no certificates"),
        ("key.pem", b"rubbish", "key.pem holds no private key"),
        ("ca.pem", b"rubbish", "ca.pem holds no certificates"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    folder: Path, name: str, content: bytes | None, says: str
) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match=says):
        HTTPService(hello, tls=demanding(folder, "optional"))


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(folder: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key((folder / "key.pem").read_bytes(), None)
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigurationError, match=r"key\.pem is encrypted"):
        HTTPService(hello, tls=options(folder))


@pytest.mark.parametrize(
    "more",
    [
        {"client_certificates": "required"},
        {"client_ca_file": "ca.pem"},
        {"client_ca_file": "ca.pem", "client_certificates": "maybe"},
        {"reload_interval": 0},
    ],
)
def test_options_that_cannot_be_meant_are_refused(more: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        TLSOptions(cert_file="cert.pem", key_file="key.pem", **more)


# The server.


async def test_a_server_speaks_tls_and_renews_its_certificates_when_told(folder: Path) -> None:
    server = MCPServer("secure")
    async with trio.open_nursery() as nursery:

        async def serve(task_status: trio.TaskStatus[list[str]]) -> None:
            tls, allowed = options(folder), HTTPOptions(allowed_hosts=frozenset({"mcp.example"}))
            await server.serve_http(
                "127.0.0.1", 0, tls=tls, options=allowed, task_status=task_status
            )

        (url,) = await nursery.start(serve)
        assert url.startswith("https://127.0.0.1:")
        assert server.reload_certificates()
        (folder / "cert.pem").write_bytes(b"rubbish")
        assert not server.reload_certificates()
        server.drain()
    assert server.reload_certificates()
