"""Sessions of the handshake era over HTTP, each opened, used for one call and deleted.

Arguments: the URL, and how many. Prints the seconds that they took. Every answer is looked at. No
package under measurement is used.
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.calls import HANDSHAKE, Line, WrongAnswerError


def once(line: Line) -> None:
    """Open a session, call, and end it."""
    dialect = line.open(HANDSHAKE)
    if line.call(dialect, "add", {"a": 2, "b": 40}) != 42:
        raise WrongAnswerError("2 + 40 is something else")
    line.connection.request("DELETE", line.path, headers=dialect.headers())
    with line.connection.getresponse() as response:
        response.read()
        if response.status not in {200, 202, 204}:
            raise WrongAnswerError(f"DELETE gave {response.status}")


def main(url: str, count: str) -> None:
    """Measure and print."""
    line = Line(url)
    try:
        began = time.perf_counter()
        for _ in range(int(count)):
            once(line)
        sys.stdout.write(json.dumps(time.perf_counter() - began))
    finally:
        line.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
