"""The command as its user runs it: a process, its ports, its registry, its signals."""

import contextlib
import functools
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import trio

from mcp_trio import ClientOptions, ErrorCode, MCPClient, MCPError
from mcp_trio.auth import BearerToken
from mcp_trio.auth.resource_server.api_keys import new_key
from mcp_trio.catalog.registries.schema import create_registry, publish
from mcp_trio.cli.demo import GET_PROFILE, demo_settings
from mcp_trio.cli.serve import curl_line
from mcp_trio.config import parse_settings
from mcp_trio.wire import REVISIONS

PATIENCE = 60
"""Seconds until a test gives up. The demo looks at its registry every two."""


class Service:
    """A running `mcp-trio serve`."""

    def __init__(self, *arguments, env=None, program=("-m", "mcp_trio")):
        self.process = subprocess.Popen(
            [sys.executable, *program, "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.lines = []
        self._more = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.opening = self.until_log("MCP on")
        except BaseException:
            self.close()
            raise
        self.url = re.search(r"MCP on (\S+?),", self.opening)[1]
        self.registry = re.search(r"registry (\S+?);", self.opening)[1]

    def _read(self):
        for line in self.process.stderr:
            with self._more:
                self.lines.append(line)
                self._more.notify_all()
        with self._more:
            self.lines.append("")
            self._more.notify_all()

    def until_log(self, text):
        """Wait until a line with this text has been logged, before or after now."""

        def said():
            return [line for line in self.lines if text in line] or self.lines[-1:] == [""]

        with self._more:
            assert self._more.wait_for(said, PATIENCE), f"never said {text!r}: {self.lines}"
            found = [line for line in self.lines if text in line]
            assert found, f"ended without saying {text!r}: {self.lines}"
            return found[0]

    def get(self, path):
        base = self.url.removesuffix("/mcp")
        try:
            with urllib.request.urlopen(base + path, timeout=PATIENCE) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code

    def sql(self, statement, *values):
        with contextlib.closing(sqlite3.connect(self.registry)) as database, database:
            database.execute(statement, values)

    def stop(self, sign=signal.SIGTERM):
        self.process.send_signal(sign)
        code = self.process.wait(timeout=PATIENCE)
        with self._more:
            assert self._more.wait_for(lambda: self.lines[-1:] == [""], PATIENCE)
        self.close()
        return code

    def close(self):
        self.process.terminate()  # killed, it would leave its folder behind
        try:
            self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def demo():
    service = Service("--demo", "--port", "0")
    service.until_log("3 operations")
    yield service
    service.close()


async def names(client):
    return [tool.name async for tool in client.tools()]


DEMO_TOOLS = ["crm_create_lead", "inventory_list_items", "user_get_profile"]


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
async def test_the_demo_tools_are_listed_and_called_in_every_revision(demo, revision):
    async with MCPClient(demo.url, options=ClientOptions(revisions=(revision,))) as client:
        assert await names(client) == DEMO_TOOLS
        made = await client.call_tool("crm_create_lead", {"email": "a@example.com"})
        assert made.content[0].text == "Lead created: lead-1"
        found = await client.call_tool("user_get_profile", {"user_id": "u-1"})
        assert json.loads(found.content[0].text)["name"] == "Ada"
        listed = await client.call_tool("inventory_list_items", {"warehouse": "north", "limit": 1})
        assert json.loads(listed.content[0].text)["total"] == 4
        refused = await client.call_tool("crm_create_lead", {"email": "nobody"})
        assert refused.is_error
        assert refused.content[0].text.startswith("[external_service]")
        assert "the email address has no @" in refused.content[0].text


async def test_a_client_of_http_sse_is_served_beside_the_others(demo):
    url = demo.url.removesuffix("/mcp") + "/sse"
    async with MCPClient(url, options=ClientOptions(revisions=(REVISIONS[-1],))) as client:
        assert await names(client) == DEMO_TOOLS


def test_the_line_it_prints_can_be_run(demo):
    command = demo.opening.split("try: ")[1].strip()
    printed = subprocess.run(
        command, shell=True, capture_output=True, check=True, timeout=PATIENCE
    ).stdout
    assert [tool["name"] for tool in json.loads(printed)["result"]["tools"]] == DEMO_TOOLS


@pytest.mark.parametrize(
    ("auth", "url", "asked"),
    [
        ({}, "http://0.0.0.0:80/mcp", "http://127.0.0.1:80/mcp"),
        ({}, "https://[::]:80/mcp", "https://[::1]:80/mcp"),
        ({}, "http://192.0.2.1:80/mcp", "http://192.0.2.1:80/mcp"),
        ({}, "http+unix://%2Frun%2Fx/mcp", "--unix-socket /run/x http://localhost/mcp"),
        (
            {"auth": {"resource": "https://a.example/mcp", "jwt": {"a": {"issuer": "https://b"}}}},
            "http://127.0.0.1:80/mcp",
            "https://a.example/mcp",
        ),
    ],
)
def test_the_line_it_prints_asks_where_clients_ask_and_with_what_they_show(auth, url, asked):
    line = curl_line(parse_settings({"catalog": {"registry": "r"}, **auth}), url)
    assert line.startswith(f"curl -s {asked} -H ")
    assert ("$TOKEN" in line) == bool(auth)


def test_the_probes_answer(demo):
    assert demo.get("/healthz") == 200
    assert demo.get("/readyz") == 200


async def test_plain_sql_changes_the_list_while_it_runs_with_one_notice_each(demo):
    insert = (
        "INSERT INTO operations (operation_id, name, protocol, target, status, output_mapping,"
        " sample_payload, import_metadata, ui) VALUES (?, ?, 'static', '{}', ?, ?, ?, ?, ?)"
    )
    mapping = json.dumps({"result": {"said": "hello"}})
    canary = ("canary-sample", "canary-import", "canary-ui")
    with trio.fail_after(PATIENCE):
        async with MCPClient(demo.url) as client, client.listen() as changes:
            demo.sql(insert, "demo.hello", "hello", "published", mapping, *canary)
            await anext(changes)
            assert await names(client) == sorted([*DEMO_TOOLS, "hello"])
            said = await client.call_tool("hello")
            assert said.structured_content == {"said": "hello"}
            listed = json.dumps(await client.call("tools/list"))
            assert "canary" not in listed

            demo.sql("UPDATE operations SET tool_description = 'new' WHERE name = 'hello'")
            await anext(changes)
            tools = {tool.name: tool async for tool in client.tools()}
            assert tools["hello"].description == "new"

            # A draft, and a change of what is only for editors, are no change.
            demo.sql(insert, "demo.draft", "draft", "draft", mapping, *canary)
            demo.sql("UPDATE operations SET ui = 'other', sample_payload = 'other'")
            demo.sql("UPDATE operations SET status = 'withdrawn' WHERE name = 'hello'")
            await anext(changes)
            assert await names(client) == DEMO_TOOLS

            heard = []
            with trio.move_on_after(2.5):
                heard.append(await anext(changes))
            assert heard == []


async def test_a_cancelled_call_reaches_the_upstream(demo):
    async with MCPClient(demo.url) as client:
        with trio.move_on_after(0.5):
            await client.call_tool("inventory_list_items", {"wait_seconds": 60})
    await trio.to_thread.run_sync(demo.until_log, "left before the answer")


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_success_and_removes_the_registry_of_the_demo(demo, sign):
    assert Path(demo.registry).exists()
    assert demo.stop(sign) == 0
    assert not Path(demo.registry).exists()
    assert "Traceback" not in "".join(demo.lines)


async def test_a_running_call_may_finish_after_the_signal(demo):
    async with MCPClient(demo.url) as client, trio.open_nursery() as nursery:
        got = []

        async def call():
            got.append(await client.call_tool("inventory_list_items", {"wait_seconds": 1.5}))

        nursery.start_soon(call)
        with trio.move_on_after(0.5):
            await trio.sleep_forever()
        demo.process.send_signal(signal.SIGTERM)
    assert not got[0].is_error
    assert await trio.to_thread.run_sync(demo.process.wait, PATIENCE) == 0


def test_logs_are_one_json_object_a_line_where_there_is_no_terminal(demo):
    demo.stop()
    told = [json.loads(line) for line in demo.lines if line and "MCP on" not in line]
    assert "drained" in [line["event"] for line in told]


# -- with a configuration ---------------------------------------------------------


def write(folder, text):
    path = folder / "service.toml"
    path.write_text(text)
    return str(path)


def registry_with(folder, *views):
    path = folder / "operations.sqlite"
    create_registry(path)
    publish(path, *views)
    return path


HELLO = {
    **GET_PROFILE,
    "operation_id": "hello",
    "name": "hello",
    "protocol": "static",
    "target": {},
    "output_schema": None,
    "input_mapping": {},
    "output_mapping": {"result": {"said": "hello"}},
    "input_schema": {"type": "object", "additionalProperties": False},
    "execution_config": {},
}

CONFIG = """
[server]
port = 0
name = "ours"
[catalog]
registry = "operations.sqlite"
interval = 0.2
"""


async def test_a_registry_and_connections_of_ones_own(tmp_path):
    registry_with(tmp_path, HELLO)
    service = Service(write(tmp_path, CONFIG))
    try:
        service.until_log("1 operations")
        async with MCPClient(service.url) as client:
            assert client.server_info.name == "ours"
            result = await client.call_tool("hello")
            assert result.structured_content == {"said": "hello"}
        assert service.stop() == 0
    finally:
        service.close()


async def test_toolsets_and_a_list_that_is_too_long(tmp_path):
    other = {**HELLO, "operation_id": "bye", "name": "say_bye", "tool_description": "Say bye."}
    registry_with(tmp_path, HELLO, other)
    config = CONFIG.replace("[catalog]", "[catalog]\nsearch_above = 1")
    more = '[toolsets.polite]\nnames = ["hel*"]\ninstructions = "Be polite"\n'
    service = Service(write(tmp_path, config + more))
    try:
        service.until_log("2 operations")
        async with MCPClient(service.url) as client:
            listed = [tool.name async for tool in client.tools()]
            assert listed == ["search_tools", "describe_tool", "call_tool"]
            result = await client.call_tool("call_tool", {"name": "hello"})
            assert result.structured_content == {"said": "hello"}
        async with MCPClient(f"{service.url}/polite") as client:
            assert (client.server_info.name, client.instructions) == ("ours/polite", "Be polite")
            assert [tool.name async for tool in client.tools()] == ["hello"]
        assert service.stop() == 0
    finally:
        service.close()


AUTH = """
[auth]
resource = "https://mcp.example/mcp"
required_scopes = ["mcp"]
implies = { admin = ["mcp", "polite"] }
api_keys_file = "keys.toml"
authorization_servers = ["https://as.example"]
[toolsets.polite]
names = ["*"]
required_scopes = ["polite"]
"""


def fetched(url):
    """Status, header fields and JSON of an answer."""
    try:
        response = urllib.request.urlopen(url, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        return response.status, response.headers, json.load(response)


async def test_callers_prove_who_they_are_and_a_key_is_good_for_its_scopes(tmp_path):
    registry_with(tmp_path, {**HELLO, "execution_config": {"required_scopes": ["write"]}})
    made = [new_key("low", "ann", ["mcp"]), new_key("high", "bob", ["admin", "write"])]
    keys = tmp_path / "keys.toml"
    keys.write_text("\n".join(line for _, line in made))
    keys.chmod(0o600)
    low, high = (BearerToken(token=key) for key, _ in made)
    service = Service(write(tmp_path, CONFIG + AUTH))
    try:
        service.until_log("1 operations")
        for path, scope in (("", "mcp"), ("/polite", "mcp polite")):
            where = f"https://mcp.example/.well-known/oauth-protected-resource/mcp{path}"
            told = f'Bearer scope="{scope}", resource_metadata="{where}"'
            status, headers, _ = fetched(f"{service.url}{path}")
            assert (status, headers["www-authenticate"]) == (401, told)
            base = service.url.removesuffix("/mcp")
            _, _, document = fetched(f"{base}/.well-known/oauth-protected-resource/mcp{path}")
            assert document["resource"] == f"https://mcp.example/mcp{path}"
            assert document["scopes_supported"] == scope.split()
        async with MCPClient(service.url, options=ClientOptions(auth=high)) as client:
            result = await client.call_tool("hello")
            assert result.structured_content == {"said": "hello"}
        async with MCPClient(f"{service.url}/polite", options=ClientOptions(auth=high)) as client:
            assert [tool.name async for tool in client.tools()] == ["hello"]
        async with MCPClient(service.url, options=ClientOptions(auth=low)) as client:
            with pytest.raises(MCPError) as refused:
                await client.call_tool("hello")
            assert refused.value.code is ErrorCode.UNAUTHORIZED
        command = [sys.executable, "-m", "mcp_trio", "call", service.url, "hello"]
        told = await trio.run_process(
            [*command, "--token-env", "LOW"],
            env={**os.environ, "LOW": made[0][0].reveal()},
            capture_stderr=True,
            check=False,
        )
        assert (told.returncode, b"it takes the scopes" in told.stderr) == (1, True)
        assert b"write" in told.stderr
        assert service.stop() == 0
    finally:
        service.close()
    said = "".join(service.lines)
    assert not any(key.reveal() in said for key, _ in made)


async def test_a_secret_from_the_environment_reaches_the_upstream_and_nothing_else(tmp_path):
    secret = "s3cr3t-canary"
    seen = []

    async def answer(stream):
        async with stream:
            request = b""
            while b"\r\n\r\n" not in request:
                request += await stream.receive_some(4096)
            seen.append(request)
            body = b'{"id":"u-1","name":"%s"}' % secret.encode()
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            )
            await stream.send_all(head % len(body) + body)

    registry_with(tmp_path, GET_PROFILE)
    async with trio.open_nursery() as nursery:
        serve = functools.partial(trio.serve_tcp, answer, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        port = listener.socket.getsockname()[1]
        config = write(
            tmp_path,
            CONFIG
            + f'[connections.demo]\nbase_url = "http://127.0.0.1:{port}"\n'
            + '[connections.demo.auth]\nkind = "bearer"\nsecret_env = "DEMO_TOKEN"\n',
        )
        service = await trio.to_thread.run_sync(
            lambda: Service(config, "--log-level", "debug", env={"DEMO_TOKEN": secret})
        )
        try:
            await trio.to_thread.run_sync(service.until_log, "1 operations")
            async with MCPClient(service.url) as client:
                await client.call_tool("user_get_profile", {"user_id": "u-1"})
            assert f"authorization: bearer {secret}".encode() in seen[0].lower()
            code = await trio.to_thread.run_sync(service.stop)
            assert code == 0
            assert secret not in "".join(service.lines)
        finally:
            service.close()
        nursery.cancel_scope.cancel()


def test_whoever_reads_where_it_is_finds_the_tools_there(demo):
    (looked,) = [at for at, line in enumerate(demo.lines) if "3 operations" in line]
    (told,) = [at for at, line in enumerate(demo.lines) if "MCP on" in line]
    assert looked < told


def test_without_a_registry_it_runs_and_becomes_ready_when_there_is_one(tmp_path):
    service = Service(write(tmp_path, CONFIG))
    try:
        service.until_log("there is no registry at")
        assert service.get("/healthz") == 200
        assert service.get("/readyz") == 503
        registry_with(tmp_path, HELLO)
        service.until_log("1 operations")
        assert service.get("/readyz") == 200
        assert service.stop() == 0
    finally:
        service.close()


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "mcp_trio", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_every_fault_is_explained_before_anything_starts(tmp_path):
    text = '[catalog]\nregistry = "r"\nintervall = 3\n[connections.a]\nbase_url = "ftp://x"\n'
    path = write(tmp_path, text)
    done = run("serve", path, "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 1
    assert f"{path}:3: fault: catalog.intervall: unknown key" in done.stderr
    assert f"{path}:5: fault: connections.a.base_url: base_url must be http" in done.stderr
    for key in ("allow_anonymous", "allow_plaintext"):
        assert f"server.{key} = true" in done.stderr
    assert done.stderr.count("--host: fault: server.host: ") == 2
    assert "Traceback" not in done.stderr
    assert "MCP on" not in done.stderr


def test_what_is_no_toml_is_explained(tmp_path):
    path = write(tmp_path, "not toml")
    done = run("serve", path)
    assert done.returncode == 1
    assert f"{path}:1: fault: is not TOML" in done.stderr


async def test_an_option_stands_above_a_variable_and_that_above_the_file(tmp_path):
    registry_with(tmp_path, HELLO)
    (tmp_path / "key").write_text("00" * 32)
    (tmp_path / "key").chmod(0o644)
    config = CONFIG.replace("port = 0", 'port = 1\nstate_keys = ["file:key"]')
    variables = {
        "MCP_TRIO_SERVER__PORT": "2",
        "MCP_TRIO_SERVER__NAME": "theirs",
        "MCP_TRIO_SERVER__HOST": "0.0.0.0",
    }
    options = ("--port", "0", "--host", "127.0.0.1")
    service = Service(write(tmp_path, config), *options, env=variables)
    try:
        service.until_log("everybody on this machine can read key")
        async with MCPClient(service.url) as client:
            assert client.server_info.name == "theirs"
        assert service.stop() == 0
    finally:
        service.close()


def test_the_demo_is_refused_beyond_this_machine_like_any_service():
    done = run("serve", "--demo", "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 1
    assert "server.allow_anonymous = true" in done.stderr


def test_the_demo_writes_into_its_own_folder_whatever_registry_is_asked_for(tmp_path):
    theirs, ours = tmp_path / "theirs.sqlite", tmp_path / "ours"
    ours.mkdir()
    asked = parse_settings({"catalog": {"registry": str(theirs)}, "server": {"port": 3}})
    made = demo_settings(ours, "http://127.0.0.1:1", asked)
    assert made.server.port == 3
    assert made.catalog.registry == str(ours / "registry.sqlite")
    assert not theirs.exists()


def test_a_configuration_that_is_not_there_and_wrong_usage(tmp_path):
    assert "cannot read" in run("serve", str(tmp_path / "none.toml")).stderr
    for arguments in (["serve"], ["serve", "--demo", "x.toml"], ["serve", "--demo", "--port", "x"]):
        done = run(*arguments)
        assert done.returncode == 2
        assert "Usage" in done.stderr


def test_an_address_that_is_taken_is_explained():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("serve", "--demo", "--port", port)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_the_commands():
    assert "serve" in run("--help").stdout
    assert "--demo" in run("serve", "--help").stdout


STOPPED_AT_ONCE = """
import signal, tempfile
from mcp_trio.cli import main

make = tempfile.mkdtemp

def make_and_stop(*args, **options):
    folder = make(*args, **options)
    print(folder, flush=True)
    signal.raise_signal(signal.SIGTERM)
    return folder

tempfile.mkdtemp = make_and_stop
main(["serve", "--demo", "--port", "0"])
"""


def test_a_signal_while_the_demo_starts_ends_it_cleanly():
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_AT_ONCE],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    folder = Path(done.stdout.strip())
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert folder.name.startswith("mcp-trio-demo-")
    assert not folder.exists()
