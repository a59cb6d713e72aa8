"""Standard streams of the service that are closed or full: it runs, and writes nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FIRST_FILE = """
import os, sys
from mcp_trio.cli.streams import hold_standard_streams, say
hold_standard_streams()
number = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
say("hello")
print("hello", file=sys.stderr)
os.write(2, b"hello")
os.write(number, b"data" if number > 2 else b"taken")
"""


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)])
def test_a_file_never_gets_the_number_of_a_stream_that_is_closed(tmp_path, closed):
    def close():
        for number in closed:
            os.close(number)

    path = tmp_path / "data"
    command = [sys.executable, "-c", FIRST_FILE, os.fspath(path)]
    done = subprocess.run(command, preexec_fn=close, check=False)
    assert done.returncode == 0
    assert path.read_text() == "data"


def test_what_cannot_be_said_is_no_reason_to_stop():
    text = "from mcp_trio.cli.streams import say; say('hello'); print('on')"
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", text]
        done = subprocess.run(command, stderr=full, stdout=subprocess.PIPE, check=False)
    assert done.stdout == b"on\n"
