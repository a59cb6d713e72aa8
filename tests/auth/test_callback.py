"""The receiver of people who come back: who is let in, and when it is over."""

import contextlib
import sys
import threading
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
        for change in changes:
            statuses.append(await get(receiver.uri, **change))  # noqa: PERF401 - it ends on the way

    async with LoopbackRedirect(open_page=browse).receiving() as receiver:
        assert receiver.uri.startswith("http://127.0.0.1:")
        with trio.fail_after(10):
            back = await receiver.visit(QUESTION)
    assert back == f"{receiver.uri}?state=st4te&code=good&iss=x"
    assert statuses[:5] == [404] * 5
    with pytest.raises(OSError, match=r".*"):
        await get(receiver.uri)


@pytest.mark.parametrize(
    "noise",
    [
        b"",
        b"rubbish\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x",
        b"\x16\x03",
        b"GET //[ HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET http://[x HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /callback?state=%ff%fe HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /callback?" + b"a=1&" * 9000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
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


async def test_a_browser_that_runs_until_it_is_closed_holds_up_nobody():
    closed = trio.Event()

    async def browse(url):
        try:
            await get(receiver.uri, "/callback?state=st4te&code=good")
            await trio.sleep_forever()
        finally:
            closed.set()

    async with LoopbackRedirect(open_page=browse).receiving() as receiver:
        with trio.fail_after(10):
            assert (await receiver.visit(QUESTION)).endswith("code=good")
    assert closed.is_set()


async def test_a_browser_in_the_foreground_can_be_left():
    began, end = threading.Event(), threading.Event()

    def browse(url):
        began.set()
        end.wait(30)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(webbrowser, "open", browse)
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(open_browser, QUESTION)
                await trio.to_thread.run_sync(began.wait, 10)
                nursery.cancel_scope.cancel()
    end.set()


async def test_a_page_that_cannot_be_opened_is_a_plain_error():
    async def browse(url):
        await trio.lowlevel.checkpoint()
        raise UnauthorizedError("no browser")

    async with LoopbackRedirect(open_page=browse).receiving() as receiver:
        with pytest.raises(UnauthorizedError, match="no browser"):
            await receiver.visit(QUESTION)


async def test_many_who_say_nothing_keep_nobody_out():
    async def browse(url):
        port = int(receiver.uri.rpartition(":")[2].partition("/")[0])
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(50):
                await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
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
