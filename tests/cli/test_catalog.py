"""`mcp-trio catalog status` and the admin listener of a service, as an operator has them."""

import json
import re
import signal
import socket
import urllib.error
import urllib.request

import pytest
import trio
from click.testing import CliRunner

from mcp_trio import ClientOptions, MCPClient, MCPError
from mcp_trio.cli import main
from mcp_trio.cli.catalog import admin_url
from mcp_trio.wire.revisions import R2025_11_25
from tests.cli.test_serve import CONFIG, HELLO, PATIENCE, Service, registry_with, run, write
from tests.programs import ROOT


def admin_of(service):
    return re.search(r"admin on (\S+?);", service.opening)[1]


def status_of(url):
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def ask(*arguments):
    return CliRunner().invoke(main, ["catalog", "status", *arguments])


def told(where):
    done = ask(where, "--json")
    return done.exit_code, json.loads(done.stdout)


@pytest.fixture
def demo():
    service = Service("--demo", "--port", "0", "--admin-port", "0")
    service.until_log("3 operations")
    yield service
    service.close()


@pytest.fixture
def configured(tmp_path):
    """A service whose registry is not there yet."""
    service = Service(write(tmp_path, CONFIG + "[admin]\nport = 0\n"))
    yield service
    service.close()


def test_a_healthy_catalog_is_told_with_success(demo):
    code, status = told(admin_of(demo))
    assert code == 0
    assert status["state"] == "fresh"
    assert status["ready"]
    assert status["counts"] == {"served": 3, "published": 3, "quarantined": 0}
    assert re.fullmatch("[0-9a-f]{64}", status["revision"])
    assert re.fullmatch("[0-9a-f]{64}", status["listing_revision"])
    assert 0 <= status["age_seconds"] < PATIENCE
    assert 0 <= status["next_refresh_seconds"] <= 2.2
    assert (status["consecutive_failures"], status["last_error"]) == (0, None)
    assert not status["awaiting_confirmation"]
    assert status["quarantine"] == []

    said = ask(admin_of(demo) + "/catalog")
    assert said.exit_code == 0
    assert re.search(r"^state +fresh$", said.stdout, re.MULTILINE)
    assert "3 of 3 published" in said.stdout
    assert status["revision"][:12] in said.stdout
    assert re.search(r"^quarantine +empty$", said.stdout, re.MULTILINE)


def test_the_page_shows_what_it_prints(demo):
    page = (ROOT / "docs" / "operating.md").read_text()
    (shown,) = re.findall(
        r"^\$ mcp-trio catalog status http.*\n((?:[a-z].*\n)+)", page, re.MULTILINE
    )
    # What differs from run to run, and from version to version of the demo.
    varies = re.compile(r"\b[0-9a-f]{12}\b|\b\d+(?= s\b)")
    assert varies.sub("?", ask(admin_of(demo)).stdout) == varies.sub("?", shown)


def test_nothing_that_stands_in_a_registry_steers_the_terminal(demo):
    hostile = json.dumps({"\x1b[2J\u202ex": 1})
    demo.sql("UPDATE operations SET target = ? WHERE name = 'crm_create_lead'", hostile)
    demo.until_log("operation crm.leads.create")
    for options in ([], ["--json"]):
        said = ask(admin_of(demo), *options).stdout
        assert "crm.leads.create" in said
        assert not {"\x1b", "\u202e"} & set(said)


def page(service, path):
    with urllib.request.urlopen(admin_of(service) + path, timeout=PATIENCE) as response:
        return json.loads(response.read())


async def test_what_goes_on_is_told_to_operators_only(demo):
    options = ClientOptions(revisions=(R2025_11_25,))
    async with MCPClient(demo.url, options=options) as client:
        await client.call_tool("user_get_profile", {"user_id": "u-1"})
        with pytest.raises(MCPError):
            await client.call_tool("missing-canary")
        told = await trio.to_thread.run_sync(page, demo, "/sessions")
        (session,) = told["sessions"]
        assert session["kind"] == "http"
        rates = await trio.to_thread.run_sync(page, demo, "/rates")
        assert rates["total"]["success"] >= 2
        errors = await trio.to_thread.run_sync(page, demo, "/errors")
        assert errors["errors"][0]["code"] == "MCP.NOT_FOUND"
        tree = await trio.to_thread.run_sync(page, demo, "/tasks")
        assert f'"id":"{session["id"]}"' in json.dumps(tree["root"], separators=(",", ":"))
        url = admin_of(demo) + "/metrics"
        with await trio.to_thread.run_sync(urllib.request.urlopen, url) as response:
            assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
            text = response.read().decode()
        assert 'mcp_sessions{kind="http"} 1.0' in text
        assert 'mcp_catalog_operations{state="served"} 3.0' in text
        assert 'mcp_tool_call_total{status="success",tool="user_get_profile"} 1.0' in text
        assert "canary" not in text
    public = demo.url.removesuffix("/mcp")
    for path in ("/sessions", "/tasks", "/rates", "/errors", "/metrics"):
        assert status_of(public + path) == 404


