"""Starting a worker on the first core and reading what it measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from benchmarks.processes import output_of

TIMEOUT = 180.0
"""Seconds one worker may take."""


async def samples(command: Sequence[str | Path], count: int) -> list[float]:
    """Run a worker for `count` samples, which stand for `{count}` in its command."""
    filled = [str(part).format(count=count) for part in command]
    said = await output_of(["taskset", "-c", "0", *filled], within=TIMEOUT, what=filled[1])
    return cast("list[float]", json.loads(said))
