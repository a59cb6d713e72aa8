"""Processor time of this process, told apart by who takes it: the work, or Python's collector.

A full round of the collector looks at every object that lives, so its part grows with what is held
at the moment and not with what is done. It is paid all the same, so it is told and not left out.
"""

from __future__ import annotations

import gc
import time
from typing import Self

import attrs


@attrs.frozen
class Taken:
    """Seconds of the processor."""

    work: float
    collector: float


class Processor:
    """Measures from one moment to another, again and again, while the block runs."""

    def __init__(self) -> None:
        self._collecting = 0.0
        self._round = 0.0
        self._began = (0.0, 0.0)

    def __enter__(self) -> Self:
        gc.callbacks.append(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._look)

    def _look(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._round = time.process_time()
        else:
            self._collecting += time.process_time() - self._round

    def begin(self) -> None:
        """Measure from now on."""
        self._began = (time.process_time(), self._collecting)

    def taken(self) -> Taken:
        """What was taken since then."""
        began, collecting = self._began
        collector = self._collecting - collecting
        return Taken(time.process_time() - began - collector, collector)
