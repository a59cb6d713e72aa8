"""Which files this process has open, for tests that nothing of theirs stays so."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def open_files(place: Path) -> int:
    """Descriptors of this process that lead to a path, or to one that begins with it."""
    leads = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        # The one that lists them is gone by now.
        with suppress(FileNotFoundError):
            leads += str(descriptor.readlink()).startswith(str(place))
    return leads
