"""How long work and amounts of bytes are told to people: a line a second at most, and "1.2 MB".

Knows no logger and no screen: whoever tells is given what to say.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

PROGRESS_SECONDS = 1.0
"""Shortest time between two lines of one piece of work."""


class Progress:
    """Tells of long work, `say(done, total)`, at most once a second, and once when it is done."""

    def __init__(self, say: Callable[[int, int], None], now: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._now = now
        self._next = -math.inf
        self._finished = False

    def __call__(self, done: int, total: int) -> None:
        """So much of `total` is done."""
        now, finished = self._now(), done >= total
        if (finished and not self._finished) or (not finished and now >= self._next):
            self._next = now + PROGRESS_SECONDS
            self._finished = finished
            self._say(done, total)


def size(num_bytes: float) -> str:
    """Bytes for people: 1,234,567 is "1.2 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 999.5 or unit == "GB":
            break
        num_bytes /= 1000
    return f"{num_bytes:.0f} {unit}" if unit == "B" or num_bytes >= 99.95 else f"{num_bytes:.1f} {unit}"


def duration(seconds: float) -> str:
    """Time for people: 3,725 is "1 h 2 min", 75 is "1 min 15 s"."""
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