def test_what_clients_reach_and_what_operators_reach_are_apart(demo):
    admin, public = admin_of(demo), demo.url.removesuffix("/mcp")
    for probe in ("/healthz", "/readyz"):
        assert status_of(public + probe) == status_of(admin + probe) == 200
    assert status_of(public + "/catalog") == 404
    assert status_of(admin + "/mcp") == 404


def test_a_broken_operation_is_told_with_its_reason_and_what_is_served_instead(demo):
    _, before = told(admin_of(demo))
    demo.sql("UPDATE operations SET target = '{\"host\": 1}' WHERE name = 'crm_create_lead'")
    demo.until_log("operation crm.leads.create")
    code, status = told(admin_of(demo))
    assert code == 0  # one bad entry is no failing catalog
    assert status["counts"] == {"served": 3, "published": 3, "quarantined": 1}
    assert status["revision"] == before["revision"]
    [record] = status["quarantine"]
    assert (record["operation_id"], record["fault"]) == ("crm.leads.create", "view")
    assert record["reason"].startswith("target: unknown key 'host'; known are connection, ")
    assert re.fullmatch("[0-9a-f]{64}", record["serving"])
    said = ask(admin_of(demo)).stdout
    assert f"crm.leads.create (view, serving {record['serving'][:12]}): target: unknown" in said


def test_before_the_first_read_and_in_an_outage_it_says_so_and_fails(configured, tmp_path):
    configured.until_log("there is no registry at")
    admin = admin_of(configured)
    code, status = told(admin)
    assert (code, status["ready"], status["state"]) == (1, False, "failing")
    assert (status["age_seconds"], status["counts"]["served"]) == (None, 0)
    assert status_of(admin + "/readyz") == 503
    assert status_of(admin + "/healthz") == 200
    said = ask(admin)
    assert said.exit_code == 1
    assert re.search(r"^seen +never, next look in", said.stdout, re.MULTILINE)
    assert re.search(r"^failures +\d+: there is no registry at", said.stdout, re.MULTILINE)

    path = registry_with(tmp_path, HELLO)
    configured.until_log("1 operations")
    assert told(admin)[0] == 0
    assert status_of(admin + "/readyz") == 200

    path.unlink()
    configured.until_log("keeping 1 operations")
    code, status = told(admin)
    assert (code, status["state"], status["counts"]["served"]) == (1, "failing", 1)
    assert status["ready"]  # what was good last is served
    assert status_of(admin + "/readyz") == 200
    assert "there is no registry at" in status["last_error"]


async def test_it_answers_while_the_server_drains_and_ends_with_it(demo):
    admin = admin_of(demo)

    def stop():
        demo.process.send_signal(signal.SIGTERM)
        while (seen := status_of(admin + "/readyz")) == 200:  # until the signal has arrived
            pass
        return seen, told(admin)[0]

    async with MCPClient(demo.url) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "inventory_list_items", {"wait_seconds": 60})
        await trio.to_thread.run_sync(demo.until_log, "takes its time")
        assert await trio.to_thread.run_sync(stop) == (503, 0)
        nursery.cancel_scope.cancel()
    assert await trio.to_thread.run_sync(demo.process.wait, PATIENCE) == 0
    assert "cannot reach" in ask(admin).stderr


def test_the_settings_name_the_listener(tmp_path):
    registry_with(tmp_path, HELLO)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    more = f'[admin]\nhost = "127.0.0.1"\nport = {port}\n'
    config = write(tmp_path, CONFIG + more)
    service = Service(config)
    try:
        service.until_log("1 operations")
        code, status = told(config)
        assert (code, status["counts"]["served"]) == (0, 1)
    finally:
        service.close()


@pytest.mark.parametrize(
    ("host", "asked"),
    [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("ops.example", "ops.example")],
)
def test_a_listener_on_all_addresses_is_asked_on_this_machine(tmp_path, host, asked):
    more = f'[admin]\nhost = "{host}"\nport = 9001\nallow_remote = true\n'
    assert admin_url(str(write(tmp_path, CONFIG + more))) == f"http://{asked}:9001/catalog"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no admin listener"),
        ("[admin]\nport = 0\n", "names no admin listener"),
        ("[admin]\nport = 70000\n", "admin.port: must be 0 to 65535"),
        ("[admin]\npage = 1\n", "admin.page: unknown key"),
    ],
)
def test_settings_that_name_none_are_explained(tmp_path, text, said):
    done = ask(write(tmp_path, CONFIG + text))
    assert done.exit_code == 1
    assert said in done.stderr


def test_what_is_not_there_or_is_something_else_is_explained(demo, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for where, said in (
        (f"http://127.0.0.1:{port}", "cannot reach"),
        (demo.url, "no admin listener of a catalog (status 404)"),
        (str(tmp_path / "none.toml"), "cannot read"),
    ):
        done = ask(where)
        assert done.exit_code == 1
        assert said in done.stderr


def test_an_admin_address_that_is_taken_ends_the_start(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("serve", "--demo", "--port", "0", "--admin-port", port)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr
