"""The command line against a server that wants tokens: who asks, and where that is kept."""

import os
import stat
import sys

import pytest
import trio

from tests.auth.guarded import guarded

VISIT = """
import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
opener.open(sys.argv[1], timeout=20).close()
"""


async def mcp(*arguments, **environment):
    """Run the command to its end."""
    with trio.fail_after(60):
        done = await trio.run_process(
            [sys.executable, "-m", "mcp_trio", *map(str, arguments)],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env={**os.environ, "NO_COLOR": "1", "TERM": "dumb", **environment},
        )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def browser(tmp_path):
    """Settings that make a script the person's browser; it follows redirects."""
    script = tmp_path / "visit.py"
    script.write_text(VISIT)
    return {"BROWSER": f"{sys.executable} {script} %s"}


async def test_a_token_of_the_environment_is_shown_and_never_printed():
    async with guarded() as world:
        world.tokens["access-mine"] = []
        call = ("call", world.url, "add", "--arg", "a=1", "--arg", "b=2", "--token-env", "TOKEN")
        status, said, noted = await mcp(*call, TOKEN="access-mine\n")
        assert (status, said) == (0, "3\n"), noted
        status, said, noted = await mcp(*call, TOKEN="access-other")
        assert (status, said) == (1, "")
        assert "MCP.UNAUTHORIZED" in noted
        assert "access-other" not in noted
        assert "--login" not in noted


async def test_a_refusal_without_a_token_says_what_to_do():
    async with guarded() as world:
        status, said, noted = await mcp("list", world.url)
        assert (status, said) == (1, "")
        assert "--login" in noted
        assert "--token-env" in noted


async def test_a_person_logs_in_once_for_many_commands(tmp_path, browser):
    async with guarded() as world:
        world.serves_consent = True
        tokens = tmp_path / "tokens"
        login = (world.url, "--login", "--tokens", tokens)
        status, said, noted = await mcp("list", *login, **browser)
        assert status == 0, noted
        assert said.startswith("add")
        assert len(world.visits) == 1
        assert "consent at" in noted
        status, said, noted = await mcp("call", *login, "add", "--args", '{"a": 1, "b": 2}')
        assert (status, said, len(world.visits)) == (0, "3\n", 1), noted
        modes = {stat.S_IMODE(path.stat().st_mode) for path in tokens.iterdir()}
        assert modes == {0o600}


async def test_the_tokens_of_another_client_are_somebody_elses(tmp_path, browser):
    async with guarded() as world:
        world.serves_consent = True
        login = ("list", world.url, "--login", "--tokens", tmp_path / "tokens")
        assert (await mcp(*login, **browser))[0] == 0
        status, _, noted = await mcp(*login, "--client-id", "by-hand", **browser)
        assert status == 0, noted
        assert [visit["client_id"] for visit in world.visits] == ["registered-1", "by-hand"]


async def test_a_program_has_credentials_and_asks_for_its_scopes():
    async with guarded() as world:
        job = ("list", world.url, "--client-id", "job", "--client-secret-env", "KEY")
        status, said, noted = await mcp(*job, "--scope", "files", "--scope", "notes", KEY="s3cret")
        assert status == 0, noted
        assert said.startswith("add")
        assert world.forms[0]["grant_type"] == "client_credentials"
        assert world.forms[0]["scope"] == "files notes"
        assert "s3cret" not in noted


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--client-id", "x"], "--client-id needs"),
        (["--client-secret-env", "KEY"], "--client-secret-env needs"),
        (["--scope", "x"], "--scope needs"),
        (["--token-env", "KEY", "--login"], "--token-env goes with no other"),
        (["--token-env", "NOT_THERE"], "NOT_THERE is not set"),
        (["--client-id", "x", "--client-secret-env", "NOT_THERE"], "NOT_THERE is not set"),
    ],
)
async def test_options_that_do_not_go_together_are_explained(options, told):
    status, said, noted = await mcp("list", "http://127.0.0.1:9/mcp", *options, KEY="v")
    assert (status, said) == (2, "")
    assert told in noted


async def test_only_http_takes_a_login():
    status, _, noted = await mcp("list", "python server.py", "--login")
    assert status == 2
    assert "http" in noted
