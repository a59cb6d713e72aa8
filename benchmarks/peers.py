"""The environment of other people's packages, made once under `.cache/peers`.

Run it to make the environment and print the path of its interpreter. Versions are pinned: a
comparison names what it was made with. Our own package is never installed there.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.processes import CACHE

REQUIREMENTS = (
    "mcp==2.3.0",
    "uvicorn[standard]==0.54.0",
    "hypercorn==0.18.0",
    "trio==0.35.0",
)
"""The official SDK, and the ASGI servers it is measured on; uvicorn with its fast parts too."""
PIP_TIMEOUT = 600
"""Seconds that one pip run may take."""


def peer_python() -> Path:
    """The interpreter of the peers' environment; makes the environment when it is not there.

    Raises:
        subprocess.CalledProcessError: pip failed; what it said is on standard error.
    """
    mark = hashlib.sha256("\n".join([sys.version, *REQUIREMENTS]).encode()).hexdigest()[:12]
    home = CACHE / "peers" / mark
    python = home / "bin" / "python"
    done = home / "complete"
    if not done.exists():
        venv.create(home, with_pip=True, clear=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", *REQUIREMENTS],
            check=True,
            stdout=sys.stderr,
            stdin=subprocess.DEVNULL,
            timeout=PIP_TIMEOUT,
        )
        # Written last: an environment that was broken off is made again.
        done.write_text("\n".join(REQUIREMENTS))
    return python


if __name__ == "__main__":
    print(peer_python())
