"""What starting costs beside the official SDK, as the interpreter itself tells it."""

import re
import subprocess
import sys

LAST = re.compile(r"import time:\s+\d+ \|\s+(?P<total>\d+) \| (?P<name>\S+)$")
ROUNDS = 3


def microseconds(python, module):
    """The least that importing took, in fresh interpreters."""
    command = [python, "-X", "importtime", "-c", f"import {module}"]
    totals = []
    for _ in range(ROUNDS):
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        found = LAST.match(done.stderr.splitlines()[-1])
        assert found["name"] == module
        totals.append(int(found["total"]))
    return min(totals)


def test_the_front_door_opens_in_less_than_a_third_of_the_official_import(peer):
    # Measured to be a fortieth and less: what the machine does meanwhile cannot make up for that.
    assert 3 * microseconds(sys.executable, "mcp_trio") < microseconds(peer, "mcp")
