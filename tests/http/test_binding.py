"""Where a service listens: Unix sockets, and sockets that the service manager has opened."""

import fcntl
import os
import socket
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio

from mcp_trio import ConfigurationError, MCPServer, ServingSettings
from mcp_trio.http.binding import inherited_listeners
from mcp_trio.http.serving import HTTPService
from mcp_trio.transports import socket_file
from mcp_trio.transports.socket_file import SocketFile

from .serving_tools import answer, read_until

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: 203.0.113.9\r\n\r\n"


@asynccontextmanager
async def serving(path: Path, **more: object) -> AsyncIterator[str]:
    server = MCPServer("local")
    async with trio.open_nursery() as nursery:

        async def serve(task_status: trio.TaskStatus[list[str]]) -> None:
            await server.serve_http(unix_socket=path, task_status=task_status, **more)

        (url,) = await nursery.start(serve)
        yield url
        server.drain()


async def healthy(path: Path) -> bool:
    async with await trio.open_unix_socket(str(path)) as stream:
        await stream.send_all(HEALTH)
        return (await read_until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_a_unix_socket_is_served_to_its_owner_and_removed_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "mcp.sock"
    async with serving(path) as url:
        assert url == "http+unix://" + str(path).replace("/", "%2F") + "/mcp"
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        assert await healthy(path)
    assert not path.exists()


async def test_others_may_use_a_unix_socket_where_its_mode_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path / "mcp.sock", unix_mode=0o660):
        assert stat.S_IMODE((tmp_path / "mcp.sock").lstat().st_mode) == 0o660


async def test_a_socket_that_nobody_serves_is_replaced_and_one_in_use_is_an_error(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mcp.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    async with serving(path):
        with pytest.raises(OSError, match=r"cannot listen on .*: somebody serves"):
            await MCPServer("second").serve_http(unix_socket=path)
        assert await healthy(path)


@pytest.mark.parametrize("target", ["mcp.sock", "nothing"])
async def test_a_symbolic_link_is_not_followed(tmp_path: Path, target: str) -> None:
    path, link = tmp_path / "mcp.sock", tmp_path / "link.sock"
    link.symlink_to(tmp_path / target)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with pytest.raises(OSError, match="no socket"):
        await MCPServer("local").serve_http(unix_socket=link)
    assert link.is_symlink()
    assert path.exists()
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("trusted", [True, False])
async def test_whoever_connects_over_a_unix_socket_is_a_proxy_only_if_that_is_said(
    tmp_path: Path, trusted: bool
) -> None:
    clients: list[object] = []

    async def app(scope, receive, send) -> None:
        clients.append(scope["client"])
        await answer(send, b"hello")

    settings = ServingSettings(trusted_proxies=("unix",) if trusted else ())
    path = tmp_path / "mcp.sock"
    with SocketFile(path, 0o600, 10) as file:
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(file.socket))
        async with trio.open_nursery() as nursery:
            await nursery.start(HTTPService(app, settings=settings).run_listeners, [listener])
            assert await healthy(path)
            nursery.cancel_scope.cancel()
    assert clients == [("203.0.113.9", 0) if trusted else None]


# Starting side by side.


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_who_starts_while_another_binds_in_the_same_folder_waits_for_him(tmp_path: Path) -> None:
    with locked(tmp_path) as descriptor:
        ending = threading.Timer(0.05, fcntl.flock, (descriptor, fcntl.LOCK_UN))
        ending.start()
        with SocketFile(tmp_path / "mcp.sock", 0o600, 10) as file:
            assert Path(file.path).is_socket()
        ending.join()


def test_who_keeps_a_folder_locked_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_file, "PATIENCE", 0.02)
    with locked(tmp_path), pytest.raises(OSError, match="another server is starting"):
        SocketFile(tmp_path / "mcp.sock", 0o600, 10)
    assert list(tmp_path.iterdir()) == []


# Inherited sockets.

HANDED_OVER = """
import os, socket, trio, mcp_trio
made = socket.create_server(("127.0.0.1", 0))
port = made.getsockname()[1]
os.dup2(made.fileno(), 3)
made.detach()
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES="mcp")
server = mcp_trio.MCPServer("handed")

async def serve(task_status):
    await server.serve_http(inherited=True, task_status=task_status)

async def main():
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(serve)
        assert url == f"http://127.0.0.1:{port}/mcp", url
        assert not any(name.startswith("LISTEN_") for name in os.environ)
        assert not os.get_inheritable(3)
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"GET /healthz HTTP/1.1\\r\\nhost: localhost\\r\\n\\r\\n")
            print((await stream.receive_some()).decode().partition("\\r\\n")[0])
        server.drain()

trio.run(main)
"""


def test_a_socket_that_the_service_manager_has_opened_is_served() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(HANDED_OVER)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("HTTP/1.1 200")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_FDS": "1", "LISTEN_PID": "1"},
        {"LISTEN_FDS": "0", "LISTEN_PID": str(os.getpid())},
        {"LISTEN_FDS": "x", "LISTEN_PID": str(os.getpid())},
        {"LISTEN_FDS": "99999", "LISTEN_PID": str(os.getpid())},
    ],
)
def test_without_a_socket_for_this_process_it_says_so(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="LISTEN_FDS"):
        inherited_listeners(environment)
    assert environment == {}
