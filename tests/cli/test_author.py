"""The commands of authors as processes: what they print, where, and with which exit status."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from tests.authoring.views import make_view, static_view, write
from tests.cli.terminal import shown
from tests.cli.test_serve import Service
from tests.runtime.conftest import Upstream

PATIENCE = 60


def run(*arguments, env=None, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "mcp_trio", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )


# -- check -------------------------------------------------------------------------


def test_check_says_what_is_wrong_and_exits_with_1(tmp_path):
    path = write(tmp_path / "ops.json", make_view(name="a b"))
    done = run("check", path)
    assert done.returncode == 1
    first, advice, summary = done.stdout.splitlines()
    assert first.startswith(f"{path}:6: fault: /operations/0/name: must match")
    assert advice.startswith("    ")
    assert summary == "0 sound, 1 fault, 0 warnings"
    told = json.loads(run("check", path, "--json").stdout)
    assert (told["faults"], told["warnings"], told["operations"]) == (1, 0, 0)
    (finding,) = told["findings"]
    assert (finding["file"], finding["line"], finding["pointer"]) == (
        str(path),
        6,
        "/operations/0/name",
    )


def test_check_lets_warnings_pass_unless_it_is_strict(tmp_path):
    path = write(tmp_path / "ops.json", make_view(name="getLead"))
    assert run("check", path).returncode == 0
    assert run("check", path, "--strict").returncode == 1


def test_what_cannot_be_read_is_explained_and_exits_with_2(tmp_path):
    for arguments in (
        ("check", tmp_path / "none.yaml"),
        ("check", "gopher://x"),
        ("check", "https://127.0.0.1:1/x", "--secret-env", "NO_SUCH_VARIABLE"),
        ("diff", tmp_path / "none.yaml", tmp_path / "none.yaml"),
        ("import", "openapi", tmp_path / "none.yaml", "-o", tmp_path / "x.yaml"),
        ("import", "openapi", "http://127.0.0.1:1/", "-o", "x", "--token-env", "NO_SUCH_VARIABLE"),
    ):
        done = run(*arguments)
        assert done.returncode == 2, arguments
        assert done.stderr.startswith("mcp-trio: ")
        assert "Traceback" not in done.stderr


STEERING = "\x1b[31mred\x1b[0m\x07\u202e"


@pytest.mark.parametrize(
    "command",
    [
        "check faulty.json --json",
        "diff a.json b.json",
        "publish faulty.json r.json",
        "import openapi api.json -o api.yaml",
    ],
)
async def test_nothing_in_a_description_steers_a_terminal(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "faulty.json", make_view(STEERING, name="a b", **{STEERING: 1}))
    write(tmp_path / "a.json", make_view(STEERING, name="a"))
    write(tmp_path / "b.json", make_view(f"{STEERING}2", name="b"))
    operation = {"operationId": STEERING, "responses": {}, "requestBody": {"content": {"x/y": {}}}}
    info, paths = {"title": STEERING, "version": "1"}, {f"/{STEERING}": {"post": operation}}
    api = {"openapi": "3.1.0", "info": info, "paths": paths}
    (tmp_path / "api.json").write_text(json.dumps(api))
    said, _ = await shown(*command.split())
    assert "red" in said
    assert not {"\x1b", "\x07", "\u202e"} & set(said), said


def test_a_reader_that_leaves_is_no_verdict(tmp_path):
    source = write(tmp_path / "ops.json", static_view())
    for place, status, said in (
        (None, 141, ""),
        ("/dev/full", 2, "mcp-trio: cannot print: No space left on device\n"),
    ):
        if place is None:
            end, out = os.pipe()
            os.close(end)
        else:
            out = os.open(place, os.O_WRONLY)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "mcp_trio", "check", str(source)],
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        finally:
            os.close(out)
        assert (done.returncode, done.stderr) == (status, said)


# -- diff --------------------------------------------------------------------------


def test_diff_exits_like_diff(tmp_path):
    a = write(tmp_path / "a.json", make_view("a"))
    b = write(tmp_path / "b.json", make_view("a"), make_view("b"))
    assert run("diff", a, a).returncode == 0
    done = run("diff", a, b)
    assert done.returncode == 1
    assert done.stdout == "+ b (b)\n1 added, 0 removed, 0 renamed, 0 changed, 1 the same\n"
    assert json.loads(run("diff", a, b, "--json").stdout)["added"] == [
        {"operation_id": "b", "name": "b"}
    ]


# -- publish -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["r.sqlite", "r.json"])
def test_publish_writes_what_is_sound_and_nothing_else(tmp_path, name):
    registry = tmp_path / name
    good = write(tmp_path / "good.json", make_view("a"), make_view("b"))
    bad = write(tmp_path / "bad.json", make_view("a"), make_view("c", name="a b"))
    assert run("publish", good, registry, "--dry-run").stdout.startswith("+ a\n+ b\n2 added")
    assert not registry.exists()
    assert run("publish", good, registry).returncode == 0
    done = run("publish", bad, registry)
    assert done.returncode == 1
    assert "must match" in done.stderr
    assert done.stderr.endswith("mcp-trio: nothing was published\n")
    assert run("diff", good, registry).returncode == 0
    less = write(tmp_path / "less.json", make_view("a"))
    told = json.loads(run("publish", less, registry, "--prune", "--json").stdout)
    assert (told["withdrawn"], told["same"], told["dry_run"]) == (["b"], 1, False)


# -- import ------------------------------------------------------------------------

DESCRIPTION = {
    "openapi": "3.0.0",
    "info": {"title": "Pets"},
    "servers": [{"url": "https://pets.test"}],
    "paths": {
        "/pets": {"get": {"operationId": "listPets"}},
        "/files": {
            "put": {"requestBody": {"required": True, "content": {"application/x-protobuf": {}}}}
        },
    },
}


@pytest.mark.parametrize("name", ["ops.yaml", "ops.json"])
def test_import_writes_a_file_that_can_be_published(tmp_path, name):
    source, output = tmp_path / "api.json", tmp_path / name
    source.write_text(json.dumps(DESCRIPTION))
    done = run("import", "openapi", source, "-o", output)
    assert done.returncode == 0
    assert "not imported: PUT /files: its body may be application/x-protobuf only" in done.stdout
    assert "1 imported into" in done.stdout
    assert '[connections.pets]\nbase_url = "https://pets.test"' in done.stdout
    assert "pets.test" not in output.read_text()
    assert run("check", output).returncode == 0
    assert run("publish", output, tmp_path / "r.sqlite").returncode == 0
    told = json.loads(run("import", "openapi", source, "-o", output, "--json").stdout)
    assert (told["imported"], told["filtered"], len(told["refused"])) == (1, 0, 1)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("api.json", "is what is imported"),
        ("notes.yaml", "is no document of operations"),
        ("ops.txt", "name a file that ends with .yaml or .json"),
    ],
)
def test_import_writes_over_nothing_but_operations(tmp_path, name, said):
    source = tmp_path / "api.json"
    source.write_text(json.dumps(DESCRIPTION))
    (tmp_path / "notes.yaml").write_text("mine: yes\n")
    kept = {each.name: each.read_text() for each in tmp_path.iterdir()}
    done = run("import", "openapi", source, "-o", tmp_path / name)
    assert done.returncode == 2
    assert said in done.stderr
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == kept


def test_an_import_of_nothing_leaves_the_file_as_it_was(tmp_path):
    source, output = tmp_path / "api.json", tmp_path / "ops.yaml"
    source.write_text(json.dumps(DESCRIPTION))
    assert run("import", "openapi", source, "-o", output).returncode == 0
    kept = output.read_text()
    done = run("import", "openapi", source, "-o", output, "--include", "tag=nobody")
    assert done.returncode == 1
    assert "nothing was imported" in done.stderr
    assert output.read_text() == kept


def test_the_name_of_a_connection_is_a_key_of_the_settings(tmp_path):
    source = tmp_path / "api.json"
    source.write_text(json.dumps(DESCRIPTION))
    done = run("import", "openapi", source, "-o", tmp_path / "o.yaml", "--connection", "a b")
    assert done.returncode == 2
    assert "letters, digits" in done.stderr


def test_a_file_that_cannot_be_written_is_explained(tmp_path):
    source = tmp_path / "api.json"
    source.write_text(json.dumps(DESCRIPTION))
    done = run("import", "openapi", source, "-o", tmp_path / "no" / "ops.yaml")
    assert done.returncode == 2
    assert "cannot write" in done.stderr


# -- call --operation --------------------------------------------------------------


def test_an_operation_is_called_without_a_server(tmp_path):
    said = {"expr": "join(' ', ['Hello,', args.name])"}
    view = static_view(
        "greeting",
        {"text": said},
        input_schema={
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    )
    path = write(tmp_path / "ops.json", view)
    registry = tmp_path / "r.sqlite"
    run("publish", path, registry)
    for place in (path, registry):
        done = run("call", place, "--operation", "greeting", "--arg", "name=12")
        assert (done.stdout, done.returncode) == ('{"text":"Hello, 12"}\n', 0)
    told = json.loads(run("call", path, "--operation", "greeting", "--json").stdout)
    assert told["isError"] is True
    error = told["_meta"]["io.github.mcp-trio/error"]
    assert (error["stage"], error["sub"]) == ("schema_validation", "input")
    done = run("call", path, "--operation", "greeting")
    assert done.returncode == 1
    assert done.stdout.startswith("[schema_validation] ")


async def test_its_connections_and_their_secrets_come_from_the_settings(tmp_path, nursery):
    import functools

    import trio

    upstream = Upstream()
    (listener,) = await nursery.start(
        functools.partial(trio.serve_tcp, upstream.serve, 0, host="127.0.0.1")
    )
    port = listener.socket.getsockname()[1]
    path = write(
        tmp_path / "ops.json",
        make_view(
            input_mapping={"path": {"id": "=args.id"}, "query": {"who": "=principal.sub"}},
            execution_config={"required_scopes": ["crm"]},
        ),
    )
    config = tmp_path / "service.toml"
    config.write_text(
        f'[catalog]\nregistry = "r.sqlite"\n[connections.crm]\nbase_url = "http://127.0.0.1:{port}"\n'
        '[connections.crm.auth]\nkind = "bearer"\nsecret_env = "CRM"\n'
    )
    arguments = ("call", path, "--operation", "crm_leads_get", "--config", config, "--arg", "id=5")
    principal = ("--principal", '{"sub": "ada", "scopes": ["crm"]}')

    def call(*more):
        return run(*arguments, *more, env={"CRM": "s3cr3t"})

    done = await trio.to_thread.run_sync(call, *principal)
    assert (done.stdout, done.returncode) == ("{}\n", 0), done.stderr
    assert upstream.last.target == "/leads/5?who=ada"
    assert upstream.last.header("authorization") == "Bearer s3cr3t"

    upstream.says({"message": "no such lead"}, status=404)
    done = await trio.to_thread.run_sync(call, *principal, "--json")
    error = json.loads(done.stdout)["_meta"]["io.github.mcp-trio/error"]
    assert (error["stage"], error["upstream_status"]) == ("external_service", 404)
    assert done.returncode == 1

    done = await trio.to_thread.run_sync(call)
    assert done.returncode == 2
    assert "needs more scopes; give --principal" in done.stderr

    upstream.handler = upstream.hang
    done = await trio.to_thread.run_sync(call, *principal, "--timeout", "0.3")
    assert "no answer in 0.3 s" in done.stderr
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        ((), 2, "give either a TOOL or --operation NAME"),
        (("tool", "--operation", "x"), 2, "give either a TOOL or --operation NAME"),
        (("tool", "--config", "x.toml"), 2, "go with --operation"),
        (("--operation", "none"), 2, "there is no operation 'none'"),
        (("--operation", "crm_leads_get"), 2, "there is no connection 'crm'. Add"),
        (("--operation", "bad"), 2, "mcp-trio check tells where"),
        (("--operation", "twice"), 2, "several operations are 'twice'"),
        (("--operation", "crm_leads_get", "--config", "none.toml"), 2, "cannot read none.toml"),
        (("--operation", "crm_leads_get", "--principal", "5"), 2, "--principal must be"),
    ],
)
def test_what_cannot_be_called_is_explained(tmp_path, more, status, said):
    path = write(
        tmp_path / "ops.json",
        make_view(),
        make_view("bad", draft=1),
        make_view("x", name="twice"),
        make_view("y", name="twice"),
    )
    done = run("call", path, *more, cwd=tmp_path, env={"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr


# -- the server has no part in it ------------------------------------------------------

SERVES = """
import sys
from mcp_trio.cli import main

