"""The receiver of people who come back: who is let in, and when it is over."""

import sys
import webbrowser

import pytest
import trio
import trio.testing

from mcp_trio.auth import LoopbackRedirect, Redirect
from mcp_trio.auth.callback import open_browser
from mcp_trio.errors import TransportError, UnauthorizedError

QUESTION = "https://as.example/authorize?state=st4te&client_id=c"


async def get(uri, target=None, host=None, method="GET"):
    """Ask like a browser; the status."""
    authority, _, path = uri.removeprefix("http://").partition("/")
    name, _, port = authority.partition(":")
    async with await trio.open_tcp_stream(name, int(port)) as stream:
        line = f"{method} {target or '/' + path} HTTP/1.1\r\nhost: {host or authority}\r\n\r\n"
        await stream.send_all(line.encode())
        answer = b"".join([chunk async for chunk in stream])
    return int(answer.split()[1]) if answer else None


async def test_somebody_comes_back_and_everybody_else_is_turned_away():
    statuses = []
    changes = (
        {"target": "/callback"},
        {"target": "/callback?state=other&code=evil"},
        {"target": "/other?state=st4te&code=evil"},
        {"target": "/callback?state=st4te&code=evil", "host": "evil.example"},
        {"target": "/callback?state=st4te&code=evil", "method": "POST"},
        {"target": "/callback?state=st4te&code=good&iss=x"},
    )

    async def browse(url):
        assert url == QUESTION
        statuses.extend([await get(receiver.uri, **change) for change in changes])

    async with LoopbackRedirect(open_page=browse).receiving() as receiver:
        assert receiver.uri.startswith("http://127.0.0.1:")
        with trio.fail_after(10):
            back = await receiver.visit(QUESTION)
    assert back == f"{receiver.uri}?state=st4te&code=good&iss=x"
    assert statuses[:5] == [404] * 5
    with pytest.raises(OSError, match=r".*"):
        await get(receiver.uri)


@pytest.mark.parametrize(
    "noise", [b"", b"rubbish\r\n\r\n", b"GET / HTTP/1.1\r\nhost: x", b"\x16\x03"]
)
async def test_noise_on_the_port_ends_nothing(noise):
    async def browse(url):
        port = int(receiver.uri.rpartition(":")[2].partition("/")[0])
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        if noise:
            await stream.send_all(noise)
        await stream.aclose()
        await get(receiver.uri, "/callback?state=st4te&code=good")

    async with LoopbackRedirect(open_page=browse).receiving() as receiver:
        with trio.fail_after(10):
            assert (await receiver.visit(QUESTION)).endswith("code=good")


async def test_nobody_is_waited_for_for_ever(autojump_clock):
    async def browse(url):
        await trio.lowlevel.checkpoint()

    async with LoopbackRedirect(open_page=browse, timeout=300).receiving() as receiver:
        with pytest.raises(UnauthorizedError, match="nobody came back within 300 s"):
            await receiver.visit(QUESTION)


async def test_a_port_that_is_taken_is_said_so():
    async def browse(url):
        await trio.lowlevel.checkpoint()

    async with LoopbackRedirect(open_page=browse).receiving() as receiver:
        port = int(receiver.uri.rpartition(":")[2].partition("/")[0])
        with pytest.raises(TransportError, match=str(port)):
            async with LoopbackRedirect(port=port).receiving():
                pass


async def test_a_place_of_the_programs_own_is_asked():
    async def send(url):
        await trio.lowlevel.checkpoint()
        return f"came from {url}"

    async with Redirect("https://app.example/back", send).receiving() as receiver:
        assert receiver.uri == "https://app.example/back"
        assert await receiver.visit("u") == "came from u"


async def test_only_pages_are_opened(monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    await open_browser(QUESTION)
    assert opened == [QUESTION]
    assert QUESTION in capsys.readouterr().err
    for url in ("file:///etc/passwd", "javascript:alert(1)", "ms-settings:x"):
        with pytest.raises(UnauthorizedError):
            await open_browser(url)
    assert opened == [QUESTION]
    assert sys.stderr
