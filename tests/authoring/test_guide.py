"""The guide: every command is run, in order, against an upstream, and prints what stands there."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys

import trio

from tests.cli.test_serve import Service
from tests.programs import ROOT
from tests.runtime.conftest import Upstream

PAGE = (ROOT / "docs" / "authoring.md").read_text()
WALK = PAGE.partition("<!-- walk: begin -->")[2].partition("<!-- walk: end -->")[0]
PATIENCE = 60


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", WALK, re.DOTALL)


def commands():
    for block in blocks("console"):
        first, _, printed = block.partition("\n")
        yield first.removeprefix("$ "), printed


async def test_from_a_description_to_a_running_tool(tmp_path, nursery):
    upstream = Upstream()
    upstream.says({"name": "Rex"})
    serve = functools.partial(trio.serve_tcp, upstream.serve, 0, host="127.0.0.1")
    (listener,) = await nursery.start(serve)
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
    (description,), (settings,) = blocks("json"), blocks("toml")
    (tmp_path / "pets.json").write_text(description)
    (tmp_path / "service.toml").write_text(
        settings.replace("https://pets.example.com/v1", url) + "[server]\nport = 0\n"
    )
    environment = {"PETS_SECRET": "s3cr3t", "PYTHONPATH": os.pathsep.join(sys.path)}
    service = None
    try:
        for line, printed in commands():
            command = line
            if "http://127.0.0.1:8000/mcp" in command:
                config = str(tmp_path / "service.toml")
                service = await trio.to_thread.run_sync(
                    lambda config=config: Service(config, env=environment)
                )
                await trio.to_thread.run_sync(service.until_log, "1 operations")
                command = command.replace("http://127.0.0.1:8000/mcp", service.url)
            words = shlex.split(command)
            if words[0] == "mcp-trio":
                words = [sys.executable, "-m", "mcp_trio", *words[1:]]
            done = await trio.to_thread.run_sync(
                lambda words=words: subprocess.run(
                    words,
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                    check=False,
                    cwd=tmp_path,
                    env={**os.environ, **environment},
                )
            )
            assert done.stdout == printed, command
            assert done.returncode == 0, (command, done.stderr)
    finally:
        if service is not None:
            await trio.to_thread.run_sync(service.close)
    assert [seen.target for seen in upstream.seen] == ["/v1/pets/7", "/v1/pets/7"]
    assert {seen.header("authorization") for seen in upstream.seen} == {"Bearer s3cr3t"}
    nursery.cancel_scope.cancel()


def test_the_guide_names_every_command_and_option():
    from mcp_trio.cli import author, check

    found = [check.check, author.diff, author.publish, *author.import_.commands.values()]
    for command in found:
        assert f"`{command.name} " in PAGE or f" {command.name} " in PAGE
        for option in command.params:
            if option.param_type_name == "option" and option.opts[0] != "--output-schemas":
                assert any(f"`{name}" in PAGE for name in option.opts), option.opts
