"""Why a handshake failed is told, and nothing is made up where there was none."""

import ssl
from functools import partial

import pytest
import trio
import trustme

from mcp_trio import MCPClient
from mcp_trio.errors import TransportError
from mcp_trio.transports.handshakes import handshake_reason


async def serve_tls(authority, task_status=trio.TASK_STATUS_IGNORED):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def answer(stream):
        async with stream:
            with trio.move_on_after(5):
                try:
                    await stream.do_handshake()
                    await stream.receive_some()
                    await stream.send_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                except trio.BrokenResourceError:
                    pass

    serve = partial(trio.serve_ssl_over_tcp, answer, 0, context, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(serve)
        task_status.started(listener.transport_listener.socket.getsockname()[1])


@pytest.mark.parametrize("scheme", ["https", "wss"])
async def test_an_authority_that_is_not_trusted_is_told_and_can_be_named(
    scheme, tmp_path, monkeypatch
):
    authority = trustme.CA()
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(file)

    async def trouble(port):
        with pytest.raises(TransportError) as caught:
            async with MCPClient(f"{scheme}://127.0.0.1:{port}/mcp"):
                pass
        return str(caught.value)

    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve_tls, authority)
        assert "its certificate is not trusted: unable to get" in await trouble(port)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        assert "trusted" not in await trouble(port)
        nursery.cancel_scope.cancel()


def test_what_is_no_handshake_has_no_reason():
    assert handshake_reason(OSError("no")) is None
    loop = ValueError("a")
    loop.__cause__ = KeyError("b")
    loop.__cause__.__cause__ = loop
    assert handshake_reason(loop) is None
