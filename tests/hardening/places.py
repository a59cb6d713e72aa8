"""The places that the soak asks, each one process or more, and the doors by which they are reached.

A door gives a client of ours; what speaks in bytes connects to the place itself.
"""

import contextlib
import functools
import os
import re
import signal
import ssl
import subprocess
import sys
from collections import Counter
from pathlib import Path

import attrs
import httpx2
import trio
import trustme
from prometheus_client.parser import text_string_to_metric_families

from mcp_trio import ClientOptions, Command, MCPClient
from mcp_trio.transports.lines import LineTransport
from mcp_trio.transports.websocket import WebSocketTransport
from mcp_trio.wire import REVISIONS
from tests.cli.test_serve import PATIENCE
from tests.hardening.attackers import connect
from tests.hardening.ledger import AUDIT_KEY, Books, read_lines
from tests.hardening.target import HELLO, Target, back_to_baseline, document, operation, until

LIBRARY = Path(__file__).with_name("library.py")
MARKED = {"type": "object", "properties": {"mark": {"type": "string"}}, "required": ["mark"]}
ASKED = {"input_schema": MARKED, "input_mapping": {"query": {"mark": "=args.mark"}}}
OPERATIONS = [
    HELLO,
    *(operation(name, f"/{name}", **ASKED) for name in ("slow", "bulk", "half", "junk", "late")),
    operation("keep", "/keep", "POST", input_schema=MARKED, input_mapping={"body": "=args"}),
    operation(
        "told",
        "/told",
        **{**ASKED, "execution_config": {"stream_progress": True}},
    ),
]
TOOLS = tuple(view["name"] for view in OPERATIONS)
TIMES = """
header_timeout = 20.0
body_timeout = 20.0
write_timeout = 4.0
"""
"""Patient ones: a machine that has too much to do is no fault of the callers."""
LOGS = """
[audit]
file = "audit.log"
key = "file:audit.key"
[access_log]
file = "access.log"
"""
TLS = """
[tls]
cert_file = "cert.pem"
key_file = "key.pem"
"""
STATELESS, SESSIONS, OLDEST = REVISIONS[:1], REVISIONS[1:4], REVISIONS[4:]


@attrs.frozen(kw_only=True)
class Door:
    """A way to reach a place with a client of ours."""

    way: str
    place: str
    target: object
    """What the client is given; or an async context manager of a transport, made by a call."""
    revisions: tuple = STATELESS + SESSIONS
    http: object = None
    """See `ClientOptions.http`."""
    breakable: bool = False
    """Whether the transport has a `stream` that the soak may reset."""

    @contextlib.asynccontextmanager
    async def client(self, rng):
        """A client, and the stream it goes over if that may be reset."""
        options = ClientOptions(revisions=(rng.choice(self.revisions),), http=self.http)
        if not self.breakable:
            async with MCPClient(self.target, options=options) as client:
                yield client, None
            return
        async with self.target() as (transport, stream):
            async with MCPClient(transport, options=options) as client:
                yield client, stream


def http_client(way, *, uds=None, trust=ssl.create_default_context):
    """What makes HTTP clients that say which way they are."""

    def make(_):
        return httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(
                uds=uds,
                verify=trust(),
                limits=httpx2.Limits(max_connections=None, keepalive_expiry=3.0),
            ),
            timeout=httpx2.Timeout(None, connect=PATIENCE),
            headers={"user-agent": way},
            trust_env=False,
        )

    return make


def over_http(place, url, **how):
    """The doors of one endpoint: both eras, and HTTP+SSE."""
    eras = {"stateless": STATELESS, "sessions": SESSIONS}
    for name, revisions in eras.items():
        way = f"{place} {name}"
        http = http_client(way, **how)
        yield Door(way=way, place=place, target=url, revisions=revisions, http=http)
    way = f"{place} SSE"
    older = url.removesuffix("/mcp") + "/sse"
    http = http_client(way, **how)
    yield Door(way=way, place=place, target=older, revisions=OLDEST, http=http)


def over_socket(place, ledger, open_stream):
    """The door of WebSockets over any stream."""

    @contextlib.asynccontextmanager
    async def opened():
        stream = await open_stream()
        async with stream:
            transport = WebSocketTransport(stream, "localhost", "/mcp")
            ledger.sockets[place] += 1
            await transport.open()
            yield transport, stream

    return Door(way=f"{place} WebSocket", place=place, target=opened, breakable=True)


def over_lines(place, name, open_stream):
    """The door of lines over any stream."""

    @contextlib.asynccontextmanager
    async def opened():
        stream = await open_stream()
        async with stream:
            yield LineTransport(stream, stream), stream

    return Door(way=f"{place} {name}", place=place, target=opened, breakable=True)


def counted(texts, name, *labels, **only):
    """The sum of a metric over some texts, by labels."""
    found = Counter()
    for text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and only.items() <= sample.labels.items():
                    found[tuple(sample.labels[label] for label in labels)] += int(sample.value)
    return +found


def books_of(place, folder, texts, **more):
    """Read what a place has written."""
    calls = {"direction": "inbound", "method": "tools/call"}
    gauges = ("mcp_requests_in_flight", "mcp_requests_waiting", "mcp_listeners", "mcp_sessions")
    return Books(
        place=place,
        audit=read_lines(folder / "audit.log"),
        ended=counted(texts, "mcp_request_total", "status", **calls),
        tools=counted(texts, "mcp_tool_call_total", "tool", "status"),
        open={f"{name} of {place}": counted(texts, name).total() for name in gauges},
        **more,
    )