try:
    main(sys.argv[1:], standalone_mode=False)
finally:
    print("\\n".join(sorted(sys.modules)))
"""
FOREIGN = (
    "yaml",
    "_yaml",
    "ruamel",
    "grpc_tools",
    "grpc_reflection",
    "mcp_trio.authoring",
    "mcp_trio.cli.author",
    "mcp_trio.cli.trial",
)


def foreign(loaded):
    assert "mcp_trio.catalog.actor" in loaded
    return [
        name
        for name in loaded
        if name in FOREIGN or name.startswith(tuple(f"{f}." for f in FOREIGN))
    ]


def test_the_command_loads_no_yaml_and_nothing_of_the_authors_tools():
    program = "import sys, mcp_trio.cli.serve; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert foreign(done.stdout.split()) == []


def test_a_server_that_has_served_has_loaded_nothing_of_the_authors_tools():
    service = Service("--demo", "--port", "0", program=("-c", SERVES))
    try:
        service.until_log("3 operations")
        service.process.send_signal(signal.SIGTERM)
        assert foreign(service.process.stdout.read().split()) == []
    finally:
        service.close()


def test_without_the_extra_the_commands_say_what_to_install(tmp_path):
    program = (
        "import sys; sys.modules['yaml'] = None\n"
        "from mcp_trio.cli import main\n"
        f"main(['check', {str(tmp_path)!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "Error: check needs yaml: pip install 'mcp-trio[authoring]'\n"


def test_ctrl_c_ends_a_call(tmp_path):
    path = write(tmp_path / "ops.json", make_view())
    config = tmp_path / "service.toml"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config.write_text(
            '[catalog]\nregistry = "r"\n[connections.crm]\n'
            f'base_url = "http://127.0.0.1:{silent.getsockname()[1]}"\n'
        )
        arguments = ["call", path, "--operation", "crm.leads.get", "--config", config, "-a", "id=1"]
        process = subprocess.Popen(
            [sys.executable, "-m", "mcp_trio", *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
        )
        accepted, _ = silent.accept()
        with accepted:
            accepted.recv(1)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 130
        assert process.stderr.read() == "cancelled\n"
        process.stderr.close()
