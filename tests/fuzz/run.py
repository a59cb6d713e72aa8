"""Fuzzes one target: `python -m tests.fuzz.run NAME SECONDS [CORPUS]`. Needs atheris.

Ends with 0 if nothing was found; the input that was is in `crash-…`, and goes into
`test_targets.py`.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["mcp_trio"]):
    from tests.fuzz.targets import SEEDS, TARGETS


def main():
    name, seconds = sys.argv[1], sys.argv[2]
    corpus = Path(sys.argv[3] if len(sys.argv) > 3 else tempfile.mkdtemp(prefix="fuzz-"))
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    arguments = [sys.argv[0], str(corpus), f"-max_total_time={seconds}", "-max_len=4096"]
    arguments += ["-timeout=10", "-print_final_stats=1"]
    atheris.Setup(arguments, TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