class ServicePlace:
    """A process of `mcp-trio serve`, or several, that writes all its books."""

    def __init__(self, name, folder, upstream, *, server="", more=""):
        self.name, self._folder = name, folder
        folder.mkdir()
        (folder / "audit.key").write_text(AUDIT_KEY.hex())
        (folder / "audit.key").chmod(0o600)
        (folder / "operations.json").write_text(document(*OPERATIONS))
        self._relays = "workers" in server
        self.speaks = "https" if more else "http"
        self._authority = None
        if more:
            self._authority = trustme.CA()
            pair = self._authority.issue_cert("localhost", "127.0.0.1")
            pair.cert_chain_pems[0].write_to_path(folder / "cert.pem")
            pair.private_key_pem.write_to_path(folder / "key.pem")
            (folder / "key.pem").chmod(0o600)
        self.target = Target(
            folder,
            upstream=upstream.url,
            times=TIMES,
            limits="keep_alive_timeout = 20.0",
            server=server,
            more=LOGS + more,
        )
        self.socket = folder / "mcp.sock" if "unix_socket" in server else None
        self._before = None

    async def connect(self, receives=None):
        """A connection to it."""
        if self.socket is not None:
            return await trio.open_unix_socket(str(self.socket))
        plain = await connect(self.target, receives=receives)
        if self._authority is None:
            return plain
        secure = trio.SSLStream(
            plain, self.trust(), server_hostname="localhost", https_compatible=True
        )
        await secure.do_handshake()
        return secure

    def trust(self):
        """A new context that trusts it: an HTTP client changes what it is given."""
        context = ssl.create_default_context()
        if self._authority is not None:
            self._authority.configure_trust(context)
        return context

    def doors(self, ledger):
        """Every way in."""
        how = {"trust": self.trust}
        url = self.target.url
        if self.socket is not None:
            how["uds"], url = str(self.socket), "http://localhost/mcp"
        yield from over_http(self.name, url, **how)
        yield over_socket(self.name, ledger, self.connect)

    def begin(self):
        """Note what it holds."""
        self._before = self.target.footprint()

    async def end(self):
        """See that nothing has stayed, stop it, and read its books."""
        await back_to_baseline(self.target, self._before, megabytes=60)
        text = self.target.metrics()
        assert self.target.faults() == []
        assert await trio.to_thread.run_sync(self.target.stop, signal.SIGTERM) == 0
        access = read_lines(self._folder / "access.log")
        return books_of(self.name, self._folder, [text], access=access, relays=self._relays)

    async def upset(self, number):
        """Break the registry until that is noticed, and mend it to another one."""
        self.target.publish("{")
        await until(lambda: self.target.page("/catalog")["state"] != "fresh")
        self.target.publish(*OPERATIONS, operation(f"more_{number}"))
        await until(lambda: self.target.page("/catalog")["state"] == "fresh")

    def close(self):
        """End it, however it stands."""
        self.target.close()


class SocketsPlace:
    """A server of the library that speaks in lines, on a Unix socket and on a TCP port."""

    name = "lines"
    speaks = "lines"

    def __init__(self, folder, upstream):
        self._folder = folder
        folder.mkdir()
        arguments = [sys.executable, str(LIBRARY), str(folder), str(upstream.port), "sockets"]
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        urls = r"unix://(\S+) tcp://127.0.0.1:(\d+)\n"
        self._unix, self._port = re.fullmatch(urls, self._process.stdout.readline()).groups()

    async def connect(self, receives=None):
        """A connection to its port."""
        return await trio.open_tcp_stream("127.0.0.1", int(self._port))

    def doors(self, ledger):
        """Both ways in."""
        yield over_lines(self.name, "TCP", self.connect)
        yield over_lines(self.name, "Unix", functools.partial(trio.open_unix_socket, self._unix))

    def begin(self):
        """Nothing: that it ends by itself shows that nothing was left."""

    async def end(self):
        """Let it drain, and read its books."""
        self._process.send_signal(signal.SIGTERM)
        assert await trio.to_thread.run_sync(self._process.wait, PATIENCE) == 0
        return books_of(self.name, self._folder, _texts(self._folder))

    def close(self):
        """End it, however it stands."""
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


class ProgramPlace:
    """Programs of the library, one for each client."""

    name = "stdio"
    speaks = "programs"

    def __init__(self, folder, upstream):
        self._folder = folder
        folder.mkdir()
        arguments = [sys.executable, str(LIBRARY), str(folder), str(upstream.port), "stdio"]
        # Our variables say where the package is.
        self._command = Command(arguments, env=os.environ, grace=PATIENCE)

    def doors(self, ledger):
        """The one way in."""
        yield Door(way=self.name, place=self.name, target=self._command)

    def begin(self):
        """Nothing is there."""

    async def end(self):
        """Read the books of all."""
        return books_of(self.name, self._folder, _texts(self._folder))

    def close(self):
        """Nothing is there: a program ends with its client."""


def _texts(folder):
    return [path.read_text() for path in folder.glob("metrics.*")]
